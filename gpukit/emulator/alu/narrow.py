"""Conversions that pack values: f16x2, bf16x2, and the 8-, 6- and 4-bit formats."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gpukit.emulator.alu.formats import BF16, F16, F32, F64, canonical, quantize, relu, round_to
from gpukit.emulator.instructions import Expr, Modifiers, Unsupported
from gpukit.emulator.ptx.types import TYPES, PtxType


@dataclass(frozen=True, slots=True)
class Format:
    """A small float: mantissa bits, least normal exponent, largest number, NaN code (if any)."""

    mantissa: int
    least: int
    largest: float
    nan: int | None


FORMATS = {
    "e4m3": Format(3, -6, 448.0, 0x7F),
    "e5m2": Format(2, -14, 57344.0, 0x7F),
    "e2m3": Format(3, 0, 7.5, None),
    "e3m2": Format(2, -2, 28.0, None),
    "e2m1": Format(1, 0, 6.0, None),
}
_E2M1_VALUES = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def packed_conversion(modifiers: Modifiers, mode: str, to: PtxType, from_: PtxType) -> Expr:
    """The expression of a cvt whose destination or source is packed."""
    small_to, small_from = to.name[:4], from_.name[:4]
    if to.name in ("f16x2", "bf16x2") and from_.dtype == F32:
        return _pair(modifiers, mode, to)
    if small_to in FORMATS:
        return _encode(modifiers, small_to, to, from_)
    if small_from in FORMATS:
        return _decode(modifiers, small_from, to, from_)
    if to.name == "ue8m0x2":
        return _scale(modifiers, mode, to, from_)
    if from_.name == "ue8m0x2":
        return Expr(lambda a: a.astype(BF16), (from_,), to, category="convert")
    raise Unsupported(f"conversion from {from_} to {to} is not supported")


def _stack(upper: Any, lower: Any, dtype: Any) -> Any:
    """The first operand goes to the upper half."""
    both = np.empty((lower.size, 2), dtype)
    both[:, 0] = lower
    both[:, 1] = upper
    return both


def _pair(modifiers: Modifiers, mode: str, to: PtxType) -> Expr:
    from gpukit.emulator.alu.convert import clamp_finite

    clamp, finite = modifiers.flag("relu"), modifiers.flag("satfinite")
    dtype = to.dtype

    def run(a: Any, b: Any) -> Any:
        nearest = mode == "rn"
        both = _stack(a, b, dtype) if nearest else round_to(_stack(a, b, F64), dtype, mode)
        both = clamp_finite(both) if finite else both
        return canonical(relu(both) if clamp else both)

    return Expr(run, (TYPES["f32"],) * 2, to, category="convert")


def _encode(modifiers: Modifiers, name: str, to: PtxType, from_: PtxType) -> Expr:
    """Two values into a small format; beyond its range the largest number."""
    if not modifiers.flag("satfinite"):
        raise Unsupported("needs .satfinite")
    clamp = modifiers.flag("relu")
    two = from_.pack == 1

    def run(*args: Any) -> Any:
        values = _stack(args[0], args[1], F64) if two else args[0].astype(F64)
        codes = encode(relu(values) if clamp else values, name)
        if name == "e2m1":
            return codes[:, 0] | codes[:, 1] << np.uint8(4)
        return codes.view(to.dtype)

    return Expr(run, (from_,) * (2 if two else 1), to, category="convert")


def encode(values: Any, name: str) -> Any:
    """uint8 codes of binary64 ``values`` in a small format, rounded to nearest even."""
    shape = FORMATS[name]
    y = quantize(values, shape.mantissa, shape.least, "rn")
    y = np.clip(y, -shape.largest, shape.largest)
    fallback = shape.largest if shape.nan is None else 0.0
    y = np.where(values != values, fallback, y)
    if name == "e2m1":
        order = np.argsort(_E2M1_VALUES[:8])
        magnitude = order[np.searchsorted(_E2M1_VALUES[:8], np.abs(y))].astype(np.uint8)
        codes = magnitude | np.signbit(y).astype(np.uint8) << np.uint8(3)
    else:
        codes = y.astype(TYPES[name].dtype if name in TYPES else TYPES[f"{name}x2"].dtype)
        codes = codes.view(np.uint8)
    if shape.nan is not None:
        codes = np.where(values != values, np.uint8(shape.nan), codes)
    return codes


def _decode(modifiers: Modifiers, name: str, to: PtxType, from_: PtxType) -> Expr:
    clamp = modifiers.flag("relu")

    def run(a: Any) -> Any:
        if name == "e2m1":
            result = _stack(_E2M1_VALUES[a >> 4], _E2M1_VALUES[a & 15], to.dtype)
        else:
            result = a.astype(to.dtype)
        return canonical(relu(result) if clamp else result)

    source = TYPES["u8"] if name == "e2m1" else from_
    return Expr(run, (source,), to, category="convert")


def _scale(modifiers: Modifiers, mode: str, to: PtxType, from_: PtxType) -> Expr:
    """Powers of two: the exponent, rounded down (rz) or up (rp)."""
    finite = modifiers.flag("satfinite")
    two = from_.pack == 1

    def run(*args: Any) -> Any:
        values = np.abs(_stack(args[0], args[1], F64) if two else args[0].astype(F64))
        fraction, exponent = np.frexp(values)
        power = exponent - 1 + ((fraction > 0.5) & (mode == "rp"))
        codes = np.clip(np.where(values == 0, 0, power + 127), 0, 254 if finite else 255)
        codes = np.where(np.isinf(values), 254 if finite else 255, codes)
        return np.where(values != values, 255, codes).astype(np.uint8).view(to.dtype)

    return Expr(run, (from_,) * (2 if two else 1), to, category="convert")


__all__ = ["F16", "FORMATS", "Format", "encode", "packed_conversion"]
