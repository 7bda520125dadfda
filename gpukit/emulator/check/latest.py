"""When each warp last accessed shared memory: often that is enough to know that all is in order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gpukit.emulator.check.clocks import MOMENT, Clocks

if TYPE_CHECKING:
    from gpukit.emulator.lanes import Lanes


class Latest:
    """The moment of every warp's last access of one kind, anywhere in shared memory.

    A warp that has seen all of these of its cluster need not look at single granules.
    """

    def __init__(self, clocks: Clocks, warps_per_cluster: int) -> None:
        self._clocks = clocks
        self._per_cluster = warps_per_cluster
        self.within_ctas = warps_per_cluster == clocks.warps_per_cta  # no distributed accesses
        self._moments = np.zeros(clocks.warps, np.int64)
        self._version = 0
        self._seen = [-1] * clocks.warps  # by warp: the version of which it has seen everything

    def restart(self) -> None:
        """New CTAs take over."""
        self._moments.fill(0)
        self._version += 1

    def note(self, lanes: Lanes) -> None:
        """The warps of a unit access shared memory now (masked ones count as well)."""
        self._version += 1
        stamps, pc = self._clocks.lane_stamps, lanes.current.pc
        if lanes.width == 32:
            self._moments[lanes.lo // 32] = (stamps.item(lanes.lo) & MOMENT) + pc
        else:
            now = (stamps[lanes.lo : lanes.hi : 32] & MOMENT) + pc
            self._moments[lanes.lo // 32 : lanes.hi // 32] = now

    def all_seen(self, warp: int) -> bool:
        """Whether all accesses so far happen before what ``warp`` does now."""
        if self._seen[warp] == self._version:
            return True
        first = warp - warp % self._per_cluster
        peers = slice(first, first + self._per_cluster)
        if np.count_nonzero(self._moments[peers] >= self._clocks.seen[warp, peers]):
            return False
        self._seen[warp] = self._version
        return True
