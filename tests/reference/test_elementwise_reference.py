"""The elementwise oracles against SciPy and exact arithmetic, and bounds that catch mistakes."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import special

from gpukit import dtypes
from gpukit.dtypes import BF16, F16, F32, DType
from gpukit.kernels.elementwise import BINARY, UNARY
from gpukit.reference.elementwise import bound, flush, oracle, overflow
from gpukit.reference.tolerance import scaled_error

FLOATS = (F32, F16, BF16)
MATH = ("sqrt", "rsqrt", "log", "sin", "tanh", "exp", "erf")
INDEPENDENT = {
    "sqrt": np.emath.sqrt,
    "rsqrt": lambda x: x**-0.5,
    "log": lambda x: special.xlogy(1.0, x),
    "sin": lambda x: np.imag(np.exp(1j * x)),
    "tanh": lambda x: 1 - 2 / (special.expm1(2 * x) + 2),
    "exp": lambda x: special.expm1(x) + 1,
    "erf": special.erf,
}


def values(dtype: DType, n: int = 5000) -> np.ndarray:
    """Positive values between 2^-6 and 2^3."""
    rng = np.random.default_rng(3)
    return np.exp2(rng.uniform(-6, 3, n)).astype(dtype.numpy)


def test_every_op_has_an_oracle() -> None:
    for op in {*UNARY, *BINARY} - {"copy"}:
        inputs = [np.ones(3, np.float32)] * (2 if op in BINARY else 1)
        assert oracle(op, inputs, 1.0, F32).shape == (3,)
    with pytest.raises(ValueError, match="no oracle for op 'cos'"):
        oracle("cos", [np.ones(3, np.float32)], 0.0, F32)


@pytest.mark.parametrize("op", MATH)
def test_functions_agree_with_another_way_to_compute_them(op: str) -> None:
    x = values(F32)
    want = INDEPENDENT[op](x.astype(np.float64))
    np.testing.assert_allclose(oracle(op, [x], 0.0, F32), want, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.name)
def test_arithmetic_is_exact(dtype: DType) -> None:
    x, y = values(dtype, 50), -values(dtype, 50)[::-1]
    a = Fraction(float(np.float32(1.7)))
    exact = [(Fraction(float(p)), Fraction(float(q))) for p, q in zip(x, y, strict=True)]
    for op, want in {"add_const": [p + a for p, _ in exact], "scale": [p * a for p, _ in exact],
                     "add": [p + q for p, q in exact], "axpy": [a * p + q for p, q in exact]
                     }.items():
        got = oracle(op, [x, y] if op in BINARY else [x], 1.7, dtype)
        np.testing.assert_allclose(got, [float(w) for w in want], rtol=1e-14, atol=1e-15)


def test_the_scalar_is_rounded_to_f32_as_kernels_receive_it() -> None:
    assert oracle("scale", [np.ones(1, np.float32)], 0.1, F32)[0] == float(np.float32(0.1))


@pytest.mark.parametrize("op", MATH)
def test_special_inputs(op: str) -> None:
    inf, nan = math.inf, math.nan
    want = {"sqrt": [0, inf, nan, nan], "rsqrt": [inf, 0, nan, nan], "log": [-inf, inf, nan, nan],
            "sin": [0, nan, nan, nan], "tanh": [0, 1, -1, nan], "exp": [1, inf, 0, nan],
            "erf": [0, 1, -1, nan]}
    x = np.array([0, inf, -inf, nan], np.float32)
    np.testing.assert_array_equal(oracle(op, [x], 0.0, F32), want[op])


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.name)
def test_overflow_is_where_rounding_to_nearest_gives_infinity(dtype: DType) -> None:
    top = 15 if dtype is F16 else 127
    largest = (2 - 2.0 ** (1 - dtype.exact_bits)) * 2.0**top
    half_ulp = 2.0 ** (top - dtype.exact_bits)
    # ml_dtypes narrows float64 by way of f32, where only an f32 neighbour stays below the tie.
    kind = np.float64 if dtype is F32 else np.float32
    inside = float(np.nextafter(kind(largest + half_ulp), kind(0)))
    values = np.array([largest, inside, largest + half_ulp, -inside, -largest - half_ulp])
    np.testing.assert_array_equal(overflow(values, dtype),
                                  [largest, inside, math.inf, -inside, -math.inf])
    with np.errstate(over="ignore"):
        rounded = values.astype(np.float32 if dtype is F32 else dtype.numpy).astype(np.float64)
    np.testing.assert_array_equal(np.isinf(rounded), np.isinf(overflow(values, dtype)))


@pytest.mark.parametrize("dtype", [F32, BF16], ids=lambda d: d.name)
def test_subnormal_inputs_count_as_signed_zero(dtype: DType) -> None:
    tiny = np.array([2.0**-127, -(2.0**-127), 2.0**-126])
    np.testing.assert_array_equal(flush(tiny, dtype), [0.0, 0.0, 2.0**-126])
    assert np.signbit(flush(tiny, dtype)).tolist() == [False, True, False]
    assert oracle("rsqrt", [tiny.astype(dtype.numpy)], 0.0, dtype)[0] == math.inf


def test_f16_subnormals_are_kept() -> None:
    tiny = np.array([2.0**-24], np.float16)
    assert oracle("scale", [tiny], 2.0, F16)[0] == 2.0**-23


def rounded(exact: np.ndarray, dtype: DType) -> np.ndarray:
    return exact.astype(np.float32).astype(dtype.numpy).astype(np.float64)


def with_error(exact: np.ndarray, dtype: DType, ulps: int) -> np.ndarray:
    """The correctly rounded result with one element moved by whole ulps of its type."""
    bits = exact.astype(np.float32).astype(dtype.numpy).view(f"i{dtype.itemsize}")
    bits[len(bits) // 2] += ulps
    return bits.view(dtype.numpy).astype(np.float64)


OPS = [*MATH, "add_const", "scale"]


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.name)
def test_a_correctly_rounded_result_is_within_bounds(op: str, dtype: DType) -> None:
    exact = oracle(op, [values(dtype)], 1.7, dtype)
    assert scaled_error(rounded(exact, dtype), exact, bound(op, dtype)) <= 1


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize(("dtype", "ulps"), [(BF16, 2), (BF16, -2), (F16, 4), (F32, 8)],
                         ids=lambda v: getattr(v, "name", str(v)))
def test_one_element_a_few_ulps_off_is_out_of_bounds(op: str, dtype: DType, ulps: int) -> None:
    exact = oracle(op, [values(dtype)], 1.7, dtype)
    assert scaled_error(with_error(exact, dtype, ulps), exact, bound(op, dtype)) > 1


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.name)
def test_neighbouring_functions_are_told_apart(dtype: DType) -> None:
    """The kernel of another op, or the wrong input, is never within bounds."""
    x = values(dtype)
    for op in MATH:
        exact = oracle(op, [x], 0.0, dtype)
        for other in set(MATH) - {op}:
            wrong = rounded(oracle(other, [x], 0.0, dtype), dtype)
            assert scaled_error(wrong, exact, bound(op, dtype)) > 1, (op, other)
        assert scaled_error(np.zeros(x.shape), exact, bound(op, dtype)) > 1


def test_copy_is_exact() -> None:
    assert str(bound("copy", dtypes.F32)) == "exact"
