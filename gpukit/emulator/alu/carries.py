"""add.cc, addc, sub.cc, subc, mad.cc, madc: arithmetic through the carry flag."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpukit.emulator import closures
from gpukit.emulator.alu.integers import high_product, unsigned_of, with_borrow, with_carry
from gpukit.emulator.instructions import Modifiers, Op, op
from gpukit.emulator.ptx.ir import Instr
from gpukit.emulator.ptx.types import TYPES

if TYPE_CHECKING:
    from gpukit.emulator.assembler import Assembler

_PRED = TYPES["pred"]


@op("add.cc", "addc", "sub.cc", "subc")
def add_with_carry(instr: Instr, modifiers: Modifiers, assembler: Assembler) -> Op:
    uses = instr.name.endswith("c")
    sets = modifiers.flag("cc") or not uses
    fn = with_carry if instr.name.startswith("add") else with_borrow
    return _bind(instr, assembler, modifiers, fn, uses, sets)


@op("mad.lo.cc", "mad.hi.cc", "madc")
def mad_with_carry(instr: Instr, modifiers: Modifiers, assembler: Assembler) -> Op:
    uses = instr.name == "madc"
    sets = modifiers.flag("cc") or not uses
    form = modifiers.pick("lo", "hi", default="hi" if "hi" in instr.mods else "lo")
    signed = any(mod.startswith("s") for mod in instr.mods)

    def run(a: Any, b: Any, c: Any, carry: Any) -> Any:
        if form == "lo":
            return with_carry(a * b, c, carry)
        if signed:
            integer = np.dtype(f"i{a.dtype.itemsize}")
            return with_carry(
                high_product(a.view(integer), b.view(integer)).astype(a.dtype), c, carry
            )
        return with_carry(high_product(a, b).astype(a.dtype), c, carry)

    return _bind(instr, assembler, modifiers, run, uses, sets)


def _bind(
    instr: Instr, assembler: Assembler, modifiers: Modifiers, fn: Any, uses: bool, sets: bool
) -> Op:
    type_ = unsigned_of(modifiers.type())
    first, *sources = instr.operands
    flag = assembler.internal("carry", _PRED)
    args = [assembler.src(source, type_) for source in sources]
    args.append(flag if uses else assembler.constant(False, _PRED))
    dests = [assembler.dst(first, type_)] + ([flag] if sets else [])
    full, masked = closures.several(lambda *a: fn(*a)[: len(dests)], args, dests)
    return Op("integer", full, masked)
