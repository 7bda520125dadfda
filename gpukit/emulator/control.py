"""Control flow: bra, brx, call, ret, exit, trap, nanosleep."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpukit.emulator import calls
from gpukit.emulator.errors import TrapError
from gpukit.emulator.frames import Frame
from gpukit.emulator.instructions import Mask, Modifiers, Op, Unsupported, op
from gpukit.emulator.lanes import POLLS
from gpukit.emulator.layout import function_address
from gpukit.emulator.outcomes import EXIT, YIELD, Jump, Outcome, Scatter
from gpukit.emulator.program import Code
from gpukit.emulator.ptx.ir import Function, Instr, Label, Operand, Reg, Sym, Vec
from gpukit.emulator.ptx.types import TYPES

if TYPE_CHECKING:
    from gpukit.emulator.assembler import Assembler
    from gpukit.emulator.lanes import Lanes

U32, S64 = TYPES["u32"], TYPES["s64"]
_NOT_COOPERATIVE = (
    "; a grid synchronises in cooperative launches only: cooperative=True, --cooperative"
)


@op("bra")
def bra(instr: Instr, modifiers: Modifiers, assembler: Assembler) -> Op:
    modifiers.drop("uni")
    jump = Jump(assembler.target(instr.operands[0]))
    return Op("branch", handler=lambda lanes, mask: jump, wide=True)


@op("brx.idx")
def brx(instr: Instr, modifiers: Modifiers, assembler: Assembler) -> Op:
    """An indirect jump through a ``.branchtargets`` list."""
    modifiers.drop("uni")
    index = assembler.src(instr.operands[0], U32)
    table = instr.operands[1]
    if not isinstance(table, Label):
        raise Unsupported("brx.idx needs a .branchtargets list")
    jumps = [Jump(assembler.target(label)) for label in table.targets]

    def run(lanes: Lanes, mask: Mask) -> Outcome:
        chosen = lanes.V[index]
        active = chosen if mask is None else chosen[mask]
        values = np.unique(active)
        if values.size == 1:
            return jumps[int(values[0])]
        groups = []
        for value in values:
            taken = chosen == value
            groups.append((taken if mask is None else taken & mask, jumps[int(value)]))
        return Scatter(tuple(groups))

    return Op("branch", handler=run, wide=True)


@op("exit")
def exit_(instr: Instr, modifiers: Modifiers, assembler: Assembler) -> Op:
    return Op("branch", handler=lambda lanes, mask: EXIT, wide=True)


@op("trap", "brkpt")
def trap(instr: Instr, modifiers: Modifiers, assembler: Assembler) -> Op:
    def run(lanes: Lanes, mask: Mask) -> Outcome:
        wave = lanes.wave
        alone = wave.program.reads("envreg1") and not wave.launch.cooperative
        raise TrapError(f"{instr.name} executed{_NOT_COOPERATIVE if alone else ''}")

    return Op("branch", handler=run, wide=True)


@op("nanosleep")
def nanosleep(instr: Instr, modifiers: Modifiers, assembler: Assembler) -> Op:
    modifiers.type()

    def run(lanes: Lanes, mask: Mask) -> Outcome:
        lanes.current.polls += POLLS
        return YIELD

    return Op("branch", handler=run, wide=True)


@op("pmevent")
def pmevent(instr: Instr, modifiers: Modifiers, assembler: Assembler) -> Op:
    modifiers.drop("mask")
    return Op("branch", handler=lambda lanes, mask: None, wide=True)


# Calls


@op("call")
def call(instr: Instr, modifiers: Modifiers, assembler: Assembler) -> Op:
    """``call (ret), f, (args);`` direct, to a system function, or through a pointer."""
    modifiers.drop("uni")
    returns, target, args = _call_parts(instr.operands)
    if isinstance(target, Sym) and isinstance(target.target, Function):
        function = target.target
        if not function.defined:
            return calls.system_call(function.name, returns, args, assembler)
        enter = _Entry(assembler, assembler.code_of(function), returns, args)
        return Op("branch", handler=lambda lanes, mask: enter(lanes, mask), wide=enter.wide)
    if not isinstance(target, Reg):
        raise Unsupported(f"call target {target} is not supported")
    return _indirect(assembler, assembler.src(target, S64), returns, args)


def _call_parts(operands: tuple[Operand, ...]) -> tuple[list[Operand], Operand, list[Operand]]:
    parts = list(operands)
    returns = parts.pop(0) if isinstance(parts[0], Vec) else Vec(())
    target = parts.pop(0)
    args = parts.pop(0) if parts and isinstance(parts[0], Vec) else Vec(())
    return list(returns.items), target, list(args.items)  # type: ignore[union-attr]


class _Entry:
    """Entering one function from one call site."""

    def __init__(
        self, assembler: Assembler, callee: Code, returns: list[Operand], args: list[Operand]
    ) -> None:
        self.caller = assembler.code
        self.callee = callee
        self.return_pc = assembler.pc + 1
        self.pointer = assembler.internal("stack pointer", S64)
        self.wide = not callee.recursive
        # Arguments move between the caller's and the callee's frame, byte for byte.
        self.copy_in = self._pairs(args, callee.function.params)
        self.copy_back = self._pairs(returns, callee.function.returns)

    def _pairs(self, actual: list[Operand], formal: list[Any]) -> tuple[tuple[int, int, int], ...]:
        if len(actual) != len(formal):
            raise Unsupported(f"call passes {len(actual)} values, {len(formal)} are expected")
        pairs = []
        for value, parameter in zip(actual, formal, strict=True):
            passed = isinstance(value, Sym) and value.target in self.caller.offsets
            if not passed or parameter not in self.callee.offsets:
                raise Unsupported("only .param variables can be passed to a function")
            start = self.caller.offsets[value.target]  # type: ignore[union-attr,index]
            pairs.append((start, self.callee.offsets[parameter], parameter.size))
        return tuple(pairs)

    def __call__(self, lanes: Lanes, mask: Mask) -> Jump:
        parent = lanes.current.frame
        may_return_here = self.callee.recursive and self.caller.recursive
        saved = calls.save_registers(lanes, self.caller) if may_return_here else None
        depth = parent.depth + 1 if parent else 1
        frame = Frame(parent, self.return_pc, self.caller, depth, self.copy_back, saved)
        calls.enter(lanes, mask, self.pointer, self.caller, self.callee, self.copy_in)
        return Jump(self.callee.start, frame, changes_frame=True)


def _indirect(assembler: Assembler, target: int, returns: list[Operand], args: list[Operand]) -> Op:
    entries: dict[int, _Entry] = {}
    for code in assembler.program.codes[1:]:
        try:
            entry = _Entry(assembler, code, returns, args)
        except Unsupported:
            continue  # another signature: cannot be meant by this call
        entries[function_address(assembler.module, code.function)] = entry

    def run(lanes: Lanes, mask: Mask) -> Outcome:
        addresses = lanes.V[target]
        active = np.ones(lanes.width, np.bool_) if mask is None else mask
        groups = []
        for address in np.unique(addresses[active]).tolist():
            if address not in entries:
                raise TrapError(f"calls 0x{address:x}, which is no function of this signature")
            chosen = active & (addresses == address)
            groups.append((chosen, entries[address](lanes, chosen)))
        return groups[0][1] if len(groups) == 1 else Scatter(tuple(groups))

    return Op("branch", handler=run)


@op("ret")
def ret(instr: Instr, modifiers: Modifiers, assembler: Assembler) -> Op:
    modifiers.drop("uni")
    if assembler.code.function.is_entry:
        return Op("branch", handler=lambda lanes, mask: EXIT, wide=True)
    pointer = assembler.internal("stack pointer", S64)
    own = assembler.code

    def run(lanes: Lanes, mask: Mask) -> Outcome:
        frame = lanes.current.frame
        assert frame is not None
        calls.leave(lanes, mask, pointer, own, frame)
        return Jump(frame.return_pc, frame.parent, changes_frame=True)

    return Op("branch", handler=run, wide=not own.recursive)
