"""Shadow memory: who last touched each granule (1, 2 or 4 bytes) of a memory.

All arrays hold one value per granule. They come from ``np.zeros``, so the operating system backs
only the pages that are touched, and the rarer ones are made on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpukit.emulator.check.changes import (
    Changes,
    LastWrites,
    bounds,
    distinct,
    latest_per_warp,
)
from gpukit.emulator.check.clocks import Clock, Clocks
from gpukit.emulator.check.history import LateReads, LatestWarps, Postponed, ReadersPerWarp

if TYPE_CHECKING:
    from gpukit.emulator.check.latest import Latest
    from gpukit.emulator.mem.store import Store

KEPT_RANGES = 2048


class Shadow:
    """Shadow of one memory of ``size`` bytes.

    Weak accesses are kept apart from strong ones (atomics, volatile, relaxed, ...), which do not
    race among themselves. ``writers`` and ``reading`` number the asynchronous operation that wrote
    a granule last, and the set of those that read it since. ``clocks`` holds what release
    operations published at a granule.
    """

    def __init__(self, size: int, granule: int, clocks: Clocks | None, skew: int = 0) -> None:
        self.granule = granule
        self.skew = skew  # of byte 0 within its granule
        self.granules = (size + skew) // granule + 1
        self._writes: Any = None
        self.reads: LateReads | ReadersPerWarp = (
            LateReads(self.granules, granule, skew)
            if clocks is None
            else ReadersPerWarp(self.granules, granule, skew, clocks)
        )
        self.latest_writes: Latest | None = None
        self.latest_reads: Latest | None = None
        self.strong_writes = LatestWarps(self.granules)
        self.strong_reads = LatestWarps(self.granules)
        self.writers: Any = None
        self.reading: Any = None
        self.clocks: dict[int, Clock] = {}
        self.changes = Changes()
        self._async_reads: dict[Any, tuple[Any, int]] = {}  # not yet in ``reading``
        self._last_writes: dict[Any, LastWrites] = {}
        self.ranges: dict[Any, Any] = {}  # granule indices by what they were derived from

    def late_reads(self, warp: int) -> Postponed | None:
        """Where a weak read by a warp is left for later: if it cannot be a race, by what is known.

        That is if nothing has written (global memory) or it has seen all writes (shared memory).
        """
        if self.writers is not None:
            return None
        if self.latest_writes is None:
            harmless = self._writes is None and self.strong_writes.empty
        else:
            harmless = self.latest_writes.within_ctas and self.latest_writes.all_seen(warp)
        return self.reads if harmless else None

    def keep_range(self, key: Any, indices: Any) -> None:
        """Remember some granule indices; bounded in number."""
        if len(self.ranges) >= KEPT_RANGES:
            self.ranges.clear()
        self.ranges[key] = indices

    def written(self, at: Any) -> list[Any]:
        """Arrays of the stamps of the last weak writes, shaped like ``at``; none if no writes."""
        return [] if self._writes is None else [self._writes[at]]

    def note_write(self, at: Any, stamps: Any) -> None:
        """A weak write."""
        self.changes.add(at)
        if self._writes is None:
            self._writes = np.zeros(self.granules, np.int64)
        self._writes[at] = stamps

    def note_strong(self, kind: str, at: Any, stamps: Any) -> None:
        """A strong read or write (an atomic counts as a write)."""
        self.changes.add(at)
        history = self.strong_reads if kind == "read" else self.strong_writes
        history.note(at, stamps)

    def address(self, store: Store, granule: int) -> int:
        """The address of a granule."""
        return store.address_of(granule * self.granule - self.skew)

    def forget_before(self, at: Any) -> None:
        """An asynchronous write that is ordered after all earlier accesses replaces them."""
        if self._writes is not None:
            self._writes[at] = 0
        self.reads.clear(at)
        self.strong_writes.clear(at)
        self.strong_reads.clear(at)

    def last_writes(self, key: Any, at: Any) -> LastWrites:
        """What wrote the granules ``at``, which ``key`` stands for."""
        known = self._last_writes.get(key)
        if known is None:
            if len(self._last_writes) >= KEPT_RANGES:
                self._last_writes.clear()
            known = self._last_writes[key] = LastWrites(*bounds(at))
        elif not self.changes.since(known.version, known.low, known.high):
            known.version = self.changes.version
            return known
        self._find_last_writes(known, at)
        return known

    def _find_last_writes(self, found: LastWrites, at: Any) -> None:
        latest: list[int] = []
        for stamps in (*self.written(at), *self.strong_writes.at(at)):
            if np.count_nonzero(stamps):
                latest += latest_per_warp(stamps)
        found.stamps = [stamp for stamp in latest if stamp]
        writers = self.async_arrays()[0][at]
        found.sets = [number for number in distinct(writers) if number]
        found.version = self.changes.version

    def note_async_read(self, key: Any, at: Any, bit: int) -> None:
        """An operation reads these granules; ``take_async_reads`` hands that on."""
        _, bits = self._async_reads.get(key, (at, 0))
        self._async_reads[key] = (at, bits | bit)

    def take_async_reads(self) -> list[tuple[Any, int]]:
        """What was noted since the last time: granules and bits of operations."""
        noted = list(self._async_reads.values())
        self._async_reads.clear()
        return noted

    def forget_async(self) -> None:
        """The (shared) memory's contents are undefined again."""
        if isinstance(self.reads, ReadersPerWarp):
            self.reads.forget()
        self.writers = None
        self.changes.add(slice(0, self.granules))
        self._async_reads.clear()

    def async_arrays(self) -> tuple[Any, Any]:
        """int32 arrays ``writers`` and ``reading``, made on first use."""
        if self.writers is None:
            self.writers = np.zeros(self.granules, np.int32)
            self.reading = np.zeros(self.granules, np.int32)
        return self.writers, self.reading
