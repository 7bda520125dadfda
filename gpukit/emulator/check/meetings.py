"""Synchronisation through barriers: CTA barriers, cluster barriers and mbarriers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpukit.emulator.check.clocks import Clock, Clocks
from gpukit.emulator.check.flags import Flags

if TYPE_CHECKING:
    from gpukit.emulator.warps import Warp


class Meetings:
    """What arrivals at each barrier's phase have published.

    A warp that exits counts as arrived at all barriers of its CTA, as on the hardware.
    """

    def __init__(self, clocks: Clocks, flags: Flags) -> None:
        self._clocks = clocks
        self._flags = flags
        self._phases: dict[object, dict[int, Clock]] = {}
        self._left: dict[int, Clock] = {}  # by CTA slot: what exited warps did

    def restart(self) -> None:
        self._phases.clear()
        self._left.clear()

    def arrive(self, warp: int, barrier: object, phase: int, relaxed: bool = False) -> None:
        """The release side."""
        self._flags.settle(warp)
        clock = self._flags.fenced(warp) if relaxed else self._clocks.release(warp)
        if clock is not None:
            self.publish(barrier, phase, clock)

    def publish(self, barrier: object, phase: int, clock: Clock) -> None:
        """Add to what a phase of a barrier tells those who wait for it."""
        phases = self._phases.setdefault(barrier, {})
        if phase in phases:
            phases[phase].join(clock)
            return
        for old in [p for p in phases if p < phase - 2]:
            del phases[old]
        phases[phase] = clock.copy()

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
        if self._left:
            self._follow_exits(warp, number)

    def _follow_exits(self, warp: Warp, number: int) -> None:
        for cta in warp.cta.cluster:
            if cta.slot in self._left:
                self._clocks.of_warp[number].join(self._left[cta.slot])

    def leave(self, warp: Warp, number: int) -> None:
        """All lanes of the warp have exited."""
        clock = self._clocks.release(number)
        slot = warp.cta.slot
        if slot in self._left:
            self._left[slot].join(clock)
        else:
            self._left[slot] = clock
