"""Who accessed each granule of a memory last, as arrays of stamps.

The arrays come from ``np.zeros``, so the operating system backs only the pages that are touched,
and the rarer ones are made on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpukit.emulator.check.clocks import MOMENT, WARP_SHIFT, Clocks
from gpukit.emulator.check.granules import touched

if TYPE_CHECKING:
    from gpukit.emulator.mem.patterns import Pattern

KEPT_READS = 1 << 16
_ONE_WARP = np.array(1 << WARP_SHIFT)  # stamps that differ by less are of one warp


class LatestWarps:
    """The last two warps that accessed each granule: enough to find one that nobody waited for,
    unless both of these were waited for."""

    def __init__(self, granules: int) -> None:
        self._granules = granules
        self._last: Any = None
        self._other: Any = None

    @property
    def empty(self) -> bool:
        """Whether there never was an access."""
        return self._last is None

    def note(self, at: Any, stamps: Any) -> None:
        """Accesses of granules ``at``; of several warps that share one, the first and last stay."""
        if self._last is None:
            self._last = np.zeros(self._granules, np.int64)
        before = self._last[at]
        if isinstance(at, slice):
            before = before.copy()
        self._last[at] = stamps
        if np.count_nonzero(before):
            earlier = (before ^ stamps) >= _ONE_WARP
            if np.count_nonzero(earlier):
                self._keep(at, np.where(earlier, before, self._others()[at]))
        if isinstance(stamps, np.ndarray) and not isinstance(at, slice):
            self._note_first(at, stamps)

    def _others(self) -> Any:
        if self._other is None:
            self._other = np.zeros(self._granules, np.int64)
        return self._other

    def _keep(self, at: Any, stamps: Any) -> None:
        self._others()[at] = stamps

    def _note_first(self, at: Any, stamps: Any) -> None:
        lost = self._last[at] != stamps
        if np.count_nonzero(lost):
            self._keep(at[lost][::-1], np.broadcast_to(stamps, at.shape)[lost][::-1])

    def at(self, at: Any) -> list[Any]:
        """Arrays of stamps, shaped like ``at``; none if there were no accesses."""
        return [history[at] for history in (self._last, self._other) if history is not None]

    def clear(self, at: Any) -> None:
        """Forget about these granules."""
        for history in (self._last, self._other):
            if history is not None:
                history[at] = 0


class Postponed:
    """Reads by one warp each that are noted only once somebody asks, which often nobody does."""

    def __init__(self, granule: int, skew: int) -> None:
        self._granule, self._skew = granule, skew
        self._waiting: list[tuple[Pattern, int, int]] = []

    def postpone(self, pattern: Pattern, base: int, stamp: int) -> None:
        """A read at byte ``base`` of the memory."""
        self._waiting.append((pattern, base, stamp))
        if len(self._waiting) >= KEPT_READS:
            self.thin_out()

    def thin_out(self) -> None:
        """Too many wait."""
        self.settle()

    def settle(self) -> None:
        """Note what waits."""
        waiting, self._waiting = self._waiting, []
        for pattern, base, stamp in waiting:
            self.note_one(touched(pattern, base + self._skew, self._granule, True), stamp)

    def note_one(self, at: Any, stamp: int) -> None:
        """A read by one warp."""
        raise NotImplementedError


class LateReads(Postponed, LatestWarps):
    """Reads of global memory."""

    def __init__(self, granules: int, granule: int, skew: int) -> None:
        Postponed.__init__(self, granule, skew)
        LatestWarps.__init__(self, granules)

    def note_one(self, at: Any, stamp: int) -> None:
        super().note(at, stamp)

    def note(self, at: Any, stamps: Any) -> None:
        self.settle()
        super().note(at, stamps)

    def at(self, at: Any) -> list[Any]:
        self.settle()
        return super().at(at)

    def clear(self, at: Any) -> None:
        self.settle()
        super().clear(at)


class ReadersPerWarp(Postponed):
    """Reads of shared memory: the last one of each granule by every warp of the CTA that owns it.

    Of reads from other CTAs of the cluster the latest two are kept.
    """

    def __init__(self, granules: int, granule: int, skew: int, clocks: Clocks) -> None:
        super().__init__(granule, skew)
        self._clocks = clocks
        self._shape = clocks.warps_per_cta, granules
        self._columns: Any = None
        self.remote: LatestWarps | None = None

    def thin_out(self) -> None:
        """Reads that all warps of their CTA have seen can be forgotten."""
        seen, first = self._clocks.seen_by_all(self._shape[0]).tolist(), self._clocks.first
        self._waiting = [
            read for read in self._waiting
            if read[2] & MOMENT >= seen[(read[2] >> WARP_SHIFT) - first]
        ]  # fmt: skip
        if len(self._waiting) > KEPT_READS // 2:
            self.settle()

    def forget(self) -> None:
        """New CTAs: nobody can race with the reads of earlier ones."""
        self._waiting.clear()

    def note_one(self, at: Any, stamp: int) -> None:
        self.note(at, stamp, (stamp >> WARP_SHIFT) % self._shape[0])

    def note(self, at: Any, stamps: Any, columns: Any) -> None:
        """Reads by warps ``columns`` (one number, or an array that broadcasts with ``at``)."""
        if self._columns is None:
            self._columns = np.zeros(self._shape, np.int64)
        if isinstance(columns, int):
            self._columns[columns][at] = stamps
        else:
            self._columns[columns, at] = stamps

    def note_remote(self, at: Any, stamps: Any) -> None:
        if self.remote is None:
            self.remote = LatestWarps(self._shape[1])
        self.remote.note(at, stamps)

    def at(self, at: Any) -> list[Any]:
        """Arrays of stamps, with the shape of ``at`` last."""
        self.settle()
        found = [] if self._columns is None else [self._columns[:, at]]
        return found + self.remote.at(at) if self.remote else found

    def clear(self, at: Any) -> None:
        """Forget about these granules."""
        self.settle()
        if self._columns is not None:
            self._columns[:, at] = 0
        if self.remote:
            self.remote.clear(at)
