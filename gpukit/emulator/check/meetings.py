"""Synchronisation through barriers: CTA barriers, cluster barriers and mbarriers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gpukit.emulator.check import places
from gpukit.emulator.check.clocks import MOMENT, Clock, Clocks
from gpukit.emulator.check.flags import Flags
from gpukit.emulator.errors import DataRaceError
from gpukit.emulator.sync.barriers import Barrier
from gpukit.emulator.sync.cluster import ClusterBarrier

if TYPE_CHECKING:
    from gpukit.emulator.warps import Warp


class Meetings:
    """What arrivals at each barrier's phase have published.

    A warp that exits counts as arrived at the barriers of its CTA and cluster, as on the hardware;
    not at those that name the number of threads they wait for.
    """

    def __init__(self, clocks: Clocks, flags: Flags) -> None:
        self._clocks = clocks
        self._flags = flags
        self._phases: dict[object, dict[int, Clock]] = {}
        self._created: dict[object, tuple[Warp, int]] = {}  # mbarriers: by whom, stamp
        self._left: dict[int, list[int]] = {}  # by CTA slot: warps that have exited

    def restart(self) -> None:
        self._phases.clear()
        self._created.clear()
        self._left.clear()

    def created(self, warp: Warp, barrier: object) -> None:
        """A warp initialised an mbarrier; others must be ordered after that to use it."""
        stamp = self._clocks.lane_stamps.item(warp.lo) + warp.current.pc
        self._created[barrier] = (warp, stamp)

    def used(self, warp: Warp, number: int, barrier: object) -> None:
        """A use of an mbarrier must be ordered after its initialisation."""
        if barrier not in self._created:
            return
        creator, stamp = self._created[barrier]
        if stamp & MOMENT >= self._clocks.seen.item(number, creator.lo // 32):
            fault = DataRaceError(
                "data race on an mbarrier: uses what "
                f"{places.of_stamp(warp.wave, stamp)} initialised, and nothing orders the two"
            )
            warp.wave.launch.rules.report("races", fault)

    def arrive(
        self, warp: Warp, number: int, barrier: object, phase: int, relaxed: bool = False
    ) -> None:
        """The release side."""
        self.used(warp, number, barrier)
        self._flags.settle(number)
        clock = self._flags.fenced(number) if relaxed else self._clocks.release(number)
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
        self.used(warp, number, barrier)
        clock = self._phases.get(barrier, {}).get(phase)
        if clock is not None and relaxed:
            self._flags.found(number, clock)
        elif clock is not None:
            self._flags.settle(number)
            self._clocks.of_warp[number].join(clock)
        if self._left and isinstance(barrier, Barrier) and barrier.expected is None:
            for gone in self._left.get(warp.cta.slot, ()):
                self._clocks.of_warp[number].join(self._clocks.of_warp[gone])

    def leave(self, warp: Warp, number: int) -> None:
        """All lanes of the warp have exited."""
        self._left.setdefault(warp.cta.slot, []).append(number)
        for barrier in self._phases:
            if isinstance(barrier, ClusterBarrier) and warp in barrier.warps:
                self.publish(barrier, barrier.phase, self._clocks.of_warp[number])
