"""What IEEE leaves to the hardware: NaN patterns, flushing, saturation and rounding."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

F16, F32, F64 = np.dtype(np.float16), np.dtype(np.float32), np.dtype(np.float64)
BF16 = np.dtype(ml_dtypes.bfloat16)

# The NaN that arithmetic produces, whatever the inputs; binary64 keeps payloads, see keep_nan.
_NAN_BITS = {
    F32: (np.dtype(np.uint32), np.uint32(0x7FFFFFFF)),
    F16: (np.dtype(np.uint16), np.uint16(0x7FFF)),
    BF16: (np.dtype(np.uint16), np.uint16(0x7FFF)),
}
finfo: Any = ml_dtypes.finfo  # untyped there
_TINY = {d: d.type(finfo(d).smallest_normal) for d in (F16, F32, F64, BF16)}
_ZERO = {d: d.type(0) for d in (F16, F32, F64, BF16)}
_ONE = {d: d.type(1) for d in (F16, F32, F64, BF16)}
# Explicit mantissa bits and the smallest normal exponent, e.g. 2**-126.
_SHAPES = {F16: (10, -14), BF16: (7, -126), F32: (23, -126), F64: (52, -1022)}
_BITS64 = np.dtype(np.uint64)
_DEFAULT_NAN64, _QUIET64 = np.uint64(0xFFF8 << 48), np.uint64(1 << 51)


def canonical(r: Any, *inputs: Any) -> Any:
    """``r`` (a fresh array) with every NaN replaced by the hardware's.

    In binary64 that is the last NaN of ``inputs``; without inputs those stay as they are.
    """
    bad = r != r
    if b"\x01" in bad.tobytes():
        found = _NAN_BITS.get(r.dtype)
        if found is not None:
            r.view(found[0])[bad] = found[1]
        elif inputs:
            return keep_nan(r, bad, *inputs)
    return r


def keep_nan(r: Any, bad: Any, *inputs: Any, quiet: bool = True) -> Any:
    """Binary64 ``r`` with the last NaN of ``inputs`` where ``bad``, or the default NaN."""
    mark = _QUIET64 if quiet else np.uint64(0)
    bits = np.where(bad, _DEFAULT_NAN64, r.view(_BITS64))
    for x in inputs:
        bits = np.where(bad & (x != x), x.view(_BITS64) | mark, bits)
    return bits.view(F64)


def converted_nan(a: Any, to: Any, quiet: bool = True) -> Any:
    """The NaN ``a`` in another format: sign and upper payload bits stay, and it becomes quiet."""
    width, mantissa = 8 * to.itemsize, _SHAPES[to][0]
    raw = a.view(f"u{a.dtype.itemsize}").astype(_BITS64)
    sign = raw >> np.uint64(8 * a.dtype.itemsize - 1) << np.uint64(width - 1)
    payload = raw << np.uint64(64 - _SHAPES[a.dtype][0]) >> np.uint64(64 - mantissa)
    exponent = np.uint64((1 << (width - 1)) - (1 << mantissa))
    mark = np.uint64(quiet << (mantissa - 1))
    return (sign | exponent | payload | mark).astype(f"u{to.itemsize}").view(to)


def flush(x: Any) -> Any:
    """``.ftz``: subnormals become zeros of the same sign."""
    small = np.abs(x) < _TINY[x.dtype]
    if b"\x01" in small.tobytes():
        return np.where(small, np.copysign(_ZERO[x.dtype], x), x)
    return x


def saturate(r: Any) -> Any:
    """``.sat``: clamp to [0, 1]; NaN becomes +0."""
    zero, one = _ZERO[r.dtype], _ONE[r.dtype]
    return np.where(r > zero, np.minimum(r, one), zero)


def relu(r: Any) -> Any:
    """``.relu``: clamp below at +0; NaN stays (canonical)."""
    zero = _ZERO[r.dtype]
    return np.where(r <= zero, zero, r)


# Rounding. Exact results come as binary64 "rounded to odd": wherever the true value lies strictly
# between two binary64 numbers, the one with the odd mantissa. A second rounding is then exact.


def to_odd(s: Any, error: Any) -> Any:
    """``s`` (rounded to nearest, off by ``error``) rounded to odd instead."""
    inexact = (error != 0) & np.isfinite(s)
    if b"\x01" not in inexact.tobytes():
        return s
    bits = s.view(np.int64)
    even = bits & 1 == 0
    # Step towards the true value: away from zero if the error has the sign of s.
    step = np.where((error > 0) == (s > 0), 1, -1)
    return np.where(inexact & even, bits + step, bits).view(np.float64)


def two_sum(a: Any, b: Any) -> tuple[Any, Any]:
    """a + b to nearest and its exact error, in binary64."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def odd_sum(a: Any, b: Any) -> Any:
    """a + b of binary64 values, rounded to odd."""
    return to_odd(*two_sum(a, b))


def round_to(x: Any, dtype: Any, mode: str) -> Any:
    """Binary64 ``x`` in a narrower format with rounding ``mode`` rn, rz, rm, rp or rna."""
    if dtype == F64:
        return x
    if mode == "rn" and dtype in (F16, F32):
        return x.astype(dtype)
    mantissa, least = _SHAPES[dtype]
    return limited(quantize(x, mantissa, least, mode), dtype, mode)


_TO_INTEGER: dict[str, Any] = {
    "rn": np.rint, "rni": np.rint, "rz": np.trunc, "rzi": np.trunc, "rm": np.floor,
    "rmi": np.floor, "rp": np.ceil, "rpi": np.ceil,
    "rna": lambda y: np.copysign(np.floor(np.abs(y) + 0.5), y),
}  # fmt: skip


def to_integral(y: Any, mode: str) -> Any:
    """Round to an integral value."""
    return _TO_INTEGER[mode](y)


def quantize(x: Any, mantissa: int, least: int, mode: str) -> Any:
    """``x`` on the grid of a format with ``mantissa`` bits and exponents from ``least`` up.

    Binary64 in and out; overflow is left to the caller, NaN and infinities pass through.
    """
    exponent = np.maximum(np.frexp(x)[1] - 1, least) - mantissa
    on_grid = np.ldexp(to_integral(np.ldexp(x, -exponent), mode), exponent)
    return np.where(np.isfinite(x) & (x != 0), on_grid, x)


def neighbours(x: Any, dtype: Any) -> tuple[Any, Any]:
    """The numbers of a narrower format next to non-negative binary64 ``x``, below and above it.

    They are binary64, on the format's grid but without its upper end.
    """
    mantissa, least = _SHAPES[dtype]
    return quantize(x, mantissa, least, "rz"), quantize(x, mantissa, least, "rp")


def limited(x: Any, dtype: Any, mode: str) -> Any:
    """Values of the grid in ``dtype``; beyond its range infinity or the largest, as IEEE says."""
    largest = float(finfo(dtype).max)
    stays = {"rz": np.ones_like(x, np.bool_), "rm": x > 0, "rp": x < 0}.get(mode)
    if stays is not None:
        x = np.where(np.isfinite(x) & stays, np.clip(x, -largest, largest), x)
    return np.where(np.abs(x) > largest, np.copysign(np.inf, x), x).astype(dtype)
