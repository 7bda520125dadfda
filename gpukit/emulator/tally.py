"""Counts executions per instruction with two additions per straight run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpukit.emulator.instructions import Mask

if TYPE_CHECKING:
    from gpukit.emulator.lanes import Lanes


class _Weight:
    """Adds ``warps`` executions (and ``lanes`` active lanes) to a range of instructions."""

    __slots__ = ("_idle", "_tally", "_warps")

    def __init__(self, tally: Tally, warps: int, idle: int) -> None:
        self._tally, self._warps, self._idle = tally, warps, idle

    def add(self, start: int, end: int) -> None:
        warps = self._tally.warp_steps
        warps[start] += self._warps
        warps[end] -= self._warps
        if self._idle:
            idle = self._tally.idle_steps
            idle[start] += self._idle
            idle[end] -= self._idle

    def remove(self, start: int, end: int) -> None:
        """Undo an ``add``."""
        self.add(end, start)


class Tally:
    """Difference arrays over the program: sum them up and you have counts per instruction."""

    def __init__(self, length: int) -> None:
        self.warp_steps = [0] * (length + 1)
        self.idle_steps = [0] * (length + 1)
        self._full: dict[int, _Weight] = {}

    def of(self, lanes: Lanes, mask: Mask) -> _Weight:
        """The weight of one execution by these lanes."""
        if mask is None:
            warps = lanes.width // 32
            if warps not in self._full:
                self._full[warps] = _Weight(self, warps, 0)
            return self._full[warps]
        per_warp = np.add.reduce(mask.reshape(-1, 32), axis=1)
        active = int(np.count_nonzero(per_warp))
        return _Weight(self, active, active * 32 - int(per_warp.sum()))

    def executions(self) -> Any:
        """int64 array: how many warps executed each instruction."""
        return np.cumsum(self.warp_steps)[:-1]

    def idle_lanes(self) -> Any:
        """int64 array: lanes of those warps that were masked off."""
        return np.cumsum(self.idle_steps)[:-1]
