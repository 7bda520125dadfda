"""gpukit.attention on the emulated H100 against the float64 oracle."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpukit
from gpukit import dtypes
from gpukit.ops.attention.run import KERNELS
from gpukit.reference import attention as ref
from gpukit.reference.attention import Rules
from gpukit.reference.tolerance import scaled_error

Array = np.ndarray[Any, Any]


def normal(seed: int, *shape: int, dtype: str = "bf16") -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtypes.parse(dtype).numpy)


def triple(queries: int, keys: int, *, heads: int = 1, kv_heads: int = 1, d: int = 64, dv: int = 0,
           batch: int = 1, dtype: str = "bf16") -> tuple[Array, Array, Array]:
    return (normal(1, batch, queries, heads, d, dtype=dtype),
            normal(2, batch, keys, kv_heads, d, dtype=dtype),
            normal(3, batch, keys, kv_heads, dv or d, dtype=dtype))


def check(q: Array, k: Array, v: Array, *, rules: Rules | None = None, **given: Any) -> Array:
    """The result, and its LSE, are the oracle's within what is allowed."""
    out, lse = gpukit.attention(q, k, v, return_lse=True, **given)
    rules = rules or Rules()
    want = ref.oracle(q, k, v, rules)
    dtype = dtypes.of(q.dtype)
    assert dtype is not None
    allowed = ref.bounds(q, k, v, dtype, rules)
    assert scaled_error(out.astype(np.float64), want.out, allowed.out) <= 1
    empty = np.isneginf(want.lse)
    assert (np.isneginf(lse) == empty).all()
    assert scaled_error(np.where(empty, 0, lse), np.where(empty, 0, want.lse), allowed.lse) <= 1
    assert (out.swapaxes(1, 2)[empty] == 0).all()
    return out


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (129, 1), (1, 257), (130, 127)], ids=str)
def test_lengths(queries: int, keys: int, kernel: str) -> None:
    for mask in ("null", "causal"):
        check(*triple(queries, keys), rules=Rules(mask), mask=mask, kernel=kernel)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(("mask", "size"), [
    ("chunked_causal", {"chunk": 33}), ("sliding_causal", {"window": 17}),
    ("sliding", {"window": 40}), ("sliding_causal", {"window": 1})], ids=str)
def test_masks(mask: str, size: dict[str, int], kernel: str) -> None:
    check(*triple(100, 150), rules=Rules(mask, **size), mask=mask, **size, kernel=kernel)
    check(*triple(150, 100), rules=Rules(mask, **size), mask=mask, **size, kernel=kernel)


@pytest.mark.parametrize(("d", "dv"), [(8, 8), (80, 80), (96, 40), (128, 128), (192, 128),
                                       (256, 256), (65, 63)], ids=str)
def test_head_dimensions(d: int, dv: int) -> None:
    check(*triple(70, 90, d=d, dv=dv), rules=Rules("causal"), mask="causal")


def test_heads_share_keys() -> None:
    check(*triple(70, 90, heads=6, kv_heads=2, batch=2), rules=Rules("causal"), mask="causal")
    check(*triple(5, 90, heads=8, kv_heads=1, dtype="f16"), rules=Rules("causal"), mask="causal")


def test_layout_bhsd() -> None:
    q, k, v = triple(70, 90, heads=4, kv_heads=2)
    want = gpukit.attention(q, k, v)
    views = [np.ascontiguousarray(x.swapaxes(1, 2)) for x in (q, k, v)]
    got = gpukit.attention(*views, layout="bhsd")
    assert got.tobytes() == np.ascontiguousarray(want.swapaxes(1, 2)).tobytes()


@pytest.mark.parametrize(("d", "dv"), [(128, 128), (192, 128), (192, 192), (256, 256)], ids=str)
def test_an_even_number_of_tiles_share_keys(d: int, dv: int) -> None:
    check(*triple(200, 90, d=d, dv=dv))
