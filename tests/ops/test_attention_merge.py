"""gpukit.merge_states on the emulated H100."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpukit
from gpukit import dtypes
from gpukit.errors import ArgumentError
from gpukit.reference import attention as ref

Array = np.ndarray[Any, Any]


def states(parts: int, *shape: int, dtype: str = "bf16") -> list[tuple[Array, Array]]:
    rng, kind = np.random.default_rng(0), dtypes.parse(dtype).numpy
    *batch, tokens, heads, _ = shape
    return [(rng.standard_normal(shape).astype(kind),
             rng.normal(0, 3, (*batch, heads, tokens)).astype(np.float32)) for _ in range(parts)]


def check(pairs: list[tuple[Array, Array]], **given: Any) -> None:
    out, lse = gpukit.merge_states(pairs, **given)
    lift = (lambda x: x[None]) if out.ndim == 3 else (lambda x: x)
    want = ref.merge([lift(o) for o, _ in pairs], [lift(x) for _, x in pairs])
    dtype = dtypes.of(out.dtype)
    assert dtype is not None
    unit = 2.0 ** -dtype.exact_bits
    assert np.abs(lift(out).astype(np.float64) - want.out).max() <= 4 * unit * 1.01
    finite = np.isfinite(want.lse)
    assert (np.isneginf(lift(lse)) == ~finite).all()
    assert np.abs(lift(lse)[finite] - want.lse[finite]).max(initial=0) < 1e-5


@pytest.mark.parametrize("parts", [1, 2, 3, 8])
def test_parts(parts: int) -> None:
    check(states(parts, 2, 5, 3, 16))


def test_columns_dtypes_and_ragged_rows() -> None:
    check(states(2, 1, 3, 2, 7, dtype="f16"))
    check(states(3, 9, 2, 24, dtype="f16"))


def test_empty_states_count_for_nothing() -> None:
    pairs = states(3, 1, 4, 2, 8)
    for i, (out, lse) in enumerate(pairs):
        lse[0, 0, 1] = -np.inf  # no part saw a key
        out[0, 1, 0] = np.nan
        if i == 1:
            lse[0, 1, 2] = -np.inf
            out[0, 2, 1] = np.nan  # what an empty part holds is not looked at
    out, lse = gpukit.merge_states(pairs)
    assert (out[0, 1, 0] == 0).all()
    assert np.isneginf(lse[0, 0, 1])
    check(pairs)


@pytest.mark.parametrize("broken", [np.nan, np.inf])
def test_a_broken_state_is_not_hidden(broken: float) -> None:
    pairs = states(3, 1, 4, 2, 8)
    pairs[1][1][0, 1, 2] = broken
    out, lse = gpukit.merge_states(pairs)
    assert np.isnan(out[0, 2, 1]).all() and np.isnan(lse[0, 1, 2])
    assert np.isnan(out).sum() == 8 and np.isnan(lse).sum() == 1


def test_merging_is_attention_over_all_keys() -> None:
    rng = np.random.default_rng(5)
    kind = dtypes.parse("f16").numpy
    q, k, v = (rng.standard_normal((1, n, 2, 64)).astype(kind) for n in (20, 70, 70))
    parts = [gpukit.attention(q, k[:, a:b], v[:, a:b], return_lse=True)
             for a, b in ((0, 33), (33, 70))]
    out, lse = gpukit.merge_states(parts)
    want = ref.oracle(q, k, v)
    assert np.abs(out.astype(np.float64) - want.out).max() < 2e-3
    assert np.abs(lse - want.lse).max() < 1e-4


def test_out_may_be_a_state() -> None:
    pairs = states(2, 1, 3, 2, 8)
    want = gpukit.merge_states(pairs, return_lse=False)
    got = gpukit.merge_states(pairs, out=pairs[1][0], return_lse=False)
    assert got is pairs[1][0]
    assert got.tobytes() == want.tobytes()


def test_nothing_to_merge() -> None:
    out, lse = gpukit.merge_states(states(2, 1, 0, 2, 8))
    assert out.shape == (1, 0, 2, 8)
    assert lse.shape == (1, 2, 0)


@pytest.mark.parametrize(("change", "message"), [
    (lambda s: [], "states has 0 entries; accepted: 1 to 8 pairs"),
    (lambda s: s * 5, "states has 10 entries"),
    (lambda s: [s[0], (s[1][0][:, :2], s[1][1])], r"states\[1\]\[0\] has shape \(1, 2, 2, 8\)"),
    (lambda s: [(s[0][0], s[0][1][0])], r"states\[0\]\[1\] has shape"),
    (lambda s: [(s[0][0], None)], r"states\[0\]\[1\] is None"),
    (lambda s: [(s[0][0].swapaxes(1, 2), s[0][1])], r"states\[0\]\[0\] is not C-contiguous"),
    (lambda s: [(s[0][0].astype(np.float32), s[0][1])], r"states\[0\]\[0\] has dtype float32"),
], ids=lambda value: value if isinstance(value, str) else "")
def test_refusals(change: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        gpukit.merge_states(change(states(2, 1, 3, 2, 8)))
