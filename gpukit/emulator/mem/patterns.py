"""What the addresses of one access look like, worked out once per distinct shape.

Kernels repeat few address shapes many times, so everything that is costly to derive (coalescing,
sectors, bank conflicts, duplicates) is kept per pattern and looked up by the raw address bytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

SECTOR, LINE, BANKS = 32, 128, 32


class Pattern:
    """Byte offsets of the active lanes of one access of ``size`` bytes a lane.

    ``kind`` is "block" (lane i at i * size), "same" (one address) or "mixed". ``cost`` holds what
    the counters want and ``hits`` how often the pattern was loaded and stored.
    """

    __slots__ = ("_elements", "_ranks", "aligned", "cost", "first", "high", "hits", "kind", "low",
                 "offsets", "size")  # fmt: skip

    def __init__(self, offsets: Any, size: int, cost: tuple[int, ...]) -> None:
        self.offsets = offsets
        self.size = size
        self.cost = cost
        self.hits = [0, 0, 0]
        self.first = int(offsets[0])
        self.low, self.high = int(offsets.min()), int(offsets.max()) + size
        self.aligned = not (offsets & (size - 1)).any()
        self.kind = _kind(offsets, size)
        self._elements: dict[int, Any] = {}
        self._ranks: list[Any] | None = None

    def elements(self, size: int) -> Any:
        """The offsets in units of ``size`` bytes."""
        found = self._elements.get(size)
        if found is None:
            found = self._elements[size] = self.offsets // size
        return found

    @property
    def rounds(self) -> list[Any]:
        """Groups of positions such that no address occurs twice in a group, in lane order."""
        if self._ranks is None:
            self._ranks = _rounds(self.offsets)
        return self._ranks


LOADS, STORES, ATOMICS = 0, 1, 2
_KEPT_BYTES = 32 << 20


class PatternCache:
    """Patterns by key, bounded in memory; the hits of dropped ones are kept as sums."""

    def __init__(self) -> None:
        self._patterns: dict[Any, Pattern] = {}
        self._bytes = 0
        self._sums = np.zeros((3, 4), np.int64)
        self.get = self._patterns.get

    def put(self, key: Any, pattern: Pattern) -> Pattern:
        """Remember a pattern."""
        self._bytes += 16 * pattern.offsets.size + 512
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
    steps = np.diff(offsets)
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


def global_cost(addresses: Any, size: int, warps: Any) -> tuple[int, ...]:
    """(requests, 32-byte sectors, 128-byte lines, bytes) of one access."""
    requests = np.unique(warps).size
    sectors = _distinct(addresses // SECTOR, warps)
    lines = _distinct(addresses // LINE, warps)
    return requests, sectors, lines, addresses.size * size


def _distinct(units: Any, warps: Any) -> int:
    return np.unique(warps * (1 << 45) + (units - units.min())).size


def shared_cost(addresses: Any, size: int, lanes: Any) -> tuple[int, ...]:
    """(requests, wavefronts, fewest wavefronts possible, bytes) of one access.

    Up to 4 bytes a lane a warp is served at once, 8 bytes by half warps, 16 by quarters; each
    pass takes as many wavefronts as the fullest bank has distinct words.
    """
    group = 32 * 4 // max(size, 4)
    words = addresses[:, None] // 4 + np.arange(max(size // 4, 1))
    passes = np.repeat(lanes // group, words.shape[1])
    pairs = np.unique(np.stack([passes, words.ravel()]), axis=1)
    slots, counts = np.unique(pairs[0] * BANKS + pairs[1] % BANKS, return_counts=True)
    most: dict[int, int] = {}
    for which, count in zip((slots // BANKS).tolist(), counts.tolist(), strict=True):
        most[which] = max(most.get(which, 0), count)
    return np.unique(lanes // 32).size, sum(most.values()), len(most), addresses.size * size
