"""Shadow memory: who last touched each granule (1, 2 or 4 bytes) of a memory.

All arrays hold one value per granule. They come from ``np.zeros``, so the operating system backs
only the pages that are touched, and the rarer ones are made on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpukit.emulator.check.clocks import WARP_SHIFT, Clock
from gpukit.emulator.check.granules import touched

if TYPE_CHECKING:
    from gpukit.emulator.mem.patterns import Pattern
    from gpukit.emulator.mem.store import Store

KEPT_RANGES = 512
KEPT_READS = 1 << 16
_ONE_WARP = np.array(1 << WARP_SHIFT)  # stamps that differ by less are of one warp


def _latest_per_warp(stamps: Any) -> list[int]:
    ordered = np.sort(stamps)
    warps = ordered >> WARP_SHIFT
    last = np.flatnonzero(warps[1:] != warps[:-1])
    return [*ordered[last].tolist(), ordered.item(-1)]


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


class LateReads(LatestWarps):
    """Reads of a memory that often nobody ever writes: noted only once somebody asks."""

    def __init__(self, granules: int, granule: int, skew: int) -> None:
        super().__init__(granules)
        self._granule, self._skew = granule, skew
        self._waiting: list[tuple[Pattern, int, int]] = []

    def postpone(self, pattern: Pattern, base: int, stamp: int) -> None:
        """A read by one warp at byte ``base`` of the memory."""
        self._waiting.append((pattern, base, stamp))
        if len(self._waiting) >= KEPT_READS:
            self._settle()

    def _settle(self) -> None:
        waiting, self._waiting = self._waiting, []
        for pattern, base, stamp in waiting:
            self.note(touched(pattern, base + self._skew, self._granule, True), stamp)

    def note(self, at: Any, stamps: Any) -> None:
        if self._waiting:
            self._settle()
        super().note(at, stamps)

    def at(self, at: Any) -> list[Any]:
        if self._waiting:
            self._settle()
        return super().at(at)

    def clear(self, at: Any) -> None:
        if self._waiting:
            self._settle()
        super().clear(at)


class ReadersPerWarp:
    """The last read of each granule by every warp of the CTA that owns it.

    Of reads from other CTAs of the cluster the latest two are kept.
    """

    def __init__(self, granules: int, warps_per_cta: int) -> None:
        self._columns = np.zeros((warps_per_cta, granules), np.int64)
        self.remote: LatestWarps | None = None

    def note(self, at: Any, stamps: Any, columns: Any) -> None:
        """Reads by warps ``columns`` (one number, or an array that broadcasts with ``at``)."""
        self._columns[columns, at] = stamps

    def note_remote(self, at: Any, stamps: Any) -> None:
        if self.remote is None:
            self.remote = LatestWarps(self._columns.shape[1])
        self.remote.note(at, stamps)

    def at(self, at: Any) -> list[Any]:
        found = [self._columns[:, at]]
        return found + self.remote.at(at) if self.remote else found

    def clear(self, at: Any) -> None:
        self._columns[:, at] = 0
        if self.remote:
            self.remote.clear(at)


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
        self._writes: Any = None
        self.reads: Any = (
            LateReads(self.granules, granule, skew)
            if warps_per_cta is None
            else ReadersPerWarp(self.granules, warps_per_cta)
        )
        self.strong_writes = LatestWarps(self.granules)
        self.strong_reads = LatestWarps(self.granules)
        self.writers: Any = None
        self.reading: Any = None
        self.clocks: dict[int, Clock] = {}
        self.version = 0  # counts writes
        self._async_reads: dict[Any, tuple[Any, int]] = {}  # not yet in ``reading``
        self._last_writes: dict[Any, tuple[int, list[int], list[int]]] = {}
        self.ranges: dict[Any, Any] = {}  # granule indices by what they were derived from

    @property
    def late_reads(self) -> LateReads | None:
        """Where a weak read may be left for later: if nothing has written, it cannot be a race."""
        if self._writes is None and self.strong_writes.empty and self.writers is None:
            return self.reads if isinstance(self.reads, LateReads) else None
        return None

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
        self.version += 1
        if self._writes is None:
            self._writes = np.zeros(self.granules, np.int64)
        self._writes[at] = stamps

    def note_strong(self, kind: str, at: Any, stamps: Any) -> None:
        """A strong read or write (an atomic counts as a write)."""
        self.version += 1
        history = self.strong_reads if kind == "read" else self.strong_writes
        history.note(at, stamps)

    def address(self, store: Store, granule: int) -> int:
        """The address of a granule."""
        return store.address_of(granule * self.granule - self.skew)

    def strangers(self, at: Any) -> list[Any]:
        """Stamps of the accesses of other CTAs than the owner, as far as they are kept apart."""
        histories = [self.reads.remote, self.strong_writes, self.strong_reads]
        return [stamps for history in histories if history for stamps in history.at(at)]

    def forget_before(self, at: Any) -> None:
        """An asynchronous write that is ordered after all earlier accesses replaces them."""
        if self._writes is not None:
            self._writes[at] = 0
        self.reads.clear(at)
        self.strong_writes.clear(at)
        self.strong_reads.clear(at)

    def last_writes(self, key: Any, at: Any) -> tuple[list[int], list[int]]:
        """Of the granules ``at``, which ``key`` stands for: the latest write of each warp, and the
        numbers of the sets of operations that wrote them."""
        known = self._last_writes.get(key)
        if known is None or known[0] != self.version:
            if len(self._last_writes) >= KEPT_RANGES:
                self._last_writes.clear()
            known = self._last_writes[key] = (self.version, *self._find_last_writes(at))
        return known[1], known[2]

    def _find_last_writes(self, at: Any) -> tuple[list[int], list[int]]:
        latest: list[int] = []
        for stamps in (*self.written(at), *self.strong_writes.at(at)):
            if np.count_nonzero(stamps):
                latest += _latest_per_warp(stamps)
        writers = self.async_arrays()[0][at]
        sets = np.unique(writers).tolist() if np.count_nonzero(writers) else []
        return [stamp for stamp in latest if stamp], [number for number in sets if number]

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
        """The memory's contents are undefined again."""
        self.writers = None
        self.version += 1
        self._async_reads.clear()

    def async_arrays(self) -> tuple[Any, Any]:
        """int32 arrays ``writers`` and ``reading``, made on first use."""
        if self.writers is None:
            self.writers = np.zeros(self.granules, np.int32)
            self.reading = np.zeros(self.granules, np.int32)
        return self.writers, self.reading
