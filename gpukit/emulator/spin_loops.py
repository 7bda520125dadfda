"""Loops that only poll: how often they go round is up to the schedule, so it is not counted.

Such a loop looks at places that stay the same (a strong load, an atomic that changes nothing while
it fails, ``mbarrier.test_wait``), computes, sleeps, and leaves by a branch that depends on what it
saw. Each time round is taken out of the counters again and counted as a poll: what remains is one
look, as if the awaited value had been there at once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from gpukit.emulator.dataflow import read, targets, written
from gpukit.emulator.outcomes import Diverge, Jump, Outcome
from gpukit.emulator.ptx.ir import Imm, Instr, Operand, Reg

if TYPE_CHECKING:
    from gpukit.emulator.assembler import Assembler
    from gpukit.emulator.instructions import Handler, Mask
    from gpukit.emulator.lanes import Lanes
    from gpukit.emulator.mem.spaces import Place

_IDLE = ("nanosleep", "fence", "membar")
_UNCHANGING = ("cas", "exch")  # of failing locks
_NEUTRAL = ("add", "or", "xor")  # with a constant 0


def leaves_memory(kind: str, value: Operand) -> bool:
    """Whether an atomic that is tried again and again changes nothing meanwhile."""
    return kind in _UNCHANGING or (kind in _NEUTRAL and isinstance(value, Imm) and not value.value)


@dataclass(frozen=True, slots=True)
class SpinLoop:
    """Instructions ``head`` to ``tail``, which branches back, and its accesses with their kind.

    ``slept``: it begins with a sleep, because the first look came before the loop.
    """

    head: int
    tail: int
    accesses: tuple[tuple[Place, int], ...]
    slept: bool

    def counted(self, handler: Handler) -> Handler:
        """The branch at the loop's end, which also takes rounds out of the counters."""

        def run(lanes: Lanes, mask: Mask) -> Outcome:
            outcome = handler(lanes, mask)
            if self.slept or outcome.__class__ is Jump:
                self._forget_round(lanes, mask)
            elif isinstance(outcome, Diverge):
                self._forget_round(lanes, outcome.mask)
            return outcome

        return run

    def _forget_round(self, lanes: Lanes, mask: Mask) -> None:
        wave = lanes.wave
        wave.tally.of(lanes, mask).remove(self.head, self.tail + 1)
        for place, kind in self.accesses:
            for access in place.accesses(lanes, mask):
                access.pattern.hits[kind] -= 1
        whole = mask is None
        warps = lanes.width // 32 if whole else np.count_nonzero(mask.reshape(-1, 32).any(axis=1))
        wave.launch.polls += int(warps)


class SpinLoops:
    """Finds the spin loops of a kernel once it is decoded."""

    def __init__(self, assembler: Assembler) -> None:
        self._program = assembler.program
        self._polls: dict[int, tuple[Place, int] | None] = {}

    def add(self, pc: int, place: Place | None, kind: int = 0) -> None:
        """The instruction at ``pc`` polls; ``place`` and ``kind`` of its access, if counted."""
        self._polls[pc] = None if place is None else (place, kind)

    def finish(self) -> None:
        ops, jumps = self._program.ops, self._jumps()
        for tail, heads in jumps.items():
            head = heads[0] if heads and self._program.instrs[tail].name == "bra" else tail + 1
            if head <= tail and self._only_polls(head, tail, jumps):
                handler = ops[tail].handler
                assert handler is not None
                loop = self._loop(head, tail, jumps)
                ops[tail] = replace(ops[tail], handler=loop.counted(handler))

    def _jumps(self) -> dict[int, list[int]]:
        """Where each branch may go."""
        return {
            code.start + number: found
            for code in self._program.codes
            for number, instr in enumerate(code.function.body)
            if (found := targets(code, instr))
        }

    def _loop(self, head: int, tail: int, jumps: dict[int, list[int]]) -> SpinLoop:
        inside = range(head, tail + 1)
        polls = [poll for pc in inside if (poll := self._polls.get(pc)) is not None]
        busy = next(pc for pc in inside if not self._computes(pc))
        before = head - 1
        while before > 0 and self._computes(before):
            before -= 1
        skips = self._program.instrs[max(before, 0)].pred is not None
        slept = busy not in self._polls and skips and jumps.get(before) == [tail + 1]
        return SpinLoop(head, tail, tuple(polls), slept)

    def _only_polls(self, head: int, tail: int, jumps: dict[int, list[int]]) -> bool:
        inside, instrs = range(head, tail + 1), self._program.instrs
        if not all(self._harmless(pc) for pc in inside):
            return False
        into = (to for tos in jumps.values() for to in tos if head < to <= tail)
        return next(into, None) is None and _ends_by_polling(
            [instrs[pc] for pc in inside], [pc in self._polls for pc in inside]
        )

    def _harmless(self, pc: int) -> bool:
        instr = self._program.instrs[pc]
        if pc in self._polls:
            return instr.pred is None
        return self._computes(pc) or instr.name == "bra" or instr.name in _IDLE

    def _computes(self, pc: int) -> bool:
        return self._program.ops[pc].full is not None


def _ends_by_polling(body: list[Instr], polls: list[bool]) -> bool:
    """Whether what is polled decides on a branch, and its address does not change."""
    first: dict[Reg, int] = {}
    for k, instr in enumerate(body):
        for reg in written(instr):
            first.setdefault(reg, k)
    seen: set[Reg] = set()  # depends on what a poll saw
    varying: set[Reg] = set()  # differs from round to round
    decided = False
    for k, (instr, poll) in enumerate(zip(body, polls, strict=True)):
        sources = set(read(instr))
        carried = any(first.get(reg, -1) >= k for reg in sources)
        if poll and (carried or sources & varying):
            return False
        if poll or sources & seen:
            seen.update(written(instr))
        if poll or carried or sources & varying:
            varying.update(written(instr))
        decided |= instr.name == "bra" and instr.pred in seen
    return decided
