"""Registers that wgmma uses behind the program's back, and who touches them too early.

From issue until ``wgmma.wait_group`` a wgmma owns its accumulator and its A fragment: no other
instruction may touch them. And what other instructions did to them must be fenced off by
``wgmma.fence`` before the next wgmma uses them. Both rules are checked per register and warp.

A plain ``mov`` between registers (or of a constant) stands for no machine instruction: compilers
place it freely around wgmma and the assembler removes it by allocating registers. So a ``mov``
needs no fence, and one from an accumulator in flight takes the value that the wgmma will leave
there.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from gpukit.emulator.instructions import Mask, Op
from gpukit.emulator.mma.register_use import RegisterUse
from gpukit.emulator.mma.warpgroup import warpgroup_of, warps_of
from gpukit.emulator.ptx.ir import Addr, Imm, Instr, Not, Operand, Pair, Reg, Vec
from gpukit.emulator.ptx.types import TYPES

if TYPE_CHECKING:
    from gpukit.emulator.assembler import Assembler
    from gpukit.emulator.lanes import Lanes
    from gpukit.emulator.outcomes import Outcome
    from gpukit.emulator.program import Code
    from gpukit.emulator.wave import Wave


class WgmmaRegisters:
    """Decode time: which 32-bit registers of a kernel wgmma instructions use.

    ``columns`` maps a register row to its column in ``RegisterUse``; registers that values are
    moved to or from are included.
    """

    def __init__(self, assembler: Assembler) -> None:
        self._assembler = assembler
        self.columns: dict[int, int] = {}
        self.names: list[str] = []
        self._own: set[int] = set()  # pcs of the wgmma instructions themselves

    def __call__(self, wave: Wave) -> RegisterUse:
        return RegisterUse(self.names, len(wave.warps))

    def claim(self, operands: Iterable[Operand]) -> Any:
        """Columns (a slice, or an int64 array) of what the instruction being decoded uses."""
        self._own.add(self._assembler.pc)
        code = self._assembler.code
        found = [self._column(code, o) for o in operands if isinstance(o, Reg)]
        first = found[0] if found else 0
        if found == list(range(first, first + len(found))):
            return slice(first, first + len(found))
        return np.array(found, np.int64)

    def _column(self, code: Code, reg: Reg) -> int:
        row = code.rows[32] + reg.index
        if row not in self.columns:
            self.columns[row] = len(self.columns)
            self.names.append(reg.name)
        return self.columns[row]

    def finish(self) -> None:
        """Put a check in front of every other instruction that touches these registers."""
        self._follow_moves()
        program = self._assembler.program
        for code, pc, instr in self._instructions():
            if pc in self._own:
                continue
            touched = [row for row in _rows(code, instr.operands) if row in self.columns]
            if touched:
                program.ops[pc] = self._checked(code, pc, instr, touched)

    def _instructions(self) -> Iterable[tuple[Code, int, Instr]]:
        for code in self._assembler.program.codes:
            for number, instr in enumerate(code.function.body):
                yield code, code.start + number, instr

    def _follow_moves(self) -> None:
        """Include whatever a value is moved to or from, to the end of every chain."""
        moves = [(code, i.operands) for code, _, i in self._instructions() if is_move(i)]
        before = -1
        while before != len(self.columns):
            before = len(self.columns)
            for code, operands in moves:
                pair = [o for o in operands if isinstance(o, Reg)]
                if any(code.rows[32] + reg.index in self.columns for reg in pair):
                    for reg in pair:
                        self._column(code, reg)

    def _checked(self, code: Code, pc: int, instr: Instr, touched: list[int]) -> Op:
        made = self._assembler.program.ops[pc]
        columns = np.array([self.columns[row] for row in touched], np.int64)
        if is_move(instr):
            target, *source = (int(column) for column in columns)
            return _Move(self, made, target, source[0] if source else None, touched).op
        predicate = None
        if instr.pred is not None:
            self._assembler.code = code
            predicate = self._assembler.src(instr.pred, TYPES["pred"]), instr.negated
        return _Touch(self, made, columns, predicate).op


def is_move(instr: Instr) -> bool:
    """An unconditional copy of a 32-bit register or constant."""
    if instr.name != "mov" or instr.pred is not None or len(instr.operands) != 2:
        return False
    target, source = instr.operands
    if not isinstance(target, Reg) or target.type.bits != 32:
        return False
    return isinstance(source, Imm) or (isinstance(source, Reg) and source.type.bits == 32)


def _rows(code: Code, operands: Iterable[Operand]) -> list[int]:
    """32-bit register rows that occur in operands."""
    found: list[int] = []
    for operand in operands:
        if isinstance(operand, Reg) and operand.type.bits == 32:
            found.append(code.rows[32] + operand.index)
        elif isinstance(operand, Vec):
            found += _rows(code, operand.items)
        elif isinstance(operand, Addr):
            found += _rows(code, [operand.base, *([operand.coords] if operand.coords else [])])
        elif isinstance(operand, Pair):
            found += _rows(code, [operand.first, operand.second])
        elif isinstance(operand, Not):
            found += _rows(code, [operand.operand])
    return found


def execute(made: Op, lanes: Lanes, mask: Mask) -> Outcome:
    """Do what an operation does."""
    if made.handler is not None:
        return made.handler(lanes, mask)
    assert made.full is not None
    assert made.masked is not None
    if mask is None:
        made.full(lanes.V)
    else:
        made.masked(lanes.V, mask)
    return None


class _Touch:
    """An ordinary instruction on registers that wgmma uses."""

    def __init__(
        self, registers: WgmmaRegisters, made: Op, columns: Any, predicate: tuple[int, bool] | None
    ) -> None:
        self._registers, self._made = registers, made
        first = int(columns[0])
        self._columns = slice(first, first + 1) if columns.size == 1 else columns
        self._predicate = predicate
        wide = made.wide or made.handler is None
        self.op = Op(made.category, handler=self._run, wide=wide)

    def _run(self, lanes: Lanes, mask: Mask) -> Outcome:
        use = lanes.wave.state(self._registers)
        if mask is None and self._predicate is None:
            use.touch(self._columns, slice(lanes.lo // 32, lanes.hi // 32))
        else:
            for number in self._active_warps(lanes, mask):
                use.touch(self._columns, slice(number, number + 1))
        return execute(self._made, lanes, mask)

    def _active_warps(self, lanes: Lanes, mask: Mask) -> list[int]:
        """Numbers of the warps that really execute it."""
        active = np.ones(lanes.width, np.bool_) if mask is None else mask
        if self._predicate is not None:
            slot, negated = self._predicate
            active = active & (lanes.V[slot] ^ negated)
        first = lanes.lo // 32
        return [first + int(n) for n in np.flatnonzero(active.reshape(-1, 32).any(axis=1))]


class _Move:
    """``mov`` from one such register (or a constant) to another; ``rows`` are target and source."""

    def __init__(
        self, registers: WgmmaRegisters, made: Op, target: int, source: int | None, rows: list[int]
    ) -> None:
        self._registers, self._made = registers, made
        self._target, self._source, self._rows = target, source, rows
        self.op = Op(made.category, handler=self._run, wide=True)

    def _run(self, lanes: Lanes, mask: Mask) -> Outcome:
        use = lanes.wave.state(self._registers)
        first, end = lanes.lo // 32, lanes.hi // 32
        target, source = self._target, self._source
        if any(use.in_flight[first:end]):
            if source is not None and any(use.accumulating(source, w) for w in range(first, end)):
                self._later(use, lanes, mask)
                return None
            use.check_touch(slice(target, target + 1), slice(first, end))
        use.dirty[first:end, target] = False if source is None else use.dirty[first:end, source]
        return execute(self._made, lanes, mask)

    def _later(self, use: RegisterUse, lanes: Lanes, mask: Mask) -> None:
        """The value is not there yet: copy it once the wgmma has put it there."""
        target, source = self._target, self._source
        assert source is not None
        for warp in warps_of(lanes):
            number = warp.lo // 32
            if mask is not None or not use.accumulating(source, number):
                use.check_touch(slice(source, source + 1), slice(number, number + 1))
                continue
            due = max(use.accumulator[number, source], use.accumulator[number, target],
                      use.fragment[number, target])  # fmt: skip
            warpgroup_of(warp).copy_after(int(due), warp, *self._rows)
            use.accumulator[number, target] = due
            use.kind[number, target] = use.kind[number, source]
            use.dirty[number, target] = False
