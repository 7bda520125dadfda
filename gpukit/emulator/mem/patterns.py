"""What the addresses of one access look like, worked out once per distinct shape.

Kernels repeat few address shapes many times, so everything that is costly to derive (coalescing,
sectors, bank conflicts, duplicates) is kept per pattern and looked up by the raw bytes of the
lanes' distances from the first one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

SECTOR, LINE, BANKS = 32, 128, 32
LOADS, STORES, ATOMICS = 0, 1, 2
_KEPT_BYTES = 32 << 20


class Pattern:
    """Byte indices of the active lanes of one access of ``size`` bytes a lane, minus its base.

    ``low`` and ``high`` bound the addresses touched, relative to the first lane's. ``kind`` is
    "block" (lane i at i * size), "same" (one address) or "mixed". ``floor`` is the lowest of the
    ``offsets``. ``cost`` holds what the counters want and ``hits`` how often the pattern was
    loaded, stored and updated. ``strangers`` are the slots of CTAs whose shared memory lanes of
    other CTAs access.
    """

    __slots__ = (
        "_footprints", "_ranks", "_steps", "aligned", "cost", "floor", "high", "hits", "kind",
        "low", "offsets", "size", "strangers",
    )  # fmt: skip

    def __init__(self, offsets: Any, distances: Any, size: int, cost: tuple[int, ...]) -> None:
        self.offsets = offsets
        self.size = size
        self.cost = cost
        self.hits = [0, 0, 0]
        self.strangers: tuple[int, ...] = ()
        self.floor = int(offsets.min())
        self.low, self.high = int(distances.min()), int(distances.max()) + size
        self.aligned = not (distances & (size - 1)).any()
        self.kind = _kind(offsets, size)
        self._steps: dict[int, Any] = {}
        self._footprints: dict[int, Any] = {}
        self._ranks: list[Any] | None = None

    def steps(self, size: int) -> Any:
        """The offsets above the lowest one, in units of ``size`` bytes."""
        found = self._steps.get(size)
        if found is None:
            found = self._steps[size] = (self.offsets - self.floor) // size
        return found

    def footprint(self, size: int) -> Any:
        """What the lanes touch, in units of ``size`` bytes from the lowest one on.

        Sorted distinct numbers, or how many if there is no gap between them.
        """
        found = self._footprints.get(size)
        if found is None:
            every = _distinct(self.steps(size)[:, None] + np.arange(self.size // size))
            gaps = every[-1] != every.size - 1
            found = self._footprints[size] = every if gaps else int(every.size)
        return found

    @property
    def rounds(self) -> list[Any]:
        """Groups of positions such that no address occurs twice in a group, in lane order."""
        if self._ranks is None:
            self._ranks = _rounds(self.offsets)
        return self._ranks


class PatternCache:
    """Patterns by key, bounded in memory; the hits of dropped ones are kept as sums."""

    def __init__(self) -> None:
        self._patterns: dict[Any, Pattern] = {}
        self._bytes = 0
        self._sums = np.zeros((3, 4), np.int64)
        self.get = self._patterns.get

    def put(self, key: Any, pattern: Pattern) -> Pattern:
        """Remember a pattern."""
        self._bytes += 24 * pattern.offsets.size + 512
        if self._bytes > _KEPT_BYTES:
            self._fold()
        self._patterns[key] = pattern
        return pattern

    def _fold(self) -> None:
        for pattern in self._patterns.values():
            self._sums += np.outer(pattern.hits, pattern.cost)
        self._patterns.clear()
        self._bytes = 0

    def sums(self) -> Any:
        """int64[3, 4]: loads, stores and atomics x the four figures of the patterns' costs."""
        self._fold()
        return self._sums


def _kind(offsets: Any, size: int) -> str:
    steps = offsets[1:] - offsets[:-1]
    if (steps == size).all():
        return "block"
    return "same" if not steps.any() else "mixed"


def _rounds(offsets: Any) -> list[Any]:
    order = np.argsort(offsets, kind="stable")
    ordered = offsets[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    rank = np.arange(offsets.size) - np.repeat(starts, np.diff(np.r_[starts, offsets.size]))
    by_lane = np.empty_like(rank)
    by_lane[order] = rank
    return [np.flatnonzero(by_lane == r) for r in range(int(rank.max()) + 1)]


def _distinct(values: Any) -> Any:
    """Sorted distinct values (np.unique without its overhead)."""
    ordered = np.sort(values, axis=None)
    keep = np.empty(ordered.size, np.bool_)
    keep[0] = True
    np.not_equal(ordered[1:], ordered[:-1], keep[1:])
    return ordered[keep]


def global_cost(addresses: Any, size: int, warps: Any) -> tuple[int, int, int, int]:
    """(requests, 32-byte sectors, 128-byte lines, bytes) of one access."""
    spread = (addresses - addresses.min()) + (int(addresses.min()) & 127) + (warps << 45)
    sectors = _distinct(spread // SECTOR).size
    lines = _distinct(spread // LINE).size
    return _distinct(warps).size, sectors, lines, addresses.size * size


def shared_cost(offsets: Any, size: int, lanes: Any) -> tuple[int, int, int, int]:
    """(requests, wavefronts, fewest wavefronts possible, bytes) of one access.

    Up to 4 bytes a lane a warp is served at once, 8 bytes by half warps, 16 by quarters; each
    pass takes as many wavefronts as the fullest bank has distinct words.
    """
    words, passes = offsets >> 2, lanes // (32 * 4 // max(size, 4))
    if size > 4:
        words = (words[:, None] + np.arange(size // 4)).ravel()
        passes = np.repeat(passes, size // 4)
    words = words - words.min() + (int(words.min()) & (BANKS - 1))
    pairs = _distinct((passes << 32) + words)
    per_bank = np.bincount((pairs >> 32) * BANKS + pairs % BANKS, minlength=1)
    per_bank = np.pad(per_bank, (0, -per_bank.size % BANKS)).reshape(-1, BANKS)
    fullest = per_bank.max(axis=1)
    requests = _distinct(lanes // 32).size
    return requests, int(fullest.sum()), int((fullest > 0).sum()), offsets.size * size
