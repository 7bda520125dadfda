"""Integer arithmetic: add, sub, mul, mad, div, rem, min, max, abs, neg, sad, dp4a, carries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gpukit.emulator.instructions import Expr, Modifiers, Unsupported, alu
from gpukit.emulator.ptx.types import TYPES, PtxType

Binary = Callable[[Any, Any], Any]
U32, S32 = TYPES["u32"], TYPES["s32"]


def doubled(type_: PtxType) -> PtxType:
    """The integer type of twice the width."""
    return TYPES[f"{type_.kind}{type_.bits * 2}"]


def saturating(fn: Binary, type_: PtxType) -> Binary:
    """``fn`` in 64 bits, clamped to the range of a 32-bit type."""
    info = np.iinfo(type_.dtype)

    def run(a: Any, b: Any) -> Any:
        exact = fn(a.astype(np.int64), b.astype(np.int64))
        return np.clip(exact, info.min, info.max)

    return run


def add_sub(modifiers: Modifiers, type_: PtxType, fn: Any) -> Expr:
    """Integer add or sub, plain or saturating."""
    if modifiers.flag("sat"):
        return Expr(saturating(fn, type_), (type_, type_), type_)
    return Expr(fn, (type_, type_), type_, out=True)


# Products


def high_product(a: Any, b: Any) -> Any:
    """Upper half of a product."""
    bits = a.dtype.itemsize * 8
    if bits == 64:
        return _high64(a, b)
    wide = np.dtype(f"{a.dtype.kind}{bits // 4}")
    return (a.astype(wide) * b.astype(wide)) >> wide.type(bits)


def _high64(a: Any, b: Any) -> Any:
    x, y = a.view(np.uint64), b.view(np.uint64)
    half, low = np.uint64(32), np.uint64(0xFFFFFFFF)
    xl, xh, yl, yh = x & low, x >> half, y & low, y >> half
    middle = xh * yl + ((xl * yl) >> half)
    cross = xl * yh + (middle & low)
    high = xh * yh + (middle >> half) + (cross >> half)
    if a.dtype.kind == "i":  # two's complement: subtract the other factor for each sign bit
        high = high - np.where(a < 0, y, 0).astype(np.uint64)
        high = (high - np.where(b < 0, x, 0).astype(np.uint64)).view(np.int64)
    return high


def wide_product(a: Any, b: Any) -> Any:
    """The full product, in twice the width."""
    wide = np.dtype(f"{a.dtype.kind}{a.dtype.itemsize * 2}")
    return a.astype(wide) * b.astype(wide)


def multiply(modifiers: Modifiers, type_: PtxType) -> Expr:
    """mul for integers."""
    form = modifiers.pick("lo", "hi", "wide", default="lo")
    if form == "lo":
        return Expr(np.multiply, (type_, type_), type_, out=True)
    if form == "hi":
        return Expr(high_product, (type_, type_), type_)
    return Expr(wide_product, (type_, type_), doubled(type_))


def multiply_add(modifiers: Modifiers, type_: PtxType) -> Expr:
    """mad for integers."""
    form = modifiers.pick("lo", "hi", "wide", default="lo")
    if form == "wide":
        wide = doubled(type_)
        return Expr(lambda a, b, c: wide_product(a, b) + c, (type_, type_, wide), wide)
    if form == "lo":
        return Expr(lambda a, b, c: a * b + c, (type_, type_, type_), type_)
    if modifiers.flag("sat"):
        total = saturating(np.add, type_)
        return Expr(lambda a, b, c: total(high_product(a, b), c), (type_,) * 3, type_)
    return Expr(lambda a, b, c: high_product(a, b) + c, (type_,) * 3, type_)


@alu("mul24")
def mul24(modifiers: Modifiers) -> Expr:
    form, type_ = modifiers.pick("lo", "hi"), modifiers.type()
    return Expr(lambda a, b: _product24(a, b, form), (type_, type_), type_)


@alu("mad24")
def mad24(modifiers: Modifiers) -> Expr:
    form, type_ = modifiers.pick("lo", "hi"), modifiers.type()
    total: Binary = saturating(np.add, type_) if modifiers.flag("sat") else np.add
    return Expr(lambda a, b, c: total(_product24(a, b, form), c), (type_,) * 3, type_)


def _product24(a: Any, b: Any, form: str) -> Any:
    wide = np.dtype(f"{a.dtype.kind}8")
    x, y = ((v.astype(wide) << wide.type(40)) >> wide.type(40) for v in (a, b))
    return ((x * y) >> wide.type(16 if form == "hi" else 0)).astype(a.dtype)


# Quotients


def quotient(a: Any, b: Any) -> Any:
    """Division towards zero; x / 0 gives all ones, as the hardware's routine does."""
    return _where_divisible(a, b, _truncated(a, _divisor(b)))


def remainder(a: Any, b: Any) -> Any:
    """The rest, with the sign of ``a``; all ones after a division by zero."""
    divisor = _divisor(b)
    return _where_divisible(a, b, a - _truncated(a, divisor) * divisor)


def _divisor(b: Any) -> Any:
    return np.where(b == 0, b.dtype.type(1), b)


def _where_divisible(a: Any, b: Any, result: Any) -> Any:
    return np.where(b == 0, ~a.dtype.type(0), result)


def _truncated(a: Any, b: Any) -> Any:
    if a.dtype.kind == "u":
        return a // b
    unsigned = np.dtype(f"u{a.dtype.itemsize}")
    magnitude = (np.abs(a).view(unsigned) // np.abs(b).view(unsigned)).astype(a.dtype)
    return np.where((a < 0) != (b < 0), -magnitude, magnitude)


@alu("rem")
def rem(modifiers: Modifiers) -> Expr:
    type_ = modifiers.type()
    return Expr(remainder, (type_, type_), type_)


# Small things


def negated(type_: PtxType) -> Expr:
    return Expr(lambda a: (0 - a).astype(a.dtype), (type_,), type_)


def minimum_maximum(modifiers: Modifiers, type_: PtxType, fn: Any) -> Expr:
    """Integer min or max, also packed and with ``.relu``."""
    if modifiers.flag("relu"):
        return Expr(lambda a, b: np.maximum(fn(a, b), 0), (type_, type_), type_)
    return Expr(fn, (type_, type_), type_, out=type_.pack == 1)


@alu("sad")
def sad(modifiers: Modifiers) -> Expr:
    type_ = modifiers.type()
    return Expr(
        lambda a, b, c: c + np.where(a < b, b - a, a - b).astype(a.dtype), (type_,) * 3, type_
    )


@alu("dp4a")
def dp4a(modifiers: Modifiers) -> Expr:
    a_type, b_type = modifiers.type(), modifiers.type()
    result = S32 if a_type.signed or b_type.signed else U32
    fours = (TYPES["s8x4" if t.signed else "u8x4"] for t in (a_type, b_type))
    return Expr(_dot, (*fours, result), result, category="integer")


def _dot(a: Any, b: Any, c: Any) -> Any:
    return c + (a.astype(np.int32) * b.astype(np.int32)).sum(axis=1, dtype=np.int64).astype(c.dtype)


@alu("dp2a")
def dp2a(modifiers: Modifiers) -> Expr:
    half, a_type, b_type = modifiers.pick("lo", "hi"), modifiers.type(), modifiers.type()
    result = S32 if a_type.signed or b_type.signed else U32
    pair = slice(0, 2) if half == "lo" else slice(2, 4)
    return Expr(
        lambda a, b, c: _dot(a, b[:, pair], c),
        (TYPES["s16x2" if a_type.signed else "u16x2"],
         TYPES["s8x4" if b_type.signed else "u8x4"], result),
        result,
    )  # fmt: skip


# Extended precision: the carry flag is a hidden predicate register, see carries.py.


def with_carry(a: Any, b: Any, carry: Any) -> tuple[Any, Any]:
    """a + b + carry and the carry out, unsigned."""
    partial = a + b
    total = partial + carry.astype(a.dtype)
    return total, (partial < a) | (total < partial)


def with_borrow(a: Any, b: Any, borrow: Any) -> tuple[Any, Any]:
    """a - b - borrow and the borrow out, unsigned."""
    partial = a - b
    total = partial - borrow.astype(a.dtype)
    return total, (a < b) | (partial < borrow)


def unsigned_of(type_: PtxType) -> PtxType:
    if not type_.is_int:
        raise Unsupported(f"type {type_} has no carry")
    return TYPES[f"u{type_.bits}"]
