"""Vector clocks: what happens before what.

An access is recorded as a *stamp*: the warp, the warp's time, and the pc, packed into one int64 so
that shadow memory needs one word and comparisons are whole-array operations. A warp's time moves on
whenever it releases, so "warp w has seen warp v up to time t" covers exactly what v did before that
release. Clocks are kept as thresholds: ``seen[w, v]`` is above every stamp (without its warp field)
of v that happens before w's next instruction.
"""

from __future__ import annotations

from typing import Any

import numpy as np

PC_BITS, TIME_BITS = 17, 25
WARP_SHIFT = PC_BITS + TIME_BITS
MAX_WARPS = 1 << (63 - WARP_SHIFT)
MOMENT = (1 << WARP_SHIFT) - 1  # a stamp's time and pc
TICK = 1 << PC_BITS


class Clock:
    """What a release publishes, and an acquire takes over.

    ``seen`` and ``seen_async`` are int64 rows with one threshold per warp of the wave: what happens
    before, and what of that the async proxy may see. ``done`` and ``read`` are bit sets of
    asynchronous operations known to be complete, or to have read their sources, ``before`` of
    tcgen05 operations that ``fence::before_thread_sync`` ordered; ``past`` is a bit set of CTAs of
    earlier waves.

    Two more clocks travel along, never changed in place, None for nothing: ``fenced``, what the
    fences that happen before cover, so that a relaxed store may publish it; and ``found``, what
    relaxed loads that happen before have found in memory, which counts from the next fence on.
    """

    __slots__ = ("before", "done", "fenced", "found", "past", "read", "seen", "seen_async")

    def __init__(self, seen: Any, seen_async: Any, done: int, read: int, past: int) -> None:
        self.seen = seen
        self.seen_async = seen_async
        self.done, self.read, self.past = done, read, past
        self.before = 0
        self.fenced: Clock | None = None
        self.found: Clock | None = None

    def plain(self) -> Clock:
        """A copy of what happens before, without the clocks that travel along."""
        made = Clock(self.seen.copy(), self.seen_async.copy(), self.done, self.read, self.past)
        made.before = self.before
        return made

    def copy(self) -> Clock:
        """An independent clock of equal value."""
        made = self.plain()
        made.fenced, made.found = self.fenced, self.found
        return made

    def join(self, other: Clock) -> None:
        """Also know what ``other`` knows."""
        np.maximum(self.seen, other.seen, out=self.seen)
        np.maximum(self.seen_async, other.seen_async, out=self.seen_async)
        self.done |= other.done
        self.read |= other.read
        self.past |= other.past
        self.before |= other.before
        if other.fenced is not None:
            self.fenced = joined(self.fenced, other.fenced)
        if other.found is not None:
            self.found = joined(self.found, other.found)


def joined(one: Clock | None, other: Clock) -> Clock:
    """What either knows happens before."""
    made = other.plain()
    if one is not None and one is not other:
        made.join(one)
    return made


class Clocks:
    """The clocks of a wave's warps, indexed by the warp's number in the wave."""

    def __init__(self, warps: int, warps_per_cta: int) -> None:
        self.warps = warps
        self.warps_per_cta = warps_per_cta
        self.seen = np.zeros((warps, warps), np.int64)
        self.seen_async = np.zeros((warps, warps), np.int64)
        rows = zip(self.seen, self.seen_async, strict=True)
        self.of_warp = [Clock(seen, seen_async, 0, 0, 0) for seen, seen_async in rows]  # views
        self.lane_stamps = np.zeros(warps * 32, np.int64)  # of an access now, at pc 0
        self.first = 0  # grid-wide number of the wave's first warp
        self._start = 0

    def restart(self, first_warp: int) -> None:
        """New CTAs take over. Time never goes back, so shared memory's old stamps are all past."""
        self._start = int(self.seen.max()) + TICK
        self.first = first_warp
        self.seen.fill(self._start)
        self.seen_async.fill(self._start)
        for clock in self.of_warp:
            clock.done = clock.read = clock.past = clock.before = 0
            clock.fenced = clock.found = None
        diagonal = np.arange(self.warps)
        self.seen[diagonal, diagonal] += TICK
        stamps = (diagonal + first_warp << WARP_SHIFT) + self._start
        self.lane_stamps[:] = np.repeat(stamps, 32)

    def release(self, warp: int) -> Clock:
        """What ``warp`` has done so far; what it does from now on is later than that."""
        clock = self.of_warp[warp].copy()
        self.seen[warp, warp] += TICK
        self.lane_stamps[warp * 32 : warp * 32 + 32] += TICK
        return clock

    def heard(self, warp: int) -> Clock:
        """What happens before ``warp``, without what it did itself since its last release."""
        clock = self.of_warp[warp].plain()
        clock.seen[warp] -= TICK
        clock.seen_async[warp] = min(clock.seen_async[warp], clock.seen[warp])
        return clock

    def with_operations(self, clock: Clock) -> Clock:
        """What its fences cover, and all the asynchronous operations that it knows."""
        nothing = np.zeros(self.warps, np.int64)
        made = Clock(nothing, nothing.copy(), clock.done, clock.read, clock.past)
        made.before = clock.before
        return made if clock.fenced is None else joined(clock.fenced, made)

    def seen_by_all(self, group: int) -> Any:
        """int64 row: what of each warp all of its group of consecutive warps have seen."""
        lowest = self.seen.reshape(-1, group, self.warps).min(axis=1)
        warps = np.arange(self.warps)
        return lowest[warps // group, warps]

    def proxy_fence(self, warp: int) -> None:
        """All that happens before ``warp`` becomes visible to the async proxy."""
        self.seen_async[warp] = self.seen[warp]

    def retired(self, clock: Clock) -> int:
        """The bit set of CTAs that ``clock`` knows, once this wave belongs to the past."""
        known = (clock.seen > self._start).reshape(-1, self.warps_per_cta).any(axis=1)
        bits = int.from_bytes(np.packbits(known, bitorder="little").tobytes(), "little")
        return clock.past | bits << self.first // self.warps_per_cta

    def forget(self, clock: Clock) -> None:
        """Reduce a clock that outlives its wave to the CTAs it knows."""
        clock.past = self.retired(clock)
        clock.seen[:] = 0
        clock.seen_async[:] = 0
        clock.done = clock.read = clock.before = 0
        clock.fenced = clock.found = None
