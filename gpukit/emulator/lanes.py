"""The inner loop: a group of lanes that executes in lockstep, with divergence.

A unit (one warp, or a gang of warps) is a list of splits. The lowest runnable pc runs first and
equal pcs merge, which reconverges structured code without post-dominator analysis; a parked split
never blocks its siblings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpukit.emulator.errors import KernelFault
from gpukit.emulator.frames import Frame
from gpukit.emulator.instructions import Mask
from gpukit.emulator.outcomes import (
    Dissolve,
    Diverge,
    Exit,
    Jump,
    Outcome,
    Park,
    Repeat,
    Scatter,
    Yield,
)

if TYPE_CHECKING:
    from gpukit.emulator.spins import Polled
    from gpukit.emulator.wave import Wave

NEVER = 1 << 60
POLLS = 16  # reads of memory that others change, before siblings and other warps get a turn
PATIENCE = 1 << 20  # instructions a split may issue while siblings wait, before they get a turn
SLICE = 512  # instructions between looks at the siblings


def _repeats(outcome: Outcome) -> bool:
    return isinstance(outcome, Park) and outcome.retry


class Split:
    """Lanes of a unit at one pc. ``mask`` is None if these are all lanes of the unit."""

    __slots__ = ("frame", "mask", "park", "pc", "penalty", "polled", "polls", "streak")

    def __init__(self, pc: int, mask: Mask, frame: Frame | None = None) -> None:
        self.pc = pc
        self.mask = mask
        self.frame = frame
        self.park: Park | None = None
        self.penalty = 0  # how often it was sent behind its siblings
        self.polls = 0  # volatile, acquiring or atomic reads since then: a spin waits for others
        self.streak = 0  # instructions since then
        self.polled: tuple[int, Polled] | None = None  # the last of these reads: pc, what it saw

    @property
    def order(self) -> tuple[int, int, int]:
        """Who goes first: fresh splits, deeper calls, lower pcs."""
        return (self.penalty, -self.frame.depth if self.frame else 0, self.pc)


class Lanes:
    """Lanes ``lo`` to ``hi`` of a wave. ``V[i]`` is the row (a view) of the program's slot i."""

    def __init__(self, wave: Wave, lo: int, hi: int, handlers: list[Any]) -> None:
        self.wave = wave
        self.lo, self.hi, self.width = lo, hi, hi - lo
        self.V: list[Any] = []  # made for the first turn: many units never run by themselves
        self.splits: list[Split] = []
        self.current = Split(0, None)
        self.all_ones = b"\x01" * self.width
        self.dissolved = False
        self._yielded = False
        self._spun = 0  # how often splits were sent behind their siblings in this turn
        self._handlers = handlers

    def registers(self, bits: int) -> Any:
        """[row, lane] of the register file of a width; rows as ``Assembler.register_rows``."""
        return self.wave.files[bits][:, self.lo : self.hi]

    # Choosing what runs

    @property
    def runnable(self) -> bool:
        for split in self.splits:  # noqa: SIM110 - any() takes twice as long
            if split.park is None:
                return True
        return False

    def turn(self, quantum: int) -> int:
        """Issue up to about ``quantum`` instructions; returns how many."""
        issued = 0
        self.V = self.V or self.wave.rows(self.lo, self.hi)
        self.dissolved = self._yielded = False
        self._spun = 0
        while issued < quantum and not (self.dissolved or self._yielded):
            split = self._choose()
            if split is None:
                break
            issued += self._run(split, quantum - issued)
        return issued

    def _choose(self) -> Split | None:
        splits = self.splits
        if len(splits) > 1:
            self._merge()
        if len(self.splits) == 1:
            only = self.splits[0]
            only.penalty = 0
            return None if only.park else only
        return min((s for s in splits if s.park is None), key=lambda s: s.order, default=None)

    def _merge(self) -> None:
        """Join runnable splits that stand at the same place."""
        places: dict[tuple[int, Frame | None], Split] = {}
        for split in list(self.splits):
            if split.park is not None:
                continue
            other = places.setdefault((split.pc, split.frame), split)
            if other is not split:
                other.mask = self._whole(other.mask | split.mask)
                other.penalty = min(other.penalty, split.penalty)
                self.splits.remove(split)

    def _whole(self, mask: Any) -> Mask:
        return None if mask.tobytes() == self.all_ones else mask

    def _stop(self, split: Split) -> int:
        """Where the running split meets the next sibling."""
        pcs = [s.pc for s in self.splits if s.park is None and s.pc > split.pc]
        return min(pcs, default=NEVER)

    # Running

    def _run(self, split: Split, budget: int) -> int:
        self.current = split
        alone = len(self.splits) == 1
        stop = NEVER if alone else self._stop(split)
        limit = min(budget, SLICE)
        try:
            issued = self._issue(split, stop, limit, alone)
        except KernelFault as fault:
            fault.locate(self.where(fault.lane))
            raise
        split.streak = 0 if alone else split.streak + issued
        if split.polls >= POLLS or split.streak >= PATIENCE:
            split.penalty += not alone
            split.polls = split.streak = 0
            self._spun += 1
            self._yielded = self._spun >= len(self.splits)  # all of them have had a turn
        return issued

    def _issue(self, split: Split, stop: int, limit: int, alone: bool) -> int:
        program, handlers, v = self.wave.program, self._handlers, self.V
        full, masked, run_end = program.full, program.masked, program.run_end
        pc, mask, issued = split.pc, split.mask, 0
        tally = self.wave.tally.of(self, mask)
        while issued < limit:
            end = run_end[pc]
            if end != pc:
                end = stop if pc < stop < end else end
                if mask is None:
                    for run in full[pc:end]:
                        run(v)
                else:
                    for run in masked[pc:end]:
                        run(v, mask)
                tally.add(pc, end)
                issued += end - pc
                pc = end
                if pc == stop:
                    break
            split.pc = pc
            outcome = handlers[pc](self, mask)
            if outcome is None:
                tally.add(pc, pc + 1)
                issued += 1
                pc += 1
                if pc == stop:
                    break
            elif outcome.__class__ is Jump:
                tally.add(pc, pc + 1)
                issued += 1
                pc = outcome.pc
                if outcome.changes_frame:
                    split.frame = outcome.frame
                if not alone:
                    break
            else:
                return issued + self._apply(split, outcome)
        split.pc = pc
        return issued

    def _apply(self, split: Split, outcome: Outcome) -> int:
        """Carry out any outcome for the lanes of ``split``; returns instructions issued."""
        if isinstance(outcome, Dissolve):
            self.dissolved = True
            return 0
        if isinstance(outcome, Repeat):
            return 0
        self._count(split, outcome)
        self._yielded = isinstance(outcome, Yield)
        if isinstance(outcome, Diverge):
            self._diverge(split, outcome)
        elif isinstance(outcome, Scatter):
            self.splits.remove(split)
            for mask, inner in outcome.groups:
                self._branch_off(split, mask, inner)
        else:
            self._move(split, outcome)
        return 1

    def _count(self, split: Split, outcome: Outcome) -> None:
        """Lanes that will repeat the instruction are counted then, not now."""
        mask = split.mask
        if isinstance(outcome, Diverge) and _repeats(outcome.outcome):
            mask = ~outcome.mask if mask is None else mask & ~outcome.mask
        if not _repeats(outcome):
            self.wave.tally.of(self, mask).add(split.pc, split.pc + 1)

    def _diverge(self, split: Split, outcome: Diverge) -> None:
        rest = ~outcome.mask if split.mask is None else split.mask & ~outcome.mask
        self._branch_off(split, outcome.mask, outcome.outcome)
        split.mask = rest
        split.pc += 1

    def _branch_off(self, split: Split, mask: Any, outcome: Outcome) -> None:
        other = Split(split.pc, self._whole(mask), split.frame)
        other.penalty = split.penalty
        self.splits.append(other)
        self._move(other, outcome)

    def _move(self, split: Split, outcome: Outcome) -> None:
        if isinstance(outcome, Exit):
            self.splits.remove(split)
            self.lanes_ended(split.mask)
        elif isinstance(outcome, Park):
            split.park = outcome
            if not outcome.retry:
                split.pc += 1
            outcome.queue.add(self, split)
            for listener in self.wave.listeners:
                listener.parked(self, split)
        elif isinstance(outcome, Jump):
            split.pc = outcome.pc
            if outcome.changes_frame:
                split.frame = outcome.frame
        else:
            split.pc += 1

    def lanes_ended(self, mask: Mask) -> None:
        """Called when lanes have exited; warps tell their CTA."""

    # Places

    def where(self, lane: int | None = None) -> str:
        """Kernel, source line and position of one lane (the first active one by default)."""
        program, split = self.wave.program, self.current
        if lane is None:
            lane = 0 if split.mask is None else int(split.mask.argmax())
        index = self.lo + lane
        cta = self.wave.cta_of_lane(index)
        warp = (index - cta.first_lane) // 32
        return (
            f"{program.kernel.name}, {program.place(split.pc)}: CTA {cta.position}, "
            f"warp {warp}, lane {index % 32}"
        )
