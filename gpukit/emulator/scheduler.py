"""Who runs next. Nothing spins: parked splits wait for whoever wakes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpukit.emulator.errors import BudgetExceededError, KernelFault, LivelockError
from gpukit.emulator.events import EventQueue
from gpukit.emulator.lanes import Lanes, Split
from gpukit.emulator.warps import Gang, Warp

if TYPE_CHECKING:
    from gpukit.emulator.wave import Wave

GANG_QUANTUM = 1 << 15
FAIR = 20_000  # steps without such a change before also the warps that a policy starves run
STALLED = 5_000_000  # steps without any change to memory before a spin is called a livelock


class Scheduler:
    """Runs the warps of one wave until all have ended.

    ``changed`` is set by everything that other warps can see: a spin that waits for it ends, or
    is reported after ``STALLED`` steps.
    """

    def __init__(self, wave: Wave) -> None:
        self.wave = wave
        self.policy = wave.launch.policy
        self.events = EventQueue(self.policy)
        self.changed = True
        self._idle_steps = 0
        self._gangs: dict[tuple[int, int], Gang] = {}

    def run(self) -> None:
        """Run to the end. Raises ``DeadlockError``, ``LivelockError``, ``BudgetExceededError``."""
        events = self.events
        while True:
            events.run_due()
            ready = [warp for warp in self.wave.warps if warp.active and warp.runnable]
            if not ready:
                if events.jump() or self._expire():
                    continue
                if any(warp.active for warp in self.wave.warps):
                    raise self.wave.deadlock()
                return
            self._turn(ready)

    def ready(self, warp: Lanes) -> None:
        """A split of ``warp`` was woken."""
        self.changed = True
        for listener in self.wave.listeners:
            listener.woken(warp)

    def _expire(self) -> bool:
        """Nothing will ever happen: let waits that have a time limit run out, one by one."""
        for warp in self.wave.warps:
            for split in warp.splits:
                park = split.park
                if park is not None and park.expire is not None and park.expire(split):
                    park.queue.discard(split)
                    split.park = None
                    return True
        return False

    def _turn(self, ready: list[Warp]) -> None:
        spinning = self._idle_steps > FAIR
        warp = ready[self._idle_steps % len(ready)] if spinning else self.policy.pick(ready)
        companions = self._companions(warp)
        if len(companions) > 1:
            steps, issued = self._together(companions)
        else:
            steps = issued = warp.turn(self.policy.quantum())
        self.events.now += issued
        self.wave.launch.issued += issued
        self._watch(warp, steps)

    def _together(self, companions: list[Warp]) -> tuple[int, int]:
        """Run warps as a gang, then what the gang could not do warp by warp."""
        gang = self._gang(companions)
        gang.gather()
        try:
            steps = gang.turn(GANG_QUANTUM)
        finally:
            gang.scatter()
        issued = steps * len(companions)
        if gang.dissolved:
            for warp in companions:
                if warp.active and warp.runnable:
                    issued += warp.turn(1)
        return steps, issued

    def _watch(self, warp: Warp, steps: int) -> None:
        launch = self.wave.launch
        self._idle_steps = 0 if self.changed else self._idle_steps + steps
        self.changed = False
        if launch.issued > launch.budget:
            raise self._stopped(
                BudgetExceededError(
                    f"more than {launch.budget} warp instructions issued; raise budget= if the "
                    "kernel is meant to run that long"
                ),
                warp,
            )
        if self._idle_steps > STALLED and not len(self.events):
            why = f"no thread has changed anything for {self._idle_steps} steps: an endless spin"
            raise self._stopped(LivelockError(why), warp)

    @staticmethod
    def _stopped(fault: KernelFault, warp: Warp) -> KernelFault:
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
