"""Logic, permutation and counting: and, or, xor, not, lop3, prmt, popc, clz, bfind, brev."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpukit.emulator.instructions import Expr, Modifiers, Op, Unsupported, alu, op
from gpukit.emulator.ptx.ir import Imm, Instr, Pair
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
    targets = [first.first, first.second] if isinstance(first, Pair) else [first]
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
