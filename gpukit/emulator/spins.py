"""Endless spins: proof that all warps which still run only repeat themselves.

While memory does not change, a warp's registers, stack and program counters decide what it does.
One that comes back to a state in which it was since the last change goes round in a loop that it
will never leave by itself (registers that only count its rounds make no difference). What it does
at barriers on its way says when others go on, but nothing that they could read. So when every warp
that can run goes round in this way, nothing will ever change again.

A warp that counts its polls up to a limit does not come back to an earlier state, so a wait with a
time-out is never mistaken for an endless one. Reading a clock starts the proof afresh: it may end
any loop.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Protocol

from gpukit.emulator.dataflow import Relevance

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpukit.emulator.frames import Frame
    from gpukit.emulator.lanes import Lanes, Split
    from gpukit.emulator.warps import Warp

PERIOD = 1 << 16  # steps of the first period
STATES = 1 << 13  # kept of a warp
LONGEST_LISTING = 64  # lines of a report


class Polled(Protocol):
    """What a poll looks at."""

    def describe(self) -> str:
        """In words."""


def note_poll(lanes: Lanes, what: Polled) -> None:
    """The running split reads something that others change."""
    split = lanes.current
    split.polls += 1
    split.polled = split.pc, what
    lanes.wave.scheduler.polls += 1


class Spins:
    """Which warps go round in loops since the last change.

    If barriers wake warps meanwhile, the proof needs all of it within one period: that every warp
    which ran came back to a state, and that the others slept throughout. Each period is twice as
    long as the one before, so that whatever comes to rest does so in time for some period.
    """

    def __init__(self) -> None:
        self.woken = False  # somebody, by a barrier
        self._relevance: Relevance | None = None
        self._seen: dict[Warp, dict[bytes, tuple[int, ...]]] = {}
        self._circling: set[Warp] = set()
        self._steps, self._period = 0, PERIOD

    def clear(self) -> None:
        """Something has changed."""
        if self._seen:
            self._forget()
            self._period = PERIOD

    def _forget(self) -> None:
        self._seen.clear()
        self._circling.clear()
        self._steps, self.woken = 0, False

    def ran(self, warps: Iterable[Warp], steps: int) -> None:
        """These warps have had their turn."""
        self._steps += steps
        if self._steps > self._period and self.woken:
            self._forget()
            self._period *= 2
        for warp in warps:
            if warp.splits and warp not in self._circling and self._came_back(warp):
                self._circling.add(warp)

    def _came_back(self, warp: Warp) -> bool:
        """Whether the warp was in its present state before, and all of its splits have moved."""
        seen = self._seen.setdefault(warp, {})
        self._relevance = self._relevance or Relevance(warp.wave.program)
        state, penalties = _state(warp, self._relevance)
        before = seen.get(state)
        if before is None:
            if len(seen) >= STATES:
                seen.clear()
            seen[state] = penalties
            return False
        # Splits take turns by their penalties: a higher one has had its turn since.
        return len(penalties) < 2 or all(
            now > then for now, then in zip(penalties, before, strict=True)
        )

    def resume(self, warp: Warp) -> None:
        """The warp goes on for another reason than a change."""
        self._circling.discard(warp)
        self._seen.pop(warp, None)

    def worth_a_turn(self, ready: list[Warp]) -> list[Warp]:
        """Those of the runnable warps that may get somewhere; none if all of them only spin."""
        if not self._circling:
            return ready
        fresh = [warp for warp in ready if warp not in self._circling]
        if fresh or not self.woken:
            return fresh
        settled = all(warp in self._circling for warp in self._seen if warp.active)
        return [] if settled else ready


def _state(warp: Warp, relevance: Relevance) -> tuple[bytes, tuple[int, ...]]:
    """All that decides what a warp does next, as a digest; the penalties of its runnable splits."""
    splits = sorted(warp.splits, key=lambda split: (split.pc, _lanes(split)))
    digest = hashlib.blake2b(digest_size=16)
    for split in splits:
        digest.update(repr((split.pc, _lanes(split), split.park is None)).encode())
        for bits, rows in relevance.rows(split.pc).items():
            digest.update(warp.wave.files[bits][rows, warp.lo : warp.hi])
        for part in _calls(split.frame):
            digest.update(part)
    local = warp.wave.local
    digest.update(local.data[warp.lo * local.stride : warp.hi * local.stride])
    return digest.digest(), tuple(split.penalty for split in splits if split.park is None)


def _lanes(split: Split) -> bytes:
    return b"" if split.mask is None else split.mask.tobytes()


def _calls(frame: Frame | None) -> Iterable[Any]:
    while frame is not None:
        yield frame.return_pc.to_bytes(8, "little")
        for rows in (frame.saved or {}).values():
            yield rows.tobytes()
        frame = frame.parent
