"""The Blackwell attention kernels on the emulated B200 against the float64 oracle."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from attention_sm100 import SMALL, Array, check, normal, problem

import gpukit
from gpukit import emulator
from gpukit.devices import emulated
from gpukit.emulator.policies import POLICIES
from gpukit.errors import UnsupportedError
from gpukit.ops.attention import blackwell
from gpukit.reference import attention as ref
from gpukit.reference import attention_layouts as layouts
from gpukit.reference.attention import Result, Rules

NOWHERE = 2147480000  # a page that does not exist
CAUSAL = Rules("causal")


@pytest.fixture(autouse=True)
def b200() -> Iterator[None]:
    """NumPy arrays run on the emulated B200."""
    emulated.get("b200").use()
    yield
    emulated.get().use()


def u32(*values: int) -> Array:
    return np.array(values, np.uint32)


def same(got: tuple[Array, Array], want: Result) -> None:
    out, lse = got
    assert np.abs(out.astype(np.float64) - want.out).max() < 0.03
    empty = np.isneginf(want.lse)
    assert (np.isneginf(lse) == empty).all()
    assert np.abs(np.where(empty, 0, lse) - np.where(empty, 0, want.lse)).max() < 1e-4


def attend(q: Array, k: Array, v: Array, rules: Rules | None = None, **given: Any) -> None:
    same(gpukit.attention(q, k, v, return_lse=True, **given), ref.oracle(q, k, v, rules or Rules()))


def triple(queries: int, keys: int, heads: int = 1, kv_heads: int = 1, d: int = 64, dv: int = 0,
           **given: Any) -> tuple[Array, Array, Array]:
    return (normal(1, 1, queries, heads, d, **given), normal(2, 1, keys, kv_heads, d, **given),
            normal(3, 1, keys, kv_heads, dv or d, **given))


def ran() -> str:
    """Which kernel the last call was, by what it has counted."""
    counters = emulated.current().last_counters
    assert counters is not None
    if "cancel_requests" in counters.extra:
        return "k4"
    return "k3" if "tcgen05.mma" in counters.extra else "k2"


# Results


def test_the_device_chooses() -> None:
    attend(*triple(130, 127), mask="causal", rules=CAUSAL)
    assert ran() == "k4"
    attend(*triple(130, 127), mask="causal", rules=CAUSAL, kernel="k3")
    assert ran() == "k3"


def test_heads_too_wide_for_tensor_memory_fall_back() -> None:
    q, k, v = triple(3, 5, d=136, dv=136)
    attend(q, k, v)
    assert ran() == "k2"
    with pytest.raises(UnsupportedError, match=r"sm100\.k4: heads have 136 columns of q "):
        gpukit.attention(q, k, v, kernel="k4")
    with pytest.raises(UnsupportedError, match="pages need kernel k5 of Hopper, or k4 of Black"):
        gpukit.attention(q, k, v, kv_lengths=u32(5), page_table=u32(0)[None])


@pytest.mark.parametrize("size", [(1, 1), (257, 1), (1, 257)], ids=str)
def test_lengths(size: tuple[int, int]) -> None:
    check(problem(*size, mask="causal"), SMALL, CAUSAL)


def test_sums_are_rescaled_where_maxima_grow() -> None:
    """Scores of standard deviation 8: some weight would pass 2^8 in many blocks."""
    check(problem(260, 300, mask="causal", gain=8), SMALL, CAUSAL)


def test_windows() -> None:
    p = problem(150, 300, mask="sliding", window=40, dtype="f16")
    check(p, SMALL, Rules("sliding", window=40))


@pytest.mark.slow
@pytest.mark.parametrize(("d", "dv"), [
    (8, 8), (80, 80), (96, 40), (128, 128), (192, 128), (65, 63)], ids=str)
@pytest.mark.parametrize("kernel", ["k3", "k4"])
def test_head_dimensions(d: int, dv: int, kernel: str) -> None:
    attend(*triple(70, 90, d=d, dv=dv), rules=CAUSAL, mask="causal", kernel=kernel)
    attend(*triple(300, 200, d=d, dv=dv, dtype="f16"), kernel=kernel)


@pytest.mark.slow
@pytest.mark.parametrize(("mask", "size"), [
    ("chunked_causal", {"chunk": 33}), ("sliding_causal", {"window": 17}),
    ("sliding", {"window": 40}), ("sliding_causal", {"window": 1})], ids=str)
@pytest.mark.parametrize("kernel", ["k3", "k4"])
def test_masks(mask: str, size: dict[str, int], kernel: str) -> None:
    for shape in ((100, 350), (350, 100)):
        attend(*triple(*shape), rules=Rules(mask, **size), mask=mask, **size, kernel=kernel)


def test_heads_share_keys_and_tiles() -> None:
    attend(*triple(5, 140, heads=8, kv_heads=2), rules=CAUSAL, mask="causal")


@pytest.mark.slow
@pytest.mark.parametrize("mask", ["null", "causal"])
def test_ragged(mask: str) -> None:
    """Rows behind a tile's last one belong to another sequence, and stay as they are."""
    q_offsets, kv_offsets = u32(0, 300, 300, 390), u32(0, 150, 190, 290)
    q, k, v = normal(1, 400, 2, 64), normal(2, 320, 1, 64), normal(3, 320, 1, 64)
    k[290:] = v[290:] = np.nan
    out = np.full_like(q, np.nan)
    want = layouts.ragged(q[:390], k[:290], v[:290], list(q_offsets), list(kv_offsets), Rules(mask))
    got, lse = gpukit.attention_ragged(q, k, v, q_offsets, kv_offsets, max_queries=300, mask=mask,
                                       out=out, return_lse=True)
    same((got[:390], lse[:, :390]), want)
    assert np.isnan(got[390:].astype(np.float64)).all()


def test_padded() -> None:
    rows, keys = [40, 0, 33, 1], [130, 5, 20, 0]
    q, k, v = normal(1, 4, 40, 2, 64), normal(2, 4, 130, 2, 64), normal(3, 4, 130, 2, 64)
    want = layouts.padded(q, k, v, keys, CAUSAL, q_lengths=rows)
    for b, (m, n) in enumerate(zip(rows, keys, strict=True)):
        q[b, m:] = k[b, n:] = v[b, n:] = np.nan
    same(gpukit.attention(q, k, v, q_lengths=u32(*rows), kv_lengths=u32(*keys), mask="causal",
                          return_lse=True), want)


@pytest.mark.slow
@pytest.mark.parametrize("page", [1, 16, 128, 256])
def test_pages(page: int) -> None:
    lengths, entries = [0, 33, 140], -(-150 // page)
    count = 3 * entries + 2
    table = np.random.default_rng(page).permutation(count)[:3 * entries].reshape(3, entries)
    table = table.astype(np.uint32)
    q, blocks = normal(1, 3, 20, 2, 64), normal(2, count, 2, page, 1, 64)
    k, v = blocks[:, 0], blocks[:, 1]
    want = layouts.paged(q, k, v, table, lengths, CAUSAL)
    for b, n in enumerate(lengths):
        used = -(-n // page)
        if n % page:
            blocks[table[b, used - 1], :, n % page:] = np.nan
        blocks[table[b, used:]] = np.nan
        table[b, used:] = NOWHERE
    same(gpukit.attention(q, k, v, kv_lengths=u32(*lengths), page_table=table, mask="causal",
                          return_lse=True), want)


@pytest.mark.slow
@pytest.mark.parametrize("terms", [
    {"softcap": 2.0}, {"alibi": np.float32([0.1, 0.4])}, {"bias": normal(7, 1, 2, 150, 160)},
    {"relative": normal(8, 1, 150, 2, 20)}, {"sinks": np.float32([0.5, -3])},
    {"softcap": 4.0, "alibi": np.float32([0.1, 0.4]), "sinks": np.float32([9, 0])}],
    ids=lambda terms: "+".join(terms))
def test_terms(terms: dict[str, Any]) -> None:
    attend(*triple(150, 160, heads=2), rules=Rules("causal", **terms), mask="causal", **terms)


@pytest.mark.slow
@pytest.mark.parametrize("poly", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("slack", [0, 8])
def test_slack_and_polynomials_change_nothing_that_matters(poly: int, slack: int) -> None:
    config = replace(SMALL, poly=poly, slack=slack)
    for dtype in ("bf16", "f16"):
        check(problem(200, 200, mask="causal", gain=4, dtype=dtype), config, CAUSAL)


# Schedules


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("stages", [2, 3, 4])
def test_every_schedule_gives_the_same_bits(policy: str, stages: int,
                                            monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs of different lengths, some without keys, follow each other in few CTAs."""
    run, results = emulator.run, []
    for chosen, seed in (("random", 0), (policy, 1), (policy, 2), (policy, 3)):
        monkeypatch.setattr(emulator, "run", partial(run, policy=chosen, seed=seed))
        p = problem(520, 170, heads=2, mask="causal", gain=8)
        check(p, replace(SMALL, stages=stages, section=2), CAUSAL)
        results.append(p.out.tobytes() + p.lse.tobytes())
    assert len(set(results)) == 1


@pytest.mark.parametrize("policy", POLICIES)
def test_two_jobs_under_every_policy(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emulator, "run", partial(emulator.run, policy=policy))
    check(problem(260, 130, mask="causal", gain=8), SMALL, CAUSAL)


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
def test_rung_3_under_every_policy(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emulator, "run", partial(emulator.run, policy=policy))
    p = problem(150, 300, heads=2, gain=8)
    blackwell.launch_k3(p)
    same((p.out, p.lse), ref.oracle(p.q, p.k, p.v, Rules()))


def test_rung_3_takes_dense_arrays_only() -> None:
    with pytest.raises(UnsupportedError, match=r"sm100\.k3: dense arrays .* only; k4 takes"):
        gpukit.attention(*triple(3, 5), kv_lengths=u32(4), kernel="k3")
