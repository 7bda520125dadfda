"""Synchronisation through barriers: CTA barriers, cluster barriers and mbarriers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gpukit.emulator.check.clocks import Clock, Clocks
from gpukit.emulator.check.flags import Flags
from gpukit.emulator.sync.barriers import Barrier
from gpukit.emulator.sync.cluster import ClusterBarrier

if TYPE_CHECKING:
    from gpukit.emulator.warps import Warp


class Meetings:
    """What arrivals at each barrier's phase have published.

    A warp that exits counts as arrived at the barriers of its CTA and cluster, as on the hardware.
    """

    def __init__(self, clocks: Clocks, flags: Flags) -> None:
        self._clocks = clocks
        self._flags = flags
        self._phases: dict[object, dict[int, Clock]] = {}
        self._left: dict[int, list[int]] = {}  # by CTA slot: warps that have exited

    def restart(self) -> None:
        self._phases.clear()
        self._left.clear()

    def arrive(self, warp: int, barrier: object, phase: int, relaxed: bool = False) -> None:
        """The release side."""
        self._flags.settle(warp)
        clock = self._flags.fenced(warp) if relaxed else self._clocks.release(warp)
        if clock is not None:
            self.publish(barrier, phase, clock)
        if self._left and isinstance(barrier, ClusterBarrier):
            for other in barrier.warps:
                if not other.splits:
                    self.publish(barrier, phase, self._clocks.of_warp[other.lo // 32])

    def publish(self, barrier: object, phase: int, clock: Clock) -> None:
        """Add to what a phase of a barrier tells those who wait for it."""
        phases = self._phases.setdefault(barrier, {})
        if phase in phases:
            phases[phase].join(clock)
            return
        for old in [p for p in phases if p < phase - 2]:
            del phases[old]
        phases[phase] = clock.copy()

    def tell(self, barrier: object, phase: int, bits: int) -> None:
        """Asynchronous operations signal a phase of a barrier."""
        nothing = np.zeros(self._clocks.warps, np.int64)
        self.publish(barrier, phase, Clock(nothing, nothing, bits, bits, 0))

    def passed(
        self, warp: Warp, number: int, barrier: object, phase: int, relaxed: bool = False
    ) -> None:
        """The acquire side."""
        clock = self._phases.get(barrier, {}).get(phase)
        if clock is not None and relaxed:
            self._flags.found(number, clock)
        elif clock is not None:
            self._flags.settle(number)
            self._clocks.of_warp[number].join(clock)
        if self._left and isinstance(barrier, Barrier):
            for gone in self._left.get(warp.cta.slot, ()):
                self._clocks.of_warp[number].join(self._clocks.of_warp[gone])

    def leave(self, warp: Warp, number: int) -> None:
        """All lanes of the warp have exited."""
        self._left.setdefault(warp.cta.slot, []).append(number)
        for barrier in self._phases:
            if isinstance(barrier, ClusterBarrier) and warp in barrier.warps:
                self.publish(barrier, barrier.phase, self._clocks.of_warp[number])
