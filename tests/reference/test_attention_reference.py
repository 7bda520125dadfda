"""The attention oracle against loops over single pairs, and a bound that honest rounding meets."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from gpukit.dtypes import BF16, F16
from gpukit.reference.attention import Rules, bounds, merge, oracle
from gpukit.reference.attention_layouts import padded, paged, ragged
from gpukit.reference.attention_masks import MASKS, visible
from gpukit.reference.tolerance import scaled_error

rng = np.random.default_rng(5)


def operands(batch: int, sq: int, sk: int, heads: int, kv_heads: int, dim: int = 8,
             dtype: type | np.dtype = np.float64) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    shapes = ((batch, sq, heads, dim), (batch, sk, kv_heads, dim), (batch, sk, kv_heads, dim))
    q, k, v = (rng.standard_normal(shape).astype(dtype) for shape in shapes)
    return q, k, v


def one_by_one(q: np.ndarray, k: np.ndarray, v: np.ndarray, rules: Rules
               ) -> tuple[np.ndarray, np.ndarray]:
    """Attention as the definition reads: a dictionary of seen keys per query."""
    batch, sq, heads, dim = q.shape
    out, lse = np.zeros((batch, sq, heads, v.shape[3])), np.full((batch, heads, sq), -np.inf)
    for b in range(batch):
        for h in range(heads):
            for i in range(sq):
                seen = {}
                for j in range(k.shape[1]):
                    p = i if rules.top_left else i + k.shape[1] - sq
                    if not sees(rules, p, j):
                        continue
                    kv = h // (heads // k.shape[2])
                    s = float(q[b, i, h] @ k[b, j, kv]) * (rules.scale or dim**-0.5)
                    s = rules.softcap * math.tanh(s / rules.softcap) if rules.softcap else s
                    s += 0.0 if rules.bias is None else float(rules.bias[b, h, i, j])
                    s -= 0.0 if rules.alibi is None else float(rules.alibi[h]) * abs(p - j)
                    if rules.relative is not None and 0 <= p - j < rules.relative.shape[3]:
                        s += float(rules.relative[b, i, h, p - j])
                    seen[j] = math.exp(s)
                z = sum(seen.values())
                z += 0.0 if rules.sinks is None else math.exp(float(rules.sinks[h]))
                if z:
                    lse[b, h, i] = math.log(z)
                    out[b, i, h] = sum((w / z * v[b, j, kv] for j, w in seen.items()),
                                       np.zeros(v.shape[3]))
    return out, lse


def sees(rules: Rules, p: int, j: int) -> bool:
    if rules.mask == "null":
        return True
    if rules.mask == "sliding":
        return p - rules.window < j < p + rules.window
    if j > p:
        return False
    if rules.mask == "sliding_causal":
        return j in range(p - rules.window + 1, p + 1)
    return rules.mask == "causal" or j // rules.chunk == p // rules.chunk


@pytest.mark.parametrize("sizes", [(3, 3), (2, 6), (6, 2), (1, 7), (5, 1), (3, 0)])
@pytest.mark.parametrize("top_left", [False, True])
@pytest.mark.parametrize("mask", MASKS)
def test_masks(mask: str, top_left: bool, sizes: tuple[int, int]) -> None:
    q, k, v = operands(2, *sizes, 4, 2)
    rules = Rules(mask=mask, window=2, chunk=3, top_left=top_left)
    got, want = oracle(q, k, v, rules), one_by_one(q, k, v, rules)
    np.testing.assert_allclose(got.out, want[0], atol=1e-12)
    np.testing.assert_allclose(got.lse, want[1], atol=1e-12)


@pytest.mark.parametrize("extra", ["scale", "softcap", "bias", "alibi", "relative", "sinks"])
@pytest.mark.parametrize("mask", ["null", "causal", "sliding_causal"])
def test_extras(mask: str, extra: str) -> None:
    q, k, v = operands(2, 4, 6, 4, 1)
    value = {"scale": 0.3, "softcap": 1.5, "bias": rng.standard_normal((2, 4, 4, 6)),
             "alibi": np.array([0.5, 0.25, 0.1, 1.0]), "sinks": rng.standard_normal(4),
             "relative": rng.standard_normal((2, 4, 4, 3))}[extra]
    rules = replace(Rules(mask=mask, window=3), **{extra: value})
    got, want = oracle(q, k, v, rules), one_by_one(q, k, v, rules)
    np.testing.assert_allclose(got.out, want[0], atol=1e-12)
    np.testing.assert_allclose(got.lse, want[1], atol=1e-12)


def test_a_window_of_one_is_the_query_itself() -> None:
    assert (visible("sliding", 4, 4, window=1) == np.eye(4, dtype=bool)).all()
    assert (visible("sliding_causal", 4, 4, window=1) == np.eye(4, dtype=bool)).all()


def test_rows_that_see_nothing_are_zero() -> None:
    q, k, v = operands(1, 3, 1, 2, 2)
    got = oracle(q, k, v, Rules(mask="causal"))
    assert (got.out[:, :2] == 0).all() and np.isneginf(got.lse[:, :, :2]).all()
    with_sink = oracle(q, k, v, Rules(mask="causal", sinks=np.array([0.5, -1.0])))
    assert (with_sink.out[:, :2] == 0).all()
    np.testing.assert_allclose(with_sink.lse[0, :, 0], [0.5, -1.0])


def test_hidden_values_may_be_anything() -> None:
    q, k, v = operands(1, 1, 6, 2, 1)
    rules = Rules(mask="sliding_causal", window=3)
    want = oracle(q, k, v, rules)
    k[:, :3], v[:, :3] = np.nan, np.nan
    np.testing.assert_array_equal(oracle(q, k, v, rules).out, want.out)


def test_ragged_and_padded_cut_sequences_out() -> None:
    q, k, v = (x[0] for x in operands(1, 7, 9, 4, 2))
    rules = Rules(mask="causal", relative=rng.standard_normal((7, 4, 2)))
    got = ragged(q, k, v, [0, 3, 3, 7], [0, 2, 5, 9], rules)
    alone = oracle(q[None, 3:], k[None, 5:], v[None, 5:],
                   replace(rules, relative=rules.relative[None, 3:]))
    np.testing.assert_array_equal(got.out[3:], alone.out[0])
    np.testing.assert_array_equal(got.lse[:, 3:], alone.lse[0])
    dense = padded(q[None], k[None], v[None], [4], Rules(mask="causal"), [5])
    np.testing.assert_array_equal(
        dense.out[:, :5], oracle(q[None, :5], k[None, :4], v[None, :4], Rules(mask="causal")).out)
    assert (dense.out[:, 5:] == 0).all() and np.isneginf(dense.lse[:, :, 5:]).all()


def test_pages_are_looked_up() -> None:
    q, k, v = operands(2, 1, 8, 4, 2)
    table = np.array([[3, 1, 2147480000], [0, 2, 2147480000]], np.uint32)
    pages = [np.zeros((4, 4, 2, 8)) for _ in "kv"]
    for b in range(2):
        for entry in range(2):
            for store, x in zip(pages, (k, v), strict=True):
                store[table[b, entry]] = x[b, 4 * entry:4 * entry + 4]
    got = paged(q, *pages, table, [7, 8])
    np.testing.assert_array_equal(got.out[0], oracle(q[:1], k[:1, :7], v[:1, :7]).out[0])
    np.testing.assert_array_equal(got.out[1], oracle(q[1:], k[1:], v[1:]).out[0])


def test_merged_parts_are_the_whole() -> None:
    q, k, v = operands(2, 3, 10, 4, 2)
    sinks = rng.standard_normal(4)
    first = oracle(q, k[:, :4], v[:, :4], Rules(sinks=sinks))
    empty = oracle(q, k[:, :0], v[:, :0])
    rest = oracle(q, k[:, 4:], v[:, 4:])
    whole = oracle(q, k, v, Rules(sinks=sinks))
    merged = merge([first.out, empty.out, rest.out], [first.lse, empty.lse, rest.lse])
    np.testing.assert_allclose(merged.out, whole.out, atol=1e-12)
    np.testing.assert_allclose(merged.lse, whole.lse, atol=1e-12)
    nothing = merge([empty.out, empty.out], [empty.lse, empty.lse])
    assert (nothing.out == 0).all() and np.isneginf(nothing.lse).all()


@pytest.mark.parametrize("dtype", [F16, BF16], ids=lambda d: d.name)
@pytest.mark.parametrize("keys", [1, 40, 700])
def test_the_bound_admits_rounded_weights_but_no_missing_key(dtype, keys: int) -> None:
    q, k, v = operands(1, 5, keys, 2, 1, 64, dtype.numpy)
    got, lse = rounded(q, k, v, dtype)
    want, bound = oracle(q, k, v), bounds(q, k, v, dtype)
    assert scaled_error(got, want.out, bound.out) <= 1
    assert scaled_error(lse, want.lse, bound.lse) <= 1
    short = oracle(q, k[:, 1:], v[:, 1:])
    assert scaled_error(short.out, want.out, bound.out) > 1
    assert scaled_error(short.lse, want.lse, bound.lse) > 1


def rounded(q, k, v, dtype) -> tuple[np.ndarray, np.ndarray]:
    """As a kernel does: f32 scores, weights rounded to the operand type, the output at the end."""
    s = np.einsum("bihd,bjkd->bhij", q.astype(np.float32), k.astype(np.float32)) / np.float32(8)
    top = s.max(axis=-1, keepdims=True)
    p = np.exp(s - top)
    z = p.sum(axis=-1, keepdims=True)
    o = np.einsum("bhij,bjd->bhid", p.astype(dtype.numpy).astype(np.float32),
                  v[:, :, 0].astype(np.float32)) / z
    lse = (top + np.log(z))[..., 0].astype(np.float64)
    return o.astype(dtype.numpy).astype(np.float64).swapaxes(1, 2), lse
