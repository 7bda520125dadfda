"""Logic, shifts and bit fields: and, or, lop3, shl, shf, prmt, bfe, bfi, popc, clz, ..."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpukit.emulator.instructions import Expr, Modifiers, Op, Unsupported, alu, op
from gpukit.emulator.ptx.ir import Imm, Instr
from gpukit.emulator.ptx.types import TYPES

if TYPE_CHECKING:
    from gpukit.emulator.assembler import Assembler

U32, S32, U64 = TYPES["u32"], TYPES["s32"], TYPES["u64"]


def _logic(fn: Any, arity: int) -> Any:
    def build(modifiers: Modifiers) -> Expr:
        type_ = modifiers.type()
        return Expr(fn, (type_,) * arity, type_, out=True, category="integer")

    return build


alu("and")(_logic(np.bitwise_and, 2))
alu("or")(_logic(np.bitwise_or, 2))
alu("xor")(_logic(np.bitwise_xor, 2))
alu("not")(_logic(np.invert, 1))


@alu("cnot")
def cnot(modifiers: Modifiers) -> Expr:
    type_ = modifiers.type()
    return Expr(lambda a: a == 0, (type_,), type_)


@op("lop3")
def lop3(instr: Instr, modifiers: Modifiers, assembler: Assembler) -> Op:
    """d = F(a, b, c); with .and/.or also p = (d != 0) op q."""
    combine = modifiers.pick("and", "or", default="")
    type_ = modifiers.type()
    table = instr.operands[4]
    if not isinstance(table, Imm):
        raise Unsupported("lop3 needs an immediate table")
    fn = truth_table(int(table.value))
    sources = list(instr.operands[1:4])
    if not combine:
        return assembler.bind_to([instr.operands[0]], sources, Expr(fn, (type_,) * 3, type_))
    join = np.logical_and if combine == "and" else np.logical_or
    pred = TYPES["pred"]

    def both(a: Any, b: Any, c: Any, q: Any) -> Any:
        value = fn(a, b, c)
        return value, join(value != 0, q)

    first = instr.operands[0]
    targets = [first.first, first.second] if hasattr(first, "second") else [first]
    expr = Expr(both, (type_, type_, type_, pred), type_, extra=(pred,), category="integer")
    return assembler.bind_to(targets, [*sources, instr.operands[5]], expr)


def truth_table(table: int) -> Any:
    """The three-input function whose value for inputs (a, b, c) is bit 4a+2b+c of ``table``."""
    known = _COMMON_TABLES.get(table)
    if known is not None:
        return known

    def run(a: Any, b: Any, c: Any) -> Any:
        result = np.zeros_like(a)
        for row in range(8):
            if table >> row & 1:
                result |= (a if row & 4 else ~a) & (b if row & 2 else ~b) & (c if row & 1 else ~c)
        return result

    return run


_COMMON_TABLES: dict[int, Any] = {
    0x80: lambda a, b, c: a & b & c,
    0xFE: lambda a, b, c: a | b | c,
    0x96: lambda a, b, c: a ^ b ^ c,
    0xF8: lambda a, b, c: a | (b & c),
    0xEA: lambda a, b, c: (a & b) | c,
    0x78: lambda a, b, c: a ^ (b & c),
    0xCA: lambda a, b, c: (a & b) | (~a & c),
    0xE8: lambda a, b, c: (a & b) | (c & (a | b)),
}


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


@op("prmt")
def prmt(instr: Instr, modifiers: Modifiers, assembler: Assembler) -> Op:
    """Pick four bytes out of the eight of (a, b)."""
    mode = modifiers.pick("f4e", "b4e", "rc8", "ecl", "ecr", "rc16", default="")
    modifiers.type()
    selector = instr.operands[3]
    if isinstance(selector, Imm) and not mode:
        fn = _permute_constant(int(selector.value))
        expr = Expr(lambda a, b: fn(a, b), (U32, U32), U32)
        return assembler.bind_to([instr.operands[0]], instr.operands[1:3], expr)
    expr = Expr(lambda a, b, s: permute(a, b, _selectors(s, mode)), (U32, U32, U32), U32)
    return assembler.bind(instr, expr)


def _permute_constant(selector: int) -> Any:
    nibbles = [selector >> (4 * k) & 15 for k in range(4)]
    if any(n & 8 for n in nibbles):
        fixed = [np.uint32(n) for n in nibbles]
        return lambda a, b: permute(a, b, fixed)

    def run(a: Any, b: Any) -> Any:
        four = np.empty((a.size, 4), np.uint8)
        sources = (np.ascontiguousarray(a), np.ascontiguousarray(b))
        pools = [source.view(np.uint8).reshape(-1, 4) for source in sources]
        for k, n in enumerate(nibbles):
            four[:, k] = pools[n >> 2][:, n & 3]
        return four.reshape(-1).view(np.uint32)

    return run


def permute(a: Any, b: Any, selectors: list[Any]) -> Any:
    """Bytes of b:a chosen by ``selectors`` (bit 3: replicate the byte's sign)."""
    both = b.astype(np.uint64) << np.uint64(32) | a
    result = np.zeros(a.shape, np.uint64)
    for k, chosen in enumerate(selectors):
        byte = both >> (8 * (chosen & 7)).astype(np.uint64) & np.uint64(0xFF)
        signs = np.where(byte & np.uint64(0x80), np.uint64(0xFF), np.uint64(0))
        result |= np.where(chosen & 8, signs, byte) << np.uint64(8 * k)
    return result


def _selectors(s: Any, mode: str) -> list[Any]:
    if not mode:
        return [s >> np.uint32(4 * k) & np.uint32(15) for k in range(4)]
    low = s & np.uint32(3)
    if mode == "f4e":
        return [low + np.uint32(k) for k in range(4)]
    if mode == "b4e":
        return [(low - np.uint32(k)) & np.uint32(7) for k in range(4)]
    if mode == "rc8":
        return [low] * 4
    if mode == "ecl":
        return [np.maximum(low, np.uint32(k)) for k in range(4)]
    if mode == "ecr":
        return [np.minimum(low, np.uint32(k)) for k in range(4)]
    return [(low & np.uint32(1)) * np.uint32(2) + np.uint32(k & 1) for k in range(4)]


# Counting and searching


def _count(fn: Any) -> Any:
    def build(modifiers: Modifiers) -> Expr:
        type_ = modifiers.type()
        return Expr(fn, (type_,), U32, category="integer")

    return build


def leading_zeros(a: Any) -> Any:
    """Zero bits above the highest one bit."""
    return a.dtype.itemsize * 8 - 1 - highest(a)


def highest(a: Any) -> Any:
    """Index of the highest one bit, -1 for zero (int64)."""
    high = (a >> a.dtype.type(a.dtype.itemsize * 4)).astype(np.float64)
    low = (a & a.dtype.type((1 << a.dtype.itemsize * 4) - 1)).astype(np.float64)
    top = np.frexp(high)[1] - 1 + a.dtype.itemsize * 4
    return np.where(high > 0, top, np.frexp(low)[1] - 1).astype(np.int64)


alu("popc")(_count(np.bitwise_count))
alu("clz")(_count(leading_zeros))


@alu("bfind")
def bfind(modifiers: Modifiers) -> Expr:
    as_shift = modifiers.flag("shiftamt")
    type_ = modifiers.type()
    unsigned = TYPES[f"u{type_.bits}"].dtype

    def run(a: Any) -> Any:
        if type_.signed:
            a = np.where(a < 0, ~a, a)
        found = highest(a.view(unsigned) if a.dtype != unsigned else a)
        if as_shift:
            found = np.where(found >= 0, type_.bits - 1 - found, -1)
        return found & 0xFFFFFFFF

    return Expr(run, (type_,), U32)


@alu("brev")
def brev(modifiers: Modifiers) -> Expr:
    type_ = modifiers.type()
    return Expr(_reverse, (type_,), type_)


def _reverse(a: Any) -> Any:
    size = a.dtype.itemsize
    octets = np.ascontiguousarray(a).view(np.uint8).reshape(-1, size)[:, ::-1]
    return np.ascontiguousarray(_REVERSED[octets]).view(a.dtype).reshape(-1)


_REVERSED = np.array([int(f"{n:08b}"[::-1], 2) for n in range(256)], np.uint8)


@alu("fns")
def fns(modifiers: Modifiers) -> Expr:
    modifiers.type()
    return Expr(_nth_set, (U32, U32, S32), U32)


def _nth_set(mask: Any, base: Any, offset: Any) -> Any:
    bits = mask[:, None] >> np.arange(32, dtype=np.uint32) & 1
    result = np.full(mask.size, 0xFFFFFFFF, np.int64)
    for i in range(mask.size):
        start, n = int(base[i]), int(offset[i])
        ones = np.flatnonzero(bits[i])
        ahead = ones[ones >= start] if n >= 0 else ones[ones <= start][::-1]
        if n == 0 and start in ones:
            result[i] = start
        elif n != 0 and abs(n) <= ahead.size:
            result[i] = ahead[abs(n) - 1]
    return result

