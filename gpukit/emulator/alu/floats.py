"""Float arithmetic with IEEE rounding: add, sub, mul, fma, div, rcp, sqrt, min, max, abs, neg."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gpukit.emulator.alu.exact import directed64, fma64
from gpukit.emulator.alu.formats import (
    BF16,
    F16,
    F32,
    F64,
    canonical,
    flush,
    odd_sum,
    relu,
    round_to,
    saturate,
)
from gpukit.emulator.instructions import Expr, Modifiers, Unsupported, alu
from gpukit.emulator.ptx.types import TYPES, PtxType

Core = Callable[..., Any]
MODES = ("rn", "rz", "rm", "rp")


def finished(core: Core, modifiers: Modifiers) -> Core:
    """``core`` with the modifiers .ftz, .sat and .relu and the hardware's NaN around it."""
    ftz, sat = modifiers.flag("ftz"), modifiers.flag("sat")
    clamp = modifiers.flag("relu")
    steps = [flush] * ftz + [saturate] * sat + [relu] * clamp
    if not steps:
        return core if core is fma32 else lambda *args: canonical(core(*args), *args)

    def run(*args: Any) -> Any:
        result = core(*[flush(a) for a in args] if ftz else args)
        for step in steps:
            result = step(result)
        return canonical(result, *args)

    return run


def arithmetic(kind: str, modifiers: Modifiers, type_: PtxType) -> Expr:
    """add, sub or mul on floats, including packed and mixed-precision forms."""
    mode = modifiers.pick(*MODES, default="rn")
    types = (type_, type_)
    if any(word in TYPES for word in modifiers.words):  # add.f32.bf16 d, a, c
        types = (modifiers.type(), type_)
        core = _rounding(kind, type_.dtype, mode)
        return Expr(finished(lambda a, b: core(a.astype(type_.dtype), b), modifiers), types, type_)
    return Expr(finished(_rounding(kind, type_.dtype, mode), modifiers), types, type_)


_UFUNCS: dict[str, Any] = {"add": np.add, "sub": np.subtract, "mul": np.multiply}


def _rounding(kind: str, dtype: Any, mode: str) -> Core:
    if mode == "rn":
        return _UFUNCS[kind]  # type: ignore[no-any-return]
    if dtype == F64:
        return directed64(kind, mode)  # type: ignore[no-any-return]
    if kind == "mul":
        return lambda a, b: round_to(a.astype(F64) * b.astype(F64), dtype, mode)

    def add(a: Any, b: Any) -> Any:
        x, y = a.astype(F64), b.astype(F64)
        y = -y if kind == "sub" else y
        total = odd_sum(x, y)
        if mode == "rm":
            total = np.where((total == 0) & (np.signbit(x) | np.signbit(y)), -0.0, total)
        return round_to(total, dtype, mode)

    return add


# Fused multiply-add


def fused(modifiers: Modifiers, type_: PtxType) -> Expr:
    """fma and mad on floats."""
    mode = modifiers.pick(*MODES, default="rn")
    types = (type_,) * 3
    core = _fma_core(type_.dtype, mode)
    if any(word in TYPES for word in modifiers.words):  # fma.rn.f32.bf16 d, a, b, c
        narrow, plain = modifiers.type(), core
        types = (narrow, narrow, type_)
        core = lambda a, b, c: plain(a.astype(F32), b.astype(F32), c)  # noqa: E731
    if modifiers.flag("oob"):
        raise Unsupported("fma.oob is not supported")
    return Expr(finished(core, modifiers), types, type_)


def _fma_core(dtype: Any, mode: str) -> Core:
    if dtype == F64:
        return fma64 if mode == "rn" else directed64("fma", mode)
    if dtype == F32 and mode == "rn":
        return fma32
    if dtype == F16 and mode == "rn":
        return _fma16

    def exact(a: Any, b: Any, c: Any) -> Any:
        product, addend = a.astype(F64) * b.astype(F64), c.astype(F64)
        total = odd_sum(product, addend)
        if mode == "rm":
            negative = np.signbit(product) | np.signbit(addend)
            total = np.where((total == 0) & negative, -0.0, total)
        return round_to(total, dtype, mode)

    return exact


def _fma16(a: Any, b: Any, c: Any) -> Any:
    # Products have 22 bits and f16 exponents span 40: binary64 is exact wherever it matters.
    return (a.astype(F64) * b.astype(F64) + c.astype(F64)).astype(F16)


# Constants of no dimension: NumPy is quicker with them than with scalars.
_DROPPED = np.array(0x1FFFFFFF, np.uint64)  # mantissa bits that binary32 does not keep
_HALF_ULP = np.array(0x10000000, np.uint64)
_LEAST = 2.0**-126
_SMALLEST, _ZERO = np.array(_LEAST), np.array(0.0)
_BITS64 = np.dtype(np.uint64)


def fma32(a: Any, b: Any, c: Any) -> Any:
    """a * b + c in binary32 with one rounding and the hardware's NaN.

    The product is exact in binary64; rounding the sum twice can only go wrong where the first
    result lies exactly half way between two binary32 numbers, or is subnormal there.
    """
    total = np.add(np.multiply(a, b, dtype=F64), c)
    tied = (total.view(_BITS64) & _DROPPED) == _HALF_ULP
    size = np.abs(total)
    # argmin is quicker than min, and finds NaN first.
    ordinary = size.item(size.argmin()) >= _LEAST
    if b"\x01" in tied.tobytes() or not (ordinary or _zero_or_normal(size)):
        total = odd_sum(a.astype(F64) * b.astype(F64), c.astype(F64))
    result = total.astype(F32)
    return result if ordinary else canonical(result)


def _zero_or_normal(size: Any) -> bool:
    """Whether no magnitude is subnormal in binary32."""
    return bool((size < _SMALLEST).tobytes() == (size == _ZERO).tobytes())


# Division and roots


@alu("div")
def div(modifiers: Modifiers) -> Expr:
    from gpukit.emulator.alu.integers import quotient

    type_ = modifiers.type()
    if not type_.is_float:
        return Expr(quotient, (type_, type_), type_)
    approximate, full = modifiers.flag("approx"), modifiers.flag("full")
    mode = modifiers.pick(*MODES, default="rn")
    if type_.dtype == F64:  # where both are NaN, the first one's payload stays
        core = _divide64(mode)
        return Expr(lambda a, b: canonical(core(a, b), b, a), (type_, type_), type_)
    core = _divide_roughly if approximate else _divide32("rn" if full else mode, modifiers)
    return Expr(finished(core, modifiers), (type_, type_), type_)


def _divide_roughly(a: Any, b: Any) -> Any:
    """a times the reciprocal of b, which is zero for the largest b."""
    return a / np.where(np.abs(b) > 2.0**126, np.copysign(F32.type(np.inf), b), b)


def _divide32(mode: str, modifiers: Modifiers) -> Core:
    if mode == "rn":
        return np.divide
    ftz = "ftz" in modifiers.words

    # Quotients of 24-bit numbers are never close enough to a binary32 number to be rounded onto it.
    def run(a: Any, b: Any) -> Any:
        exact = a.astype(F64) / b.astype(F64)
        if ftz:  # what is subnormal before rounding is flushed, even if rounding would save it
            exact = np.where(np.abs(exact) < _SMALLEST, np.copysign(0.0, exact), exact)
        return round_to(exact, F32, mode)

    return run


def _divide64(mode: str) -> Core:
    return np.divide if mode == "rn" else directed64("div", mode)


def reciprocal(type_: PtxType, mode: str) -> Core:
    """1 / a, correctly rounded."""
    one = type_.dtype.type(1)
    if mode == "rn":
        return lambda a: one / a
    if type_.dtype == F64:
        return directed64("rcp", mode)  # type: ignore[no-any-return]
    return lambda a: round_to(1.0 / a.astype(F64), F32, mode)


def square_root(type_: PtxType, mode: str) -> Core:
    """Square root, correctly rounded."""
    if mode == "rn":
        return np.sqrt
    if type_.dtype == F64:
        return directed64("sqrt", mode)  # type: ignore[no-any-return]
    return lambda a: round_to(np.sqrt(a.astype(F64)), F32, mode)


# Sign and order


@alu("copysign")
def copysign(modifiers: Modifiers) -> Expr:
    """The sign of a on the magnitude of b."""
    type_ = modifiers.type()
    return Expr(lambda a, b: np.copysign(b, a), (type_, type_), type_)


@alu("testp")
def testp(modifiers: Modifiers) -> Expr:
    test = modifiers.pick("finite", "infinite", "number", "notanumber", "normal", "subnormal")
    type_ = modifiers.type()
    return Expr(_TESTS[test], (type_,), TYPES["pred"], category="float")


def _subnormal(a: Any) -> Any:
    return (a != 0) & (np.abs(a) < np.finfo(a.dtype).tiny)


_TESTS: dict[str, Core] = {
    "finite": np.isfinite,
    "infinite": np.isinf,
    "number": lambda a: a == a,
    "notanumber": lambda a: a != a,
    "normal": lambda a: np.isfinite(a) & ~_subnormal(a),  # zeros are, on hardware
    "subnormal": _subnormal,
}


def sign_bits(modifiers: Modifiers, type_: PtxType, kind: str) -> Expr:
    """abs and neg on floats: only the sign bit changes, but NaN is treated as in arithmetic."""
    ftz = modifiers.flag("ftz")
    bits = np.dtype(f"u{type_.dtype.itemsize}")
    top = bits.type(1 << (8 * bits.itemsize - 1))

    def run(a: Any) -> Any:
        raw = (flush(a) if ftz else a).view(bits)
        return canonical((raw ^ top if kind == "neg" else raw & ~top).view(a.dtype), a)

    return Expr(run, (type_,), type_)


def extremum(modifiers: Modifiers, type_: PtxType, kind: str) -> Expr:
    """min and max on floats: -0 < +0, and a number wins over NaN unless ``.NaN``."""
    propagate = modifiers.flag("NaN")
    xorsign, magnitudes = modifiers.flag("xorsign"), modifiers.flag("abs")
    pick = _pick(kind, type_.dtype, propagate)
    core = _of_magnitudes(pick, xorsign) if magnitudes else pick
    if modifiers.sources == 3:
        return Expr(finished(lambda a, b, c: core(core(a, b), c), modifiers), (type_,) * 3, type_)
    return Expr(finished(core, modifiers), (type_, type_), type_)


def _of_magnitudes(pick: Core, xorsign: bool) -> Core:
    def run(a: Any, b: Any) -> Any:
        size = pick(np.abs(a), np.abs(b))
        negative = np.signbit(a) != np.signbit(b)
        return np.where(negative, -size, size) if xorsign else size

    return run


def _pick(kind: str, dtype: Any, propagate: bool) -> Core:
    bits = np.dtype(f"u{dtype.itemsize}")
    if dtype == BF16:
        ufunc: Any = np.minimum if kind == "min" else np.maximum
    else:
        ufunc = np.fmin if kind == "min" else np.fmax
    join = np.bitwise_or if kind == "min" else np.bitwise_and

    def run(a: Any, b: Any) -> Any:
        tied = join(a.view(bits), b.view(bits)).view(dtype)  # differs from a and b only for zeros
        result = np.where(a == b, tied, ufunc(a, b))
        if propagate:
            return np.where(a != a, a, np.where(b != b, b, result))
        return np.where(a != a, b, np.where(b != b, a, result))

    return run
