"""float64 oracles of the elementwise ops and the error each type is allowed.

Bounds, relative to the exact value:

- f32: 2 ulp for CUDA's library functions (their documented worst case for these ops) and half an
  ulp for the rounding, where an ulp is largest relative to the value: 2^-23. sqrt is correctly
  rounded, so it gets half an ulp.
- f16, bf16: half an ulp for the rounding plus 2^-11 for the cheap functions of
  `cuda_src/common/math.cuh` (tanh.approx is documented at 2^-11 relative; erf adds a fit of 2^-14).
- atol covers results below the smallest normal number: f32 and bf16 results may be flushed to
  zero, f16 results are rounded to multiples of 2^-24.

f32 and bf16 subnormal *inputs* count as zero, as CuPy's -ftz=true makes them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from gpukit.dtypes import DType
from gpukit.reference.tolerance import Array, Bound

_SMALLEST_NORMAL_F32 = 2.0**-126

# f32 results that are one correctly rounded operation.
_ROUNDED_ONCE = ("sqrt", "add_const", "scale", "add", "axpy")

_erf = np.vectorize(math.erf, otypes=[np.float64])

_UNARY: dict[str, Callable[[Array], Array]] = {
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "log": np.log,
    "sin": np.sin,
    "tanh": np.tanh,
    "exp": np.exp,
    "erf": _erf,
}


def oracle(op: str, inputs: Sequence[NDArray[np.generic]], a: float, dtype: DType) -> Array:
    """The exact result, rounded to infinity where `dtype` would overflow.

    Args:
        op: name of an elementwise op; "copy" is exact and has no oracle here.
        inputs: one or two arrays of `dtype`.
        a: scalar operand; rounded to f32, as the kernels receive it.
    """
    with np.errstate(invalid="ignore"):  # casting a signalling NaN
        values = [flush(np.asarray(x).astype(np.float64), dtype) for x in inputs]
    scalar = float(np.float32(a))
    with np.errstate(all="ignore"):
        return overflow(_evaluate(op, values, scalar), dtype)


def _evaluate(op: str, values: list[Array], a: float) -> Array:
    if op in _UNARY:
        return np.asarray(_UNARY[op](values[0]), dtype=np.float64)
    if op == "add_const":
        return values[0] + a
    if op == "scale":
        return values[0] * a
    if op == "add":
        return values[0] + values[1]
    if op == "axpy":
        return a * values[0] + values[1]
    raise ValueError(f"no oracle for op {op!r}")


def flush(values: Array, dtype: DType) -> Array:
    """Subnormal f32 and bf16 values as zeros of their sign; f16 subnormals are kept."""
    if dtype.name == "f16":
        return values
    return np.where(np.abs(values) < _SMALLEST_NORMAL_F32, np.copysign(0.0, values), values)


def overflow(values: Array, dtype: DType) -> Array:
    """Values that round beyond the largest finite number of `dtype`, as infinities."""
    limit = _overflow_threshold(dtype)
    return np.where(np.abs(values) >= limit, np.copysign(np.inf, values), values)


def _overflow_threshold(dtype: DType) -> float:
    """Half an ulp above the largest finite value: where rounding to nearest gives infinity."""
    top = 15 if dtype.name == "f16" else 127
    return 2.0**top * (2.0 - 2.0**-dtype.exact_bits)


def bound(op: str, dtype: DType) -> Bound:
    """The allowed error of one op in one type."""
    if op == "copy":
        return Bound(0.0, 0.0)
    half_ulp = 2.0**-dtype.exact_bits
    if dtype.name == "f32":
        functions = 0.0 if op in _ROUNDED_ONCE else 2 * 2.0**-23
        return Bound(_SMALLEST_NORMAL_F32, half_ulp + functions)
    atol = 2.0**-25 if dtype.name == "f16" else _SMALLEST_NORMAL_F32
    return Bound(atol, half_ulp + 2.0**-11)
