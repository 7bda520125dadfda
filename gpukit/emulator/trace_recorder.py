"""Records which instructions ran when: stands in for a wave's tally while a launch is traced."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpukit.emulator.instructions import Mask
    from gpukit.emulator.lanes import Lanes
    from gpukit.emulator.program import Program
    from gpukit.emulator.ptx.ir import SourceLine
    from gpukit.emulator.tally import Tally
    from gpukit.emulator.wave import Wave


@dataclass(slots=True)
class Run:
    """Warps ``first`` to ``last`` (of the wave; ``warps`` if not all) ran a line together."""

    first: int
    last: int
    warps: Any
    line: SourceLine | None
    start: int
    end: int

    def continues(self, other: Run) -> bool:
        """Whether the same warps still run the same line."""
        return (
            self.start == other.end
            and self.line == other.line
            and (self.first, self.last) == (other.first, other.last)
            and self.warps is other.warps
        )


class Lines:
    """Per instruction: its line in the kernel's own file, and where the next line begins."""

    def __init__(self, program: Program) -> None:
        own = next((_root(i.source).file for i in program.instrs if i.source), "")
        self.of = [_nearest(instr.source, own) for instr in program.instrs]
        count = len(self.of)
        self.ends = [count] * count
        for pc in range(count - 2, -1, -1):
            self.ends[pc] = self.ends[pc + 1] if self.of[pc] == self.of[pc + 1] else pc + 1


def _root(line: SourceLine) -> SourceLine:
    while line.inlined_at is not None:
        line = line.inlined_at
    return line


def _nearest(line: SourceLine | None, file: str) -> SourceLine | None:
    """The innermost place in a file: where a wrapper of some header was called."""
    place = line
    while place is not None and place.file != file:
        place = place.inlined_at
    return place or line


class Recorder:
    """Passes executions on to the tally and notes them as runs on a clock of its own.

    The clock follows the scheduler's, which only moves between turns.
    """

    def __init__(self, wave: Wave, limit: int, started: Callable[[int, int], None]) -> None:
        self.runs: list[Run] = []
        self.full = False
        self._tally: Tally = wave.tally
        self._events = wave.scheduler.events
        self._limit = limit
        self._started = started
        self._lines = Lines(wave.program)
        self._clock = 0
        self._spans = 0  # what the runs will become

    @property
    def now(self) -> int:
        return max(self._clock, self._events.now)

    def take(self) -> list[Run]:
        """The runs since the last call."""
        runs, self.runs = self.runs, []
        return runs

    def of(self, lanes: Lanes, mask: Mask) -> _Weight:
        """As ``Tally.of``."""
        self._started(lanes.lo // 32, lanes.hi // 32)
        return _Weight(self, self._tally.of(lanes, mask), lanes, mask)

    def note(self, weight: _Weight, start: int, end: int) -> None:
        """These warps issued the instructions from ``start`` to ``end``."""
        first, last = weight.first, weight.last
        time, lines, pc = self.now, self._lines, start
        while pc < end:
            stop = min(end, lines.ends[pc])
            later = time + (stop - pc) * (last - first)
            self._extend(Run(first, last, weight.warps, lines.of[pc], time, later))
            time, pc = later, stop
        self._clock = time

    def _extend(self, run: Run) -> None:
        """Add a run, or make the last one longer if this continues it."""
        if self.runs and run.continues(self.runs[-1]):
            self.runs[-1].end = run.end
        elif self._spans < self._limit:
            self._spans += run.last - run.first
            self.runs.append(run)
        else:
            self.full = True


class _Weight:
    """Stands in for the tally's: counts, and notes when."""

    __slots__ = ("_recorder", "_weight", "first", "last", "warps")

    def __init__(self, recorder: Recorder, weight: Any, lanes: Lanes, mask: Mask) -> None:
        self._recorder, self._weight = recorder, weight
        self.first, self.last = lanes.lo // 32, lanes.hi // 32
        self.warps = None
        if mask is not None and self.last - self.first > 1:
            self.warps = np.logical_or.reduce(mask.reshape(-1, 32), axis=1)

    def add(self, start: int, end: int) -> None:
        self._weight.add(start, end)
        self._recorder.note(self, start, end)

    def remove(self, start: int, end: int) -> None:
        """As that of the tally; it happened all the same."""
        self._weight.remove(start, end)
