"""Which registers an instruction reads and writes, and which of them decide what a loop does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from gpukit.emulator.ptx.ir import Addr, Instr, Label, Not, Operand, Pair, Reg, Vec

if TYPE_CHECKING:
    from gpukit.emulator.program import Code, Program

_WRITE_NOTHING = ("bra", "nanosleep", "fence", "membar")
_CARRYING = ("addc", "subc", "madc")
_GO_NOWHERE = ("exit", "trap", "brkpt", "ret")


def registers(operands: Iterable[Operand | None]) -> Iterator[Reg]:
    """Those that occur in operands."""
    for operand in operands:
        if isinstance(operand, Reg):
            yield operand
        elif isinstance(operand, Vec):
            yield from registers(operand.items)
        elif isinstance(operand, Addr):
            yield from registers((operand.base, operand.coords))
        elif isinstance(operand, Pair):
            yield from registers((operand.first, operand.second))
        elif isinstance(operand, Not):
            yield from registers((operand.operand,))


def written(instr: Instr) -> list[Reg]:
    """Destinations of an instruction that computes or loads."""
    if instr.name in _WRITE_NOTHING:
        return []
    return list(registers(instr.operands[:1]))


def read(instr: Instr) -> list[Reg]:
    """Sources of an instruction that computes or loads; a predicated one keeps what it had."""
    found = list(registers(instr.operands[1:]))
    return found if instr.pred is None else [*found, instr.pred, *written(instr)]


def targets(code: Code, instr: Instr) -> list[int]:
    """Where a branch of a function may go."""
    labels = [operand for operand in instr.operands if isinstance(operand, Label)]
    labels += [inner for label in labels for inner in label.targets]
    return [code.start + label.pc for label in labels if label.pc >= 0]


class Relevance:
    """The registers on which depends what a loop does next: all but mere counters of its rounds.

    A loop is all instructions that can be reached from one of its instructions and lead back there.
    Relevant is what its branches, predicates, memory accesses and the like use, and what that is
    computed from in the loop. Rows are those of ``Wave.files``, by register width.
    """

    def __init__(self, program: Program) -> None:
        self._program = program
        self._rows: dict[int, dict[int, Any]] = {}  # by pc; all pcs of a loop share the rows
        self._next = self._successors()
        self._previous: dict[int, list[int]] = {}
        for pc, following in self._next.items():
            for other in following:
                self._previous.setdefault(other, []).append(pc)

    def rows(self, pc: int) -> dict[int, Any]:
        """Int64 arrays of the rows that matter to the loop around ``pc``, by register width."""
        if pc not in self._rows:
            loop = _reachable(pc, self._next) & _reachable(pc, self._previous) | {pc}
            made = self._relevant(loop)
            self._rows.update(dict.fromkeys(loop, made))
        return self._rows[pc]

    def _successors(self) -> dict[int, list[int]]:
        program, found = self._program, {}
        calls = [pc for pc, instr in enumerate(program.instrs) if instr.name == "call"]
        for code in program.codes:
            for number in range(len(code.function.body) + 1):
                pc = code.start + number
                found[pc] = self._following(pc, code, calls)
        return found

    def _following(self, pc: int, code: Code, calls: list[int]) -> list[int]:
        instr = self._program.instrs[pc]
        following = targets(code, instr)
        if instr.name == "call":
            following += [other.start for other in self._program.codes[1:]]
        elif instr.name == "ret" and not code.function.is_entry:
            following += [call + 1 for call in calls]
        leaves = instr.name in _GO_NOWHERE or instr.name in ("bra", "brx")
        return following if leaves and instr.pred is None else [*following, pc + 1]

    def _relevant(self, loop: set[int]) -> dict[int, Any]:
        program = self._program
        computing = [pc for pc in loop if self._computes(pc)]
        relevant = {program.instrs[pc].pred for pc in loop}
        for pc in loop - set(computing):
            relevant.update(registers(program.instrs[pc].operands))
        instrs = [program.instrs[pc] for pc in computing]
        size = -1
        while size != len(relevant):
            size = len(relevant)
            for instr in instrs:
                if not relevant.isdisjoint(written(instr)):
                    relevant.update(read(instr))
        return self._as_rows({reg for reg in relevant if reg is not None}, loop)

    def _computes(self, pc: int) -> bool:
        """Whether all that an instruction does is in its operands (a carry is not)."""
        instr = self._program.instrs[pc]
        return self._program.ops[pc].full is not None and not (
            "cc" in instr.mods or instr.name in _CARRYING
        )

    def _as_rows(self, relevant: set[Reg], loop: set[int]) -> dict[int, Any]:
        """Rows of the registers in each function that has a part in the loop; hidden ones too."""
        rows: dict[int, set[int]] = {}
        for bits, count in self._program.register_rows.items():
            named = (_range(code, bits) for code in self._program.codes)
            rows[bits] = set(range(count)).difference(*named)
        for code in self._program.codes:
            end = code.start + len(code.function.body)
            if any(code.start <= pc <= end for pc in loop):
                for reg in relevant:
                    bits = reg.type.bits
                    if reg.index < code.function.register_counts.get(bits, 0):
                        rows[bits].add(code.rows[bits] + reg.index)
        return {bits: np.array(sorted(found), np.int64) for bits, found in rows.items()}


def _range(code: Code, bits: int) -> range:
    first = code.rows.get(bits, 0)
    return range(first, first + code.function.register_counts.get(bits, 0))


def _reachable(start: int, edges: dict[int, list[int]]) -> set[int]:
    found, waiting = set(), [start]
    while waiting:
        for pc in edges.get(waiting.pop(), ()):
            if pc not in found:
                found.add(pc)
                waiting.append(pc)
    return found
