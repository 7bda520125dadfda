"""Shadow memory: who last touched each granule (1, 2 or 4 bytes) of a memory.

All arrays hold one value per granule. They come from ``np.zeros``, so the operating system backs
only the pages that are touched, and the rarer ones are made on first use.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gpukit.emulator.check.clocks import WARP_SHIFT, Clock


class LatestWarps:
    """The last two warps that accessed each granule: enough to find one that nobody waited for,
    unless both of these were waited for."""

    def __init__(self, granules: int) -> None:
        self._last = np.zeros(granules, np.int64)
        self._other = np.zeros(granules, np.int64)

    def note(self, at: Any, stamps: Any) -> None:
        """Accesses of granules ``at``; of several warps that share one, the first and last stay."""
        before = self._last[at]
        if before.any():
            keep = ((before ^ stamps) >> WARP_SHIFT != 0) & (before != 0)
            self._other[at] = np.where(keep, before, self._other[at])
        self._last[at] = stamps
        if isinstance(stamps, np.ndarray) and not isinstance(at, slice):
            self._note_first(at, stamps)

    def _note_first(self, at: Any, stamps: Any) -> None:
        last = self._last[at]
        shared = last != stamps
        if shared.any():
            where = at[shared][::-1]
            self._other[where] = np.broadcast_to(stamps, at.shape)[shared][::-1]

    def at(self, at: Any) -> list[Any]:
        """Arrays of stamps, shaped like ``at``."""
        return [self._last[at], self._other[at]]

    def clear(self, at: Any) -> None:
        self._last[at] = 0
        self._other[at] = 0


class ReadersPerWarp:
    """The last read of each granule by every warp of the CTA that owns it.

    Of reads from other CTAs of the cluster the latest two are kept.
    """

    def __init__(self, granules: int, warps_per_cta: int) -> None:
        self._columns = np.zeros((warps_per_cta, granules), np.int64)
        self._remote: LatestWarps | None = None

    def note(self, at: Any, stamps: Any, columns: Any) -> None:
        """Reads by warps ``columns`` (one number, or an array that broadcasts with ``at``)."""
        self._columns[columns, at] = stamps

    def note_remote(self, at: Any, stamps: Any) -> None:
        if self._remote is None:
            self._remote = LatestWarps(self._columns.shape[1])
        self._remote.note(at, stamps)

    def at(self, at: Any) -> list[Any]:
        found = [self._columns[:, at]]
        return found + self._remote.at(at) if self._remote else found

    def clear(self, at: Any) -> None:
        self._columns[:, at] = 0
        if self._remote:
            self._remote.clear(at)


class Shadow:
    """Shadow of one memory of ``size`` bytes.

    Weak accesses are kept apart from strong ones (atomics, volatile, relaxed, ...), which do not
    race among themselves. ``writers`` and ``reading`` number the asynchronous operation that wrote
    a granule last, and the set of those that read it since. ``clocks`` holds what release
    operations published at a granule.
    """

    def __init__(self, size: int, granule: int, warps_per_cta: int | None, skew: int = 0) -> None:
        self.granule = granule
        self.skew = skew  # of byte 0 within its granule
        self.granules = (size + skew) // granule + 1
        self.writes = np.zeros(self.granules, np.int64)
        self.reads: Any = (
            LatestWarps(self.granules)
            if warps_per_cta is None
            else ReadersPerWarp(self.granules, warps_per_cta)
        )
        self.strong_writes: Any = None
        self.strong_reads: Any = None
        self.writers: Any = None
        self.reading: Any = None
        self.clocks: dict[int, Clock] = {}

    def note_strong(self, kind: str, at: Any, stamps: Any) -> None:
        """A strong read or write (an atomic counts as a write)."""
        if self.strong_writes is None:
            self.strong_writes = LatestWarps(self.granules)
            self.strong_reads = LatestWarps(self.granules)
        history = self.strong_reads if kind == "read" else self.strong_writes
        history.note(at, stamps)

    def forget_before(self, at: Any) -> None:
        """An asynchronous write that is ordered after all earlier accesses replaces them."""
        self.writes[at] = 0
        self.reads.clear(at)
        if self.strong_writes is not None:
            self.strong_writes.clear(at)
            self.strong_reads.clear(at)

    def async_arrays(self) -> tuple[Any, Any]:
        """int32 arrays ``writers`` and ``reading``, made on first use."""
        if self.writers is None:
            self.writers = np.zeros(self.granules, np.int32)
            self.reading = np.zeros(self.granules, np.int32)
        return self.writers, self.reading
