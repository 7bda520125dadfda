"""The matmul oracle, and a bound that f32 accumulation meets and mistakes do not."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from gpukit.dtypes import BF16, F16, F32, DType
from gpukit.reference.matmul import bound, oracle
from gpukit.reference.tolerance import scaled_error

FLOATS = (F32, F16, BF16)
each_dtype = pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.name)


def operands(dtype: DType, m: int, n: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(11)
    return (rng.standard_normal((m, k)).astype(dtype.numpy),
            rng.standard_normal((k, n)).astype(dtype.numpy))


def accumulate_f32(a: np.ndarray, b: np.ndarray, order: np.ndarray) -> np.ndarray:
    """The product with f32 accumulation, one k at a time, in the given order."""
    a, b = a.astype(np.float32), b.astype(np.float32)
    total = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for k in order:
        total += np.outer(a[:, k], b[k])
    return total


def test_the_oracle_is_the_product() -> None:
    a, b = operands(BF16, 3, 4, 5)
    rows, columns = [[[Fraction(float(v)) for v in vector] for vector in m] for m in (a, b.T)]
    exact = [[float(sum(x * y for x, y in zip(row, column, strict=True))) for column in columns]
             for row in rows]
    np.testing.assert_allclose(oracle(a, b), exact, rtol=1e-14)
    assert oracle(a, b).dtype == np.float64


def test_no_k_gives_zeros() -> None:
    np.testing.assert_array_equal(oracle(np.ones((2, 0), np.float32), np.ones((0, 3), np.float32)),
                                  np.zeros((2, 3)))


def check(got: np.ndarray, a: np.ndarray, b: np.ndarray, dtype: DType) -> float:
    return scaled_error(got.astype(dtype.numpy).astype(np.float64), oracle(a, b),
                        bound(a, b, dtype))


@each_dtype
@pytest.mark.parametrize("k", [1, 7, 128, 1024])
def test_f32_accumulation_in_any_order_is_within_bounds(dtype: DType, k: int) -> None:
    a, b = operands(dtype, 24, 24, k)
    for order in (np.arange(k), np.arange(k)[::-1], np.random.default_rng(1).permutation(k)):
        assert check(accumulate_f32(a, b, order), a, b, dtype) <= 1


@each_dtype
@pytest.mark.parametrize("k", [1, 7, 128, 1024])
def test_a_missing_product_is_out_of_bounds(dtype: DType, k: int) -> None:
    a, b = operands(dtype, 24, 24, k)
    assert check(accumulate_f32(a, b, np.arange(k - 1)), a, b, dtype) > 1


@pytest.mark.parametrize("dtype", [F16, BF16], ids=lambda d: d.name)
def test_accumulating_in_the_narrow_type_is_out_of_bounds(dtype: DType) -> None:
    a, b = operands(dtype, 24, 24, 512)
    total = np.zeros((24, 24), dtype.numpy)
    for k in range(512):
        product = np.outer(a[:, k].astype(np.float32), b[k].astype(np.float32))
        total = (total.astype(np.float32) + product).astype(dtype.numpy)
    assert check(total, a, b, dtype) > 1


def test_two_ulps_of_bf16_in_one_element_are_out_of_bounds() -> None:
    a, b = operands(BF16, 24, 24, 256)
    right = oracle(a, b).astype(np.float32).astype(BF16.numpy)
    assert check(right, a, b, BF16) <= 1
    largest = np.unravel_index(np.argmax(np.abs(oracle(a, b))), right.shape)
    for ulps in (2, -2):
        wrong = right.view(np.int16).copy()
        wrong[largest] += ulps
        assert check(wrong.view(BF16.numpy), a, b, BF16) > 1


@each_dtype
def test_swapped_or_transposed_operands_are_out_of_bounds(dtype: DType) -> None:
    a, b = operands(dtype, 16, 16, 16)
    for wrong in (oracle(b, a), oracle(a.T, b), oracle(a, b.T), oracle(a, b).T):
        assert check(wrong.astype(np.float32), a, b, dtype) > 1
