"""Who runs next. Nothing spins: parked splits wait for whoever wakes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpukit.emulator.errors import BudgetExceededError, KernelFault, LivelockError
from gpukit.emulator.events import EventQueue
from gpukit.emulator.lanes import Lanes, Split
from gpukit.emulator.spins import LONGEST_LISTING, Spins
from gpukit.emulator.warps import Gang, Warp

if TYPE_CHECKING:
    from gpukit.emulator.wave import Wave

GANG_QUANTUM = 1 << 15
QUIET = 2_000  # steps without a change before those who poll are watched
FAIR = 20_000  # ... before also the warps that a policy starves run
SILENT = 1_000_000  # ... before also loops are watched in which nobody polls
STALLED = 20_000_000  # ... before loops that count are called endless all the same
GLIMPSE = 64  # steps of a gang that is watched while it polls
LAST_LOOK = 512  # instructions of a warp that spins, for the report


class Scheduler:
    """Runs the warps of one wave until all have ended.

    ``changed`` is set by everything that other warps can see: a spin that waits for it ends, or
    is reported. ``polls`` counts looks at what others change since it was last set.
    """

    def __init__(self, wave: Wave) -> None:
        self.wave = wave
        self.policy = wave.launch.policy
        self.events = EventQueue(self.policy)
        self.changed = True
        self.polls = 0
        self._woken = False
        self._spins = Spins()
        self._quiet_steps = 0  # without a change
        self._idle_steps = 0  # and without a wake
        self._gangs: dict[tuple[int, int], Gang] = {}

    def run(self) -> None:
        """Run to the end. Raises ``DeadlockError``, ``LivelockError``, ``BudgetExceededError``."""
        events, spins = self.events, self._spins
        while True:
            if events.run_due():
                self._something_completed()
            ready = [warp for warp in self.wave.warps if warp.runnable]
            worthy = spins.worth_a_turn(ready)
            if worthy:
                self._turn(worthy)
            elif events.jump():
                self._something_completed()
            elif not self._expire():
                if any(warp.active for warp in self.wave.warps):
                    raise self._endless_spin(ready) if ready else self.wave.deadlock()
                return

    def _something_completed(self) -> None:
        self.changed = True
        self._spins.clear()

    def ready(self, warp: Lanes) -> None:
        """A split of ``warp`` was woken."""
        self._woken = self._spins.woken = True
        for listener in self.wave.listeners:
            listener.woken(warp)

    def told_time(self) -> int:
        """The time, for a warp that reads the clock: its spin may end by that."""
        self._spins.clear()
        return self.events.now

    def _endless_spin(self, spinning: list[Warp]) -> LivelockError:
        """Each goes round once more by itself: in a gang only one lane's polls are noted."""
        for warp in spinning[:LONGEST_LISTING]:
            warp.turn(LAST_LOOK)
        return self.wave.endless_spin("nothing that these warps poll can change")

    def _expire(self) -> bool:
        """Nothing will ever happen: let waits that have a time limit run out, one by one."""
        for warp in self.wave.warps:
            for split in warp.splits:
                park = split.park
                if park is not None and park.expire is not None and park.expire(split):
                    park.queue.discard(split)
                    split.park = None
                    self._spins.resume(warp)
                    return True
        return False

    def _turn(self, ready: list[Warp]) -> None:
        spinning = self._quiet_steps > FAIR
        warp = ready[self._quiet_steps % len(ready)] if spinning else self.policy.pick(ready)
        companions = self._companions(warp)
        if len(companions) > 1:
            steps, issued = self._together(companions)
        else:
            steps = issued = warp.turn(self.policy.quantum())
        self.events.now += issued
        self.wave.launch.issued += issued
        self._watch(companions, steps)

    def _together(self, companions: list[Warp]) -> tuple[int, int]:
        """Run warps as a gang, then what the gang could not do warp by warp.

        Each gets past that before any goes further, so that they meet again behind it.
        """
        steps, dissolved = 0, True
        if self.wave.program.worth_a_gang(companions[0].splits[0].pc):
            gang = self._gang(companions)
            gang.gather()
            try:
                steps = gang.turn(GLIMPSE if self.polls and self._watching else GANG_QUANTUM)
            finally:
                gang.scatter()
            dissolved = gang.dissolved
        issued = steps * len(companions)
        if dissolved:
            alone = [warp.step_past() for warp in companions]
            steps += max(alone)
            issued += sum(alone)
        return steps, issued

    @property
    def _watching(self) -> bool:
        """Whether nothing has changed for a while; for a long one if nobody polls."""
        return self._quiet_steps > (QUIET if self.polls else SILENT)

    def _watch(self, warps: list[Warp], steps: int) -> None:
        launch = self.wave.launch
        if self.changed:
            self._quiet_steps = self.polls = 0
            self._spins.clear()
        else:
            self._quiet_steps += steps
            if self._watching:
                self._spins.ran(warps, steps)
        self._idle_steps = 0 if self.changed or self._woken else self._idle_steps + steps
        self.changed = self._woken = False
        if launch.issued > launch.budget:
            raise self._stopped(
                BudgetExceededError(
                    f"more than {launch.budget} warp instructions issued; raise budget= if the "
                    "kernel is meant to run that long"
                ),
                warps[0],
            )
        if self._idle_steps > STALLED and not len(self.events):
            raise self.wave.endless_spin(f"no thread has changed anything for {STALLED} steps")

    @staticmethod
    def _stopped(fault: KernelFault, warp: Warp) -> KernelFault:
        fault.locate(warp.where())
        return fault

    def _companions(self, warp: Warp) -> list[Warp]:
        """Consecutive warps, with this one, that stand converged at the same instruction."""
        split = warp.single
        if split is None:
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
