"""When which part of a memory was written, so that what is known of the rest stays known."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np

from gpukit.emulator.check.clocks import WARP_SHIFT

KEPT = 32


def bounds(at: Any) -> tuple[int, int]:
    """The first of some granules, and the first behind the last."""
    if isinstance(at, slice):
        return at.start, at.stop
    return int(at.min()), int(at.max()) + 1


def distinct(ids: Any) -> list[int]:
    """The different values of an array, sorted."""
    first = ids.item(0)
    if not np.count_nonzero(ids != first):
        return [first]
    return np.unique(ids).tolist()  # type: ignore[no-any-return]


class Changes:
    """When which part of a memory was written last; ``version`` counts the writes."""

    def __init__(self) -> None:
        self.version = 0
        self._recent: deque[Any] = deque(maxlen=KEPT)  # granules, the last write first

    def add(self, at: Any) -> None:
        """Granules ``at`` were written."""
        self.version += 1
        self._recent.appendleft(at)

    def since(self, version: int, low: int, high: int) -> bool:
        """Whether any of the granules from ``low`` to ``high`` may have been written since."""
        count = self.version - version
        if count > len(self._recent):
            return True
        for at in islice(self._recent, count):
            start, stop = bounds(at)
            if start < high and low < stop:
                return True
        return False


@dataclass(slots=True)
class LastWrites:
    """What wrote the granules from ``low`` to ``high``, as of a ``version`` of the memory.

    ``stamps`` are the latest writes of each warp, ``sets`` the numbers of the sets of operations.
    """

    low: int
    high: int
    version: int = -1
    stamps: list[int] = field(default_factory=list)
    sets: list[int] = field(default_factory=list)


def latest_per_warp(stamps: Any) -> list[int]:
    """The highest stamp of each warp."""
    ordered = np.sort(stamps)
    warps = ordered >> WARP_SHIFT
    last = np.flatnonzero(warps[1:] != warps[:-1])
    return [*ordered[last].tolist(), ordered.item(-1)]
