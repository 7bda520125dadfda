"""mov (also packing and special registers), cvta, isspacep, selp, slct."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpukit.emulator import closures
from gpukit.emulator.instructions import Expr, Mask, Modifiers, Op, Unsupported, alu, op
from gpukit.emulator.mem import windows
from gpukit.emulator.mem.spaces import take_space
from gpukit.emulator.outcomes import YIELD
from gpukit.emulator.ptx.ir import Instr, Operand, Sink, Special, Sym, Vec
from gpukit.emulator.ptx.types import TYPES, PtxType, bits_type
from gpukit.emulator.special import is_constant

if TYPE_CHECKING:
    from gpukit.emulator.assembler import Assembler
    from gpukit.emulator.lanes import Lanes
    from gpukit.emulator.outcomes import Outcome

U32, S64, U64, PRED = TYPES["u32"], TYPES["s64"], TYPES["u64"], TYPES["pred"]


def _same(a: Any) -> Any:
    return a


@op("mov")
def mov(instr: Instr, modifiers: Modifiers, assembler: Assembler) -> Op:
    type_ = modifiers.type()
    target, source = instr.operands
    if isinstance(source, Vec):
        return _pack(target, source, type_, assembler)
    if isinstance(target, Vec):
        return _unpack(target, source, type_, assembler)
    if isinstance(source, Special) and not is_constant(source.name):
        return _clock(target, source, type_, assembler)
    if isinstance(source, Sym) and assembler.is_framed(source):
        return _frame_address(target, source, type_, assembler)
    plain = type_ if type_.kind == "p" or type_.bits == 128 else TYPES[f"u{type_.bits}"]
    return assembler.bind_to([target], [source], Expr(_same, (plain,), plain, category="move"))


def _frame_address(target: Operand, source: Sym, type_: PtxType, assembler: Assembler) -> Op:
    offset = assembler.code.offsets[source.target] + source.offset  # type: ignore[index]
    pointer = assembler.stack_pointer()
    full, masked = closures.single(
        lambda sp: sp + offset, [pointer], assembler.dst(target, TYPES[f"s{type_.bits}"]), False, 1
    )
    return Op("move", full, masked)


def _pack(target: Operand, source: Vec, type_: PtxType, assembler: Assembler) -> Op:
    """``mov.b32 d, {lo, hi}``: write the pieces side by side."""
    count = len(source.items)
    part = bits_type(type_.bits // count)
    pieces = [assembler.src(item, part) for item in source.items]
    into = assembler.dst(target, _split_type(type_, count))

    def full(v: list[Any]) -> None:
        values = [v[piece].copy() for piece in pieces]
        for k, value in enumerate(values):
            v[into][:, k] = value

    def masked(v: list[Any], mask: Mask) -> None:
        values = [v[piece][mask] for piece in pieces]
        for k, value in enumerate(values):
            v[into][mask, k] = value

    return Op("move", full, masked)


def _unpack(target: Vec, source: Operand, type_: PtxType, assembler: Assembler) -> Op:
    """``mov.b32 {lo, hi}, s``"""
    count = len(target.items)
    part = bits_type(type_.bits // count)
    out = assembler.src(source, _split_type(type_, count))
    pieces = [
        (k, assembler.dst(item, part))
        for k, item in enumerate(target.items)
        if not isinstance(item, Sink)
    ]

    def full(v: list[Any]) -> None:
        values = v[out].copy()
        for k, piece in pieces:
            v[piece][...] = values[:, k]

    def masked(v: list[Any], mask: Mask) -> None:
        values = v[out][mask]
        for k, piece in pieces:
            v[piece][mask] = values[:, k]

    return Op("move", full, masked)


def _split_type(type_: PtxType, count: int) -> PtxType:
    """``type_`` seen as ``count`` unsigned pieces."""
    if type_.bits % count or type_.bits // count not in (8, 16, 32, 64):
        raise Unsupported(f"{type_} cannot be made of {count} pieces")
    dtype = TYPES[f"u{type_.bits // count}"].dtype
    return PtxType(f"{type_.name}/{count}", type_.bits, "b", dtype, count)


def _clock(target: Operand, source: Special, type_: PtxType, assembler: Assembler) -> Op:
    """Registers that tick: emulated time is the number of instructions issued.

    Time moves on between turns, so a read ends one: a later read is later.
    """
    name = source.name
    if name not in ("clock", "clock64", "clock_hi", "globaltimer", "globaltimer_lo",
                    "globaltimer_hi"):  # fmt: skip
        raise Unsupported(f"special register %{name} is not known")
    d = assembler.dst(target, TYPES[f"u{type_.bits}"])
    shift = 32 if name.endswith("_hi") else 0
    kept = (1 << type_.bits) - 1

    def run(lanes: Lanes, mask: Mask) -> Outcome:
        now = lanes.wave.scheduler.told_time() >> shift & kept
        lanes.V[d][slice(None) if mask is None else mask] = now
        return YIELD

    return Op("move", handler=run, wide=True)


@op("cvta")
def cvta(instr: Instr, modifiers: Modifiers, assembler: Assembler) -> Op:
    to = modifiers.flag("to")
    base = windows.BASES.get(take_space(modifiers), 0)
    type_ = modifiers.type()
    if type_.bits != 64:
        raise Unsupported("only 64-bit addresses are supported")
    step = np.int64(-base if to else base)
    target, source = instr.operands
    if isinstance(source, Sym) and assembler.is_framed(source):
        raise Unsupported("cvta of a stack variable; move its address to a register first")
    expr = Expr((lambda a: a + step) if base else _same, (S64,), S64, category="move")
    return assembler.bind_to([target], [source], expr)


@alu("isspacep")
def isspacep(modifiers: Modifiers) -> Expr:
    space = take_space(modifiers)
    if space in ("const", "param"):
        raise Unsupported(f"isspacep.{space} is not supported")
    window = {"global": 0, "shared": 1, "local": 2}[space]
    return Expr(lambda a: a >> windows.WINDOW_BITS == window, (S64,), PRED, category="move")


@alu("selp")
def selp(modifiers: Modifiers) -> Expr:
    type_ = modifiers.type()
    plain = TYPES[f"u{type_.bits}"]
    return Expr(lambda a, b, p: np.where(p, a, b), (plain, plain, PRED), plain, category="move")


@alu("slct")
def slct(modifiers: Modifiers) -> Expr:
    ftz = modifiers.flag("ftz")
    type_, by = modifiers.type(), modifiers.type()
    plain = TYPES[f"u{type_.bits}"]

    def run(a: Any, b: Any, c: Any) -> Any:
        negative_zero = ftz & (np.abs(c) < np.finfo(np.float32).tiny) if by.is_float else False
        return np.where((c >= 0) | negative_zero, a, b)

    return Expr(run, (plain, plain, by), plain, category="move")
