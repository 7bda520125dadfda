"""gpukit.attention of e4m3 operands on the emulated H100 against the float64 oracle."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpukit
from gpukit import dtypes
from gpukit.errors import ArgumentError, UnsupportedError
from gpukit.reference import attention as ref
from gpukit.reference import attention_layouts as layouts
from gpukit.reference.attention import Result, Rules

Array = np.ndarray[Any, Any]
E4M3 = dtypes.parse("e4m3").value_dtype
BF16 = dtypes.parse("bf16")


def normal(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32).astype(E4M3)


def triple(queries: int, keys: int, *, heads: int = 1, kv_heads: int = 1, d: int = 64, dv: int = 0,
           batch: int = 1) -> tuple[Array, Array, Array]:
    return (normal(1, batch, queries, heads, d), normal(2, batch, keys, kv_heads, d),
            normal(3, batch, keys, kv_heads, dv or d))


def judge(got: tuple[Array, Array], want: Result, size: float = 1.0) -> None:
    """Weights are rounded to four bits: outputs are off by at most 2^-4 of what they average."""
    out, lse = got
    empty = np.isneginf(want.lse)
    assert (np.isneginf(lse) == empty).all()
    zeros = np.where(empty, 0.0, lse), np.where(empty, 0.0, want.lse)
    assert np.abs(zeros[0] - zeros[1]).max(initial=0) < 1e-3
    assert (out.swapaxes(1, 2)[empty] == 0).all()
    assert np.abs(out.astype(np.float64) - want.out).max(initial=0) < 0.2 * size


def check(q: Array, k: Array, v: Array, *, rules: Rules | None = None, **given: Any) -> Array:
    """The result, and its LSE, are the oracle's within what is allowed."""
    out, lse = gpukit.attention(q, k, v, return_lse=True, **given)
    want = ref.oracle(q, k, v, rules)
    allowed = ref.bounds(q, k, v, BF16, rules, weights_bits=4)
    assert (np.abs(out.astype(np.float64) - want.out)
            <= allowed.out.atol + allowed.out.rtol * np.abs(want.out)).all()
    judge((out, lse), want)
    return out


@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (129, 1), (1, 257), (130, 161)], ids=str)
def test_lengths(queries: int, keys: int) -> None:
    for mask in ("null", "causal"):
        check(*triple(queries, keys), rules=Rules(mask), mask=mask)


@pytest.mark.parametrize(("mask", "size"), [
    ("chunked_causal", {"chunk": 33}), ("sliding_causal", {"window": 17}),
    ("sliding", {"window": 40})], ids=str)
def test_masks(mask: str, size: dict[str, int]) -> None:
    check(*triple(100, 350), rules=Rules(mask, **size), mask=mask, **size)
    check(*triple(150, 100), rules=Rules(mask, top_left=True, **size), mask=mask, top_left=True,
          **size)


@pytest.mark.parametrize(("d", "dv"), [(16, 8), (96, 160), (128, 128), (256, 256)], ids=str)
def test_head_dimensions(d: int, dv: int) -> None:
    check(*triple(70, 90, d=d, dv=dv), rules=Rules("causal"), mask="causal")


def test_heads_share_keys() -> None:
    check(*triple(70, 90, heads=6, kv_heads=2, batch=2), rules=Rules("causal"), mask="causal")
    check(*triple(5, 90, heads=8), rules=Rules("causal"), mask="causal")


def test_bytes_and_both_output_types() -> None:
    q, k, v = triple(20, 30)
    want = check(q, k, v)
    bytes_ = [x.view(np.uint8) for x in (q, k, v)]
    assert (gpukit.attention(*bytes_, dtype="e4m3") == want).all()
    half = gpukit.attention(*bytes_, dtype="e4m3", out_dtype="float16")
    assert half.dtype == np.float16
    assert np.abs(half.astype(np.float64) - want.astype(np.float64)).max() <= 2**-8
    assert gpukit.attention(q, k, v, out=np.empty_like(half)).tobytes() == half.tobytes()


def test_scales() -> None:
    """Numbers, and factors by sequence and head: those of q by its heads or by those of k."""
    batch, heads, kv_heads = 2, 4, 2
    q, k, v = triple(6, 40, heads=heads, kv_heads=kv_heads, batch=batch)
    rng = np.random.default_rng(5)
    by_q, by_kv = (rng.uniform(0.5, 2, (batch, n)).astype(np.float32) for n in (heads, kv_heads))
    for q_scale, of_q in ((by_q, by_q), (by_kv, by_kv.repeat(heads // kv_heads, axis=1)),
                          (by_q[0], by_q[:1]), (0.5, np.full((1, 1), 0.5))):
        scaled = [x.astype(np.float64) * f[:, None, :, None] for x, f in
                  ((q, of_q), (k, by_kv), (v, np.full((1, 1), 3.0)))]
        got = gpukit.attention(q, k, v, q_scale=q_scale, k_scale=by_kv,
                               v_scale=np.float32([3.0]), return_lse=True)
        judge(got, ref.oracle(*scaled), 3.0)


@pytest.mark.parametrize("factor", [1e-6, 4.0, 30.0, 1000.0])
def test_scores_that_grow_from_block_to_block(factor: float) -> None:
    """Keys are walked from the last one, of the smallest scores, to the first."""
    q, k, v = triple(130, 200)
    k = (k.astype(np.float32) * np.linspace(3, 0.2, 200)[:, None, None]).astype(E4M3)
    got = gpukit.attention(q, k, v, mask="causal", q_scale=factor, return_lse=True)
    judge(got, ref.oracle(q, k, v, Rules("causal", scale=factor / 8)))


@pytest.mark.parametrize("lead", [6.0, 8.0, 10.0])
def test_many_weak_keys_before_a_strong_one_count(lead: float) -> None:
    """All values are one: what weak keys lose beside the strong one, the result lacks."""
    q, k, v = triple(1, 1024)
    q[:], k[:], v[:] = 0, 0, 1
    q[..., 0], k[0, -1, 0, 0] = 1, 16
    out = gpukit.attention(q, k, v, scale=lead / 16)
    assert np.abs(out.astype(np.float64) - 1).max() < 2**-4


def test_a_scale_of_zero_gives_averages() -> None:
    """Of a head that held nothing but zeros, divided by its largest value."""
    q, k, v = triple(3, 200, heads=2)
    zero = np.float32([0, 0.5])
    out, lse = gpukit.attention(q, k, v, q_scale=zero, mask="causal", return_lse=True)
    want = ref.oracle(q * 0.0, k, v, Rules("causal"))
    assert np.abs(out[:, :, 0].astype(np.float64) - want.out[:, :, 0]).max() < 2**-4
    assert np.abs(lse[:, 0] - want.lse[:, 0]).max() < 1e-5


@pytest.mark.parametrize("mask", ["null", "causal"])
def test_ragged(mask: str) -> None:
    q_offsets, kv_offsets = (np.array(x, np.uint32) for x in ((0, 30, 30, 100), (0, 50, 90, 130)))
    q, k, v = normal(1, 100, 2, 64), normal(2, 140, 1, 64), normal(3, 140, 1, 64)
    want = layouts.ragged(q, k[:130], v[:130], list(q_offsets), list(kv_offsets), Rules(mask))
    k[130:] = v[130:] = np.nan
    out, lse = gpukit.attention_ragged(q, k, v, q_offsets, kv_offsets, max_queries=70, mask=mask,
                                       k_scale=np.ones((3, 1), np.float32), return_lse=True)
    judge((out[None], lse[None]), Result(want.out[None], want.lse[None]))


def test_padded() -> None:
    q, k, v = triple(40, 90, batch=3)
    lengths = [0, 33, 90]
    want = layouts.padded(q, k, v, lengths, Rules("causal"))
    for b, n in enumerate(lengths):
        k[b, n:] = v[b, n:] = np.nan
    judge(gpukit.attention(q, k, v, mask="causal", kv_lengths=np.array(lengths, np.uint32),
                           return_lse=True), want)


def test_pages() -> None:
    pages, table = normal(1, 5, 2, 16, 1, 64), np.array([[3, 1, 2147480000]], np.uint32)
    q = normal(2, 1, 9, 1, 64)
    want = layouts.paged(q, pages[:, 0], pages[:, 1], table[:, :2], [20], Rules("causal"))
    pages[1, :, 4:] = np.nan
    judge(gpukit.attention(q, pages[:, 0], pages[:, 1], mask="causal", page_table=table,
                           kv_lengths=np.array([20], np.uint32), return_lse=True), want)


def test_sinks() -> None:
    q, k, v = triple(20, 30, heads=2)
    sinks = np.float32([0.5, 3.0])
    check(q, k, v, rules=Rules(sinks=sinks), sinks=sinks)


def test_views() -> None:
    """Rows apart, at odd addresses and in the other layout: as if they were dense."""
    q, k, v = triple(20, 30, heads=2, kv_heads=2)
    want = gpukit.attention(q, k, v)
    apart = np.full((*k.shape[:3], 80), np.nan, E4M3)
    apart[..., :64] = k
    odd = np.empty(v.size + 1, E4M3)
    odd[1:] = v.ravel()
    got = gpukit.attention(q, apart[..., :64], odd[1:].reshape(v.shape))
    assert got.tobytes() == want.tobytes()
    swapped = [np.ascontiguousarray(x.swapaxes(1, 2)) for x in (q, k, v)]
    assert (gpukit.attention(*swapped, layout="bhsd").swapaxes(1, 2) == want).all()


@pytest.mark.parametrize(("words", "said"), [
    ({"q_scale": -1.0}, "q_scale=-1.0 is not accepted"),
    ({"k_scale": np.ones(3, np.float32)}, r"k_scale has shape \(3,\)"),
    ({"v_scale": np.ones(1)}, "v_scale has dtype float64"),
    ({"out_dtype": "float32"}, "out_dtype='float32' is not accepted"),
    ({"dtype": "e5m2"}, "q has dtype float8_e4m3fn and dtype is 'e5m2'"),
    ({"softcap": 3.0}, "softcap is for float16 and bfloat16"),
    ({"kernel": "k5"}, "kernel='k5' is unknown; accepted: k6")], ids=str)
def test_refusals(words: dict[str, Any], said: str) -> None:
    with pytest.raises(ArgumentError, match=said):
        gpukit.attention(*triple(4, 4), **words)


def test_mixed_operands_are_refused() -> None:
    q, k, v = triple(4, 4)
    with pytest.raises(ArgumentError, match="v has dtype bfloat16; accepted: e4m3"):
        gpukit.attention(q, k, v.astype(BF16.numpy))
    with pytest.raises(ArgumentError, match="dtype is None; accepted: 'e4m3'"):
        gpukit.attention(*(x.view(np.uint8) for x in (q, k, v)))
    with pytest.raises(ArgumentError, match="k_scale is for operands of 8 bits"):
        gpukit.attention(*(x.astype(BF16.numpy) for x in (q, k, v)), k_scale=2.0)


def test_other_gpus_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from gpukit.devices import emulated

    monkeypatch.setattr(emulated, "current", lambda: emulated.get("b200"))
    with pytest.raises(UnsupportedError, match="e4m3 operands need a Hopper GPU"):
        gpukit.attention(*triple(4, 4))
