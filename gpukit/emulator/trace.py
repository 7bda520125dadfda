"""A trace of one launch for Perfetto: who ran, who waited for what, and what was in flight.

Time is warp instructions issued. Warps that run in lockstep share the time of all of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpukit.emulator.check.listener import Listener
from gpukit.emulator.errors import LaunchError
from gpukit.emulator.inputs import integer, items
from gpukit.emulator.source_text import SourceText
from gpukit.emulator.trace_recorder import Recorder, Run

if TYPE_CHECKING:
    from gpukit.emulator.check.async_ops import AsyncOp
    from gpukit.emulator.lanes import Lanes, Split
    from gpukit.emulator.ptx.ir import SourceLine
    from gpukit.emulator.wave import Wave

Position = tuple[int, int, int]
_STORES = ("tma_store", "tma_reduce", "bulk_store", "bulk_reduce")
_LOADS = ("tma_load", "bulk_load")


def engine_of(kind: str) -> str:
    """The track of asynchronous operations of a kind (``AsyncOp.kind``)."""
    if kind in _LOADS:
        return "TMA loads"
    if kind in _STORES:
        return "TMA stores"
    if "mma" in kind:
        return "MMA"
    return "TMEM" if kind.startswith("tcgen05") else kind


@dataclass(frozen=True, slots=True)
class Span:
    """What lasted from ``start`` to ``end``, in warp instructions issued.

    ``cta`` is a position in the grid, ``track`` "warp 3" or an engine ("TMA loads", "TMA stores",
    "MMA", "cp_async", ...), ``category`` "run", "wait" or "async".
    """

    cta: Position
    track: str
    category: str
    name: str
    start: int
    end: int
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class _Wait:
    split: Split
    warp: int  # of the wave
    reason: str
    place: str
    start: int


class Trace(Listener):
    """Give it to ``emulator.run(..., listeners=[trace])``, then ``write`` a file.

    ``limit`` bounds how many spans are kept; ``complete`` is False if it was reached. ``folders``
    are where the source files lie, so that spans can show their text. A launch that faults leaves
    what happened until then.
    """

    def __init__(self, limit: int = 1_000_000, folders: Sequence[str | Path] = ()) -> None:
        self._limit = integer("limit", limit, 1)
        self._text = SourceText(items("folders", folders, (str, Path), "paths of folders"))
        self._spans: list[Span] = []
        self._wave: Wave | None = None
        self._recorder: Recorder | None = None
        self._waits: dict[int, list[_Wait]] = {}  # warp of the wave -> its splits that are parked
        self._flights: dict[AsyncOp, int] = {}  # when they were issued
        self._parts: dict[tuple[Position, int], int] = {}  # wgmmas of each warp
        self._wgmmas: dict[tuple[Position, int, int], int] = {}  # of a warpgroup -> its span

    @property
    def complete(self) -> bool:
        return self._recorder is None or not self._recorder.full

    @property
    def spans(self) -> list[Span]:
        """Everything so far; what has not ended ends now."""
        self._settle()
        return self._spans

    def document(self) -> dict[str, Any]:
        """The trace in Chrome's JSON format; 1 us stands for one warp instruction issued."""
        from gpukit.emulator.trace_format import chrome_events

        return {
            "traceEvents": chrome_events(self.spans),
            "otherData": {"1 us": "one warp instruction issued", "complete": self.complete},
        }

    def write(self, path: str | Path) -> None:
        """Write a file for https://ui.perfetto.dev."""
        Path(path).write_text(json.dumps(self.document()))

    # Waves

    def wave_started(self, wave: Wave) -> None:
        listening: Any = wave.tally
        if self._recorder is None:
            self._recorder = Recorder(wave, self._limit, self._resumed)
            wave.tally = self._recorder  # type: ignore[assignment]  # hears what it counts
        elif listening is not self._recorder:
            raise LaunchError("listeners: a Trace holds one launch; this one has had its own")
        self._wave = wave

    def wave_ended(self, wave: Wave) -> None:
        self._settle()
        self._wave = None

    def _settle(self) -> None:
        """Turn what was recorded into spans, while the wave still knows its CTAs."""
        if self._wave is None or self._recorder is None:
            return
        for run in self._recorder.take():
            self._spans += self._run_spans(run)
        for warp in list(self._waits):
            self._close(warp, everything=True)
        for op in list(self._flights):
            self._land(op, "in flight at the end")

    @property
    def _now(self) -> int:
        assert self._recorder is not None
        return self._recorder.now

    def _place(self, warp: int) -> tuple[Position, str]:
        """CTA and track of a warp of the wave."""
        assert self._wave is not None
        found = self._wave.warps[warp]
        return found.cta.position, f"warp {found.index}"

    # What ran

    def _run_spans(self, run: Run) -> Iterator[Span]:
        name, details = self._name(run.line), {"line": str(run.line)}
        for number, warp in enumerate(range(run.first, run.last)):
            if run.warps is None or run.warps[number]:
                yield Span(*self._place(warp), "run", name, run.start, run.end, details)

    def _name(self, line: SourceLine | None) -> str:
        if line is None:
            return "without a source line"
        text = self._text.line(line.file, line.line)
        return f"{line.file}:{line.line} {text}".rstrip()

    # What waited

    def parked(self, lanes: Lanes, split: Split) -> None:
        assert split.park is not None and self._wave is not None
        pc = split.pc if split.park.retry else split.pc - 1
        warp = lanes.lo // 32
        reason, place = split.park.reason(), self._wave.program.place(pc)
        self._waits.setdefault(warp, []).append(_Wait(split, warp, reason, place, self._now))

    def woken(self, lanes: Lanes) -> None:
        self._close(lanes.lo // 32)

    def _resumed(self, first: int, last: int) -> None:
        """Warps run: what they still wait for was given up without a wake-up (a time limit)."""
        if self._waits:
            for warp in range(first, last):
                self._close(warp)

    def _close(self, warp: int, everything: bool = False) -> None:
        """End the waits of a warp that are over."""
        waits = self._waits.pop(warp, ())
        going_on = [w for w in waits if w.split.park is not None and not everything]
        if going_on:
            self._waits[warp] = going_on
        for wait in waits:
            if wait not in going_on and wait.start < self._now:
                self._add_wait(wait)

    def _add_wait(self, wait: _Wait) -> None:
        details = {"at": wait.place}
        cta, track = self._place(wait.warp)
        self._spans.append(Span(cta, track, "wait", wait.reason, wait.start, self._now, details))

    # What was in flight

    def async_issued(self, op: AsyncOp) -> None:
        self._flights[op] = self._now

    def async_performed(self, op: AsyncOp) -> None:
        self._land(op)

    def _land(self, op: AsyncOp, remark: str = "") -> None:
        start = self._flights.pop(op, None)
        if start is None:
            return
        details = {"at": op.place, "warp": op.warp.index, **({"remark": remark} if remark else {})}
        end = max(self._now, start + 1)
        cta = op.warp.cta.position
        span = Span(cta, engine_of(op.kind), "async", op.kind, start, end, details)
        if op.kind != "wgmma":
            self._spans.append(span)
        else:
            self._join(op, span)

    def _join(self, op: AsyncOp, part: Span) -> None:
        """The warps' parts of a wgmma are one: it starts when the last of them is issued."""
        warp = (part.cta, op.warp.index)
        number = self._parts[warp] = self._parts.get(warp, 0) + 1
        whole = (part.cta, op.warp.index // 4, number)
        index = self._wgmmas.setdefault(whole, len(self._spans))
        if index == len(self._spans):
            self._spans.append(part)
        elif part.start > self._spans[index].start:
            self._spans[index] = part
