"""Shifts and bit fields: shl, shr, shf, bfe, bfi, bmsk, szext."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpukit.emulator.instructions import Expr, Modifiers, alu
from gpukit.emulator.ptx.types import TYPES

U32 = TYPES["u32"]

# Shifts: amounts are u32 and clamp at the width.


@alu("shl")
def shl(modifiers: Modifiers) -> Expr:
    type_ = modifiers.type()
    if type_.bits == 32:
        return Expr(np.left_shift, (U32, U32), U32, out=True)
    most = np.uint32(type_.bits)
    return Expr(lambda a, n: a << np.minimum(n, most).astype(a.dtype), (type_, U32), type_)


@alu("shr")
def shr(modifiers: Modifiers) -> Expr:
    type_ = modifiers.type()
    if type_.signed:
        top = np.uint32(type_.bits - 1)
        return Expr(lambda a, n: a >> np.minimum(n, top).astype(a.dtype), (type_, U32), type_)
    if type_.bits == 32:
        return Expr(np.right_shift, (U32, U32), U32, out=True)
    top = np.uint32(type_.bits)
    return Expr(lambda a, n: a >> np.minimum(n, top).astype(a.dtype), (type_, U32), type_)


@alu("shf")
def shf(modifiers: Modifiers) -> Expr:
    left = modifiers.pick("l", "r") == "l"
    wraps = modifiers.pick("wrap", "clamp") == "wrap"
    modifiers.type()

    def run(low: Any, high: Any, amount: Any) -> Any:
        n = (amount & 31 if wraps else np.minimum(amount, 32)).astype(np.uint64)
        both = high.astype(np.uint64) << np.uint64(32) | low
        return (both << n) >> np.uint64(32) if left else both >> n

    return Expr(run, (U32, U32, U32), U32)


# Bit fields


def _field(amount: Any) -> Any:
    return amount & np.uint32(0xFF)


@alu("bfe")
def bfe(modifiers: Modifiers) -> Expr:
    type_ = modifiers.type()
    bits = type_.bits
    unsigned = TYPES[f"u{bits}"].dtype

    def run(a: Any, position: Any, length: Any) -> Any:
        p, n = _field(position), _field(length)
        raw = a.view(unsigned) >> np.minimum(p, bits).astype(unsigned)
        kept = raw & _low_ones(n, bits, unsigned)
        if not type_.signed:
            return kept
        top = np.minimum(p + n - 1, bits - 1)
        sign = (a.view(unsigned) >> top.astype(unsigned)) & unsigned.type(1)
        available = np.minimum(n, np.maximum(bits - p.astype(np.int64), 0))
        fill = ~_low_ones(available, bits, unsigned)
        return np.where((sign == 1) & (n > 0), kept | fill, kept).view(a.dtype)

    return Expr(run, (type_, U32, U32), type_)


def _low_ones(count: Any, bits: int, dtype: Any) -> Any:
    """``count`` one bits from bit 0, all ones from ``bits`` on."""
    full = dtype.type((1 << bits) - 1)
    return ~(full << np.minimum(count, bits).astype(dtype))


@alu("bfi")
def bfi(modifiers: Modifiers) -> Expr:
    type_ = modifiers.type()
    bits, dtype = type_.bits, type_.dtype

    def run(a: Any, b: Any, position: Any, length: Any) -> Any:
        p = np.minimum(_field(position), bits).astype(dtype)
        window = _low_ones(_field(length), bits, dtype) << p
        return (b & ~window) | ((a << p) & window)

    return Expr(run, (type_, type_, U32, U32), type_)


@alu("bmsk")
def bmsk(modifiers: Modifiers) -> Expr:
    wraps = modifiers.pick("wrap", "clamp") == "wrap"
    modifiers.type()

    def run(position: Any, width: Any) -> Any:
        p, n = (position & 31, width & 31) if wraps else (position, width)
        return _low_ones(n, 32, U32.dtype) << np.minimum(p, 32)

    return Expr(run, (U32, U32), U32)


@alu("szext")
def szext(modifiers: Modifiers) -> Expr:
    wraps = modifiers.pick("wrap", "clamp") == "wrap"
    type_ = modifiers.type()

    def run(a: Any, width: Any) -> Any:
        n = (width & 31 if wraps else np.minimum(width, 32)).astype(np.int64)
        kept = a.astype(np.int64) & ((1 << n) - 1)
        if type_.signed:
            kept -= np.where((n > 0) & (kept >> np.maximum(n - 1, 0) & 1 == 1), 1 << n, 0)
        return kept

    return Expr(run, (type_, U32), type_)
