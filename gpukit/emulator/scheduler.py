"""Who runs next. Nothing spins: parked splits wait for whoever wakes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpukit.emulator.errors import BudgetExceededError
from gpukit.emulator.events import EventQueue
from gpukit.emulator.lanes import Lanes, Split
from gpukit.emulator.warps import Gang, Warp

if TYPE_CHECKING:
    from gpukit.emulator.wave import Wave

GANG_QUANTUM = 4096


class Scheduler:
    """Runs the warps of one wave until all have ended."""

    def __init__(self, wave: Wave) -> None:
        self.wave = wave
        self.policy = wave.launch.policy
        self.events = EventQueue(self.policy)
        self._gangs: dict[tuple[int, int], Gang] = {}

    def run(self) -> None:
        """Run to the end. Raises ``DeadlockError`` or ``BudgetExceededError``."""
        events = self.events
        while True:
            events.run_due()
            ready = [warp for warp in self.wave.warps if warp.active and warp.runnable]
            if not ready:
                if events.jump():
                    continue
                if any(warp.active for warp in self.wave.warps):
                    raise self.wave.deadlock()
                return
            self._turn(ready)

    def ready(self, warp: Lanes) -> None:
        """A split of ``warp`` was woken (a hook for traces; readiness is looked up)."""

    def _turn(self, ready: list[Warp]) -> None:
        warp = self.policy.pick(ready)
        companions = self._companions(warp)
        if len(companions) > 1:
            gang = self._gang(companions)
            gang.gather()
            try:
                issued = gang.turn(GANG_QUANTUM) * len(companions)
            finally:
                gang.scatter()
        else:
            issued = warp.turn(self.policy.quantum())
        self.events.now += issued
        self.wave.launch.issued += issued
        if self.wave.launch.issued > self.wave.launch.budget:
            raise self._over_budget(warp)

    def _over_budget(self, warp: Warp) -> BudgetExceededError:
        fault = BudgetExceededError(
            f"more than {self.wave.launch.budget} warp instructions issued; raise budget= if the "
            "kernel is meant to run that long"
        )
        fault.locate(warp.where())
        return fault

    def _companions(self, warp: Warp) -> list[Warp]:
        """Consecutive warps, with this one, that stand converged at the same instruction."""
        split = warp.single
        program = self.wave.program
        if split is None or not program.worth_a_gang(split.pc):
            return [warp]
        warps, first = self.wave.warps, warp.cta.slot * len(warp.cta.warps) + warp.index
        low = high = first
        while low > 0 and _same(warps[low - 1].single, split):
            low -= 1
        while high + 1 < len(warps) and _same(warps[high + 1].single, split):
            high += 1
        most = self.policy.together(high - low + 1)
        low = max(low, first - most + 1)
        return warps[low : min(high + 1, low + most)]

    def _gang(self, warps: list[Warp]) -> Gang:
        key = (warps[0].lo, warps[-1].hi)
        if key not in self._gangs:
            self._gangs[key] = Gang(self.wave, warps)
        return self._gangs[key]


def _same(other: Split | None, split: Split) -> bool:
    return other is not None and other.pc == split.pc and other.frame is split.frame
