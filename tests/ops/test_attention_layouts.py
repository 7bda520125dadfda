"""Ragged, padded and paged attention, and what is done to scores; NaN wherever nobody may look."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpukit
from gpukit import dtypes
from gpukit.reference import attention as ref
from gpukit.reference import attention_layouts as layouts
from gpukit.reference.attention import Result, Rules

Array = np.ndarray[Any, Any]
NOWHERE = 2147480000  # a page that does not exist


def normal(seed: int, *shape: int) -> Array:
    kind = dtypes.parse("bf16").numpy
    return np.random.default_rng(seed).standard_normal(shape).astype(kind)


def u32(*values: int) -> Array:
    return np.array(values, np.uint32)


def same(got: tuple[Array, Array], want: Result) -> None:
    out, lse = got
    assert np.abs(out.astype(np.float64) - want.out).max() < 0.03
    empty = np.isneginf(want.lse)
    assert (np.isneginf(lse) == empty).all()
    assert np.abs(np.where(empty, 0, lse) - np.where(empty, 0, want.lse)).max() < 1e-4


@pytest.mark.parametrize("kernel", ["k2", "k5"])
@pytest.mark.parametrize("mask", ["null", "causal"])
def test_ragged(mask: str, kernel: str) -> None:
    q_offsets, kv_offsets = u32(0, 30, 30, 100), u32(0, 50, 90, 130)
    q, k, v = normal(1, 100, 2, 64), normal(2, 160, 1, 64), normal(3, 160, 1, 64)
    k[130:] = v[130:] = np.nan
    want = layouts.ragged(q, k[:130], v[:130], list(q_offsets), list(kv_offsets), Rules(mask))
    got = gpukit.attention_ragged(q, k, v, q_offsets, kv_offsets, max_queries=70, mask=mask,
                                  return_lse=True, kernel=kernel)
    same(got, want)


def test_ragged_sequences_without_rows_or_keys() -> None:
    offsets, none = u32(0, 0, 20, 20), u32(0, 5, 5, 9)
    q, k, v = normal(1, 20, 2, 64), normal(2, 9, 1, 64), normal(3, 9, 1, 64)
    want = layouts.ragged(q, k, v, list(offsets), list(none))
    assert (want.out == 0).all()
    same(gpukit.attention_ragged(q, k, v, offsets, none, max_queries=20, return_lse=True), want)


@pytest.mark.parametrize("kernel", ["k2", "k5"])
def test_padded(kernel: str) -> None:
    lengths = [0, 33, 128, 1]
    q, k, v = normal(1, 4, 40, 2, 64), normal(2, 4, 130, 2, 64), normal(3, 4, 130, 2, 64)
    want = layouts.padded(q, k, v, lengths, Rules("causal"))
    for b, n in enumerate(lengths):
        k[b, n:] = v[b, n:] = np.nan
    same(gpukit.attention(q, k, v, kv_lengths=u32(*lengths), mask="causal", return_lse=True,
                          kernel=kernel), want)


@pytest.mark.parametrize("kernel", ["k2", "k5"])
@pytest.mark.parametrize("mask", ["null", "causal"])
def test_padded_queries(mask: str, kernel: str) -> None:
    rows, keys = [40, 0, 33, 1], [130, 5, 20, 0]
    q, k, v = normal(1, 4, 40, 2, 64), normal(2, 4, 130, 2, 64), normal(3, 4, 130, 2, 64)
    want = layouts.padded(q, k, v, keys, Rules(mask), q_lengths=rows)
    for b, (m, n) in enumerate(zip(rows, keys, strict=True)):
        q[b, m:] = k[b, n:] = v[b, n:] = np.nan
    out = np.full((4, 40, 2, 65), np.nan, q.dtype)[..., :64]  # rows that are written by a copy
    same(gpukit.attention(q, k, v, q_lengths=u32(*rows), kv_lengths=u32(*keys), mask=mask, out=out,
                          return_lse=True, kernel=kernel), want)


@pytest.mark.parametrize("page", [1, 16, 32, 64, 128, 256])
def test_pages(page: int) -> None:
    lengths, entries = [0, 33, 140], -(-150 // page)
    rng = np.random.default_rng(page)
    count = 3 * entries + 2
    table = rng.permutation(count)[:3 * entries].reshape(3, entries).astype(np.uint32)
    q, blocks = normal(1, 3, 20, 2, 64), normal(2, count, 2, 2, page, 1, 64)
    k, v = blocks[:, 0, 1], blocks[:, 1, 1]  # of the second of two layers
    want = layouts.paged(q, k, v, table, lengths, Rules("causal"))
    blocks[:, :, 0] = np.nan
    for b, n in enumerate(lengths):
        used = -(-n // page)
        if n % page:
            blocks[table[b, used - 1], :, :, n % page:] = np.nan
        blocks[table[b, used:]] = np.nan
        table[b, used:] = NOWHERE
    same(gpukit.attention(q, k, v, kv_lengths=u32(*lengths), page_table=table, mask="causal",
                          return_lse=True), want)


@pytest.mark.parametrize("kernel", ["k2", "k5"])
@pytest.mark.parametrize("terms", [
    {"softcap": 2.0}, {"alibi": np.float32([0.1, 0.4])},
    {"alibi": np.float32([[0.1, 0.4], [0, 1]])}, {"bias": normal(7, 2, 2, 50, 60)},
    {"bias": normal(7, 2, 50, 60)}, {"relative": normal(8, 2, 50, 2, 20)},
    {"sinks": np.float32([0.5, -3])},
    {"softcap": 4.0, "alibi": np.float32([0.1, 0.4]), "sinks": np.float32([9, 0])},
], ids=lambda terms: "+".join(f"{name}{np.ndim(x) or ''}" for name, x in terms.items()))
def test_terms(terms: dict[str, Any], kernel: str) -> None:
    q, k, v = normal(1, 2, 50, 2, 64), normal(2, 2, 60, 1, 64), normal(3, 2, 60, 1, 64)
    rules = dict(terms)
    if np.ndim(rules.get("bias")) == 3:
        rules["bias"] = rules["bias"][:, None]
    want = ref.oracle(q, k, v, Rules("causal", **rules))
    same(gpukit.attention(q, k, v, mask="causal", return_lse=True, kernel=kernel, **terms), want)


def test_sinks_where_there_is_no_key() -> None:
    q, k = normal(1, 1, 3, 2, 64), normal(2, 1, 1, 2, 64)
    sinks = np.float32([1.5, -2])
    out, lse = gpukit.attention(q, k, k, mask="causal", sinks=sinks, return_lse=True)
    assert (out[0, :2] == 0).all()  # queries before the only key
    np.testing.assert_allclose(lse[0, :, 0], sinks, rtol=1e-6)


def test_very_negative_scores_are_not_masked_ones() -> None:
    q, k = normal(1, 1, 4, 1, 64), np.zeros((1, 3, 1, 64), dtypes.parse("bf16").numpy)
    v = normal(3, 1, 3, 1, 64)
    bias = np.full((1, 4, 3), -9e8, dtypes.parse("bf16").numpy)
    bias[0, :, 1] = -8e8
    out = gpukit.attention(q, k, v, bias=bias)
    np.testing.assert_array_equal(out[0, :, 0], np.repeat(v[0, 1:2, 0], 4, axis=0))


def test_infinite_bias_hides_keys() -> None:
    q, k, v = (normal(i, 1, 4, 1, 64) for i in range(3))
    bias = np.zeros((1, 4, 4), dtypes.parse("bf16").numpy)
    bias[0, 2] = -np.inf
    out, lse = gpukit.attention(q, k, v, bias=bias, return_lse=True)
    assert (out[0, 2] == 0).all()
    assert np.isneginf(lse[0, 0, 2])
    same((out, lse), ref.oracle(q, k, v, Rules(bias=bias[:, None])))
