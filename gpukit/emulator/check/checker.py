"""The happens-before checker: listens to a launch and reports what its warps leave unordered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpukit.emulator.check.asynchronous import Asynchronous, Site
from gpukit.emulator.check.clocks import MAX_WARPS, Clocks
from gpukit.emulator.check.exits import Exits
from gpukit.emulator.check.flags import Flags
from gpukit.emulator.check.granules import granule_of
from gpukit.emulator.check.inflight import InFlight
from gpukit.emulator.check.latest import Latest
from gpukit.emulator.check.listener import Listener
from gpukit.emulator.check.meetings import Meetings
from gpukit.emulator.check.races import Races
from gpukit.emulator.check.shadow import Shadow
from gpukit.emulator.check.tensor_memory import TensorMemory
from gpukit.emulator.check.tensor_uses import COMMIT, OWN
from gpukit.emulator.check.touch import Touch, warps_of
from gpukit.emulator.sync.mbarrier import MBarrier

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpukit.emulator.check.async_ops import AsyncOp, Range
    from gpukit.emulator.check.clocks import Clock
    from gpukit.emulator.instructions import Mask
    from gpukit.emulator.lanes import Lanes
    from gpukit.emulator.mem.access import Access
    from gpukit.emulator.mem.store import Store
    from gpukit.emulator.tcgen05.tmem import Allocated
    from gpukit.emulator.warps import Warp
    from gpukit.emulator.wave import Wave


class Checker(Listener):
    """One launch's checker. docs/emulator.md states the rules."""

    def __init__(self) -> None:
        self._wave: Wave | None = None
        self._shadows: dict[Store, Shadow] = {}

    def _begin(self, wave: Wave) -> None:
        program, per_cta = wave.program, wave.lanes_per_cta // 32
        self._wave = wave
        self._granules = {space: granule_of(program, space) for space in ("shared", "global")}
        self.clocks = Clocks(len(wave.warps), per_cta)
        self.flags = Flags(self.clocks)
        self.meetings = Meetings(self.clocks, self.flags)
        self.races = Races(wave, self.clocks)
        per_cluster = per_cta * wave.cluster_size
        self._latest = Latest(self.clocks, per_cluster), Latest(self.clocks, per_cluster)
        self.inflight = InFlight(self.clocks)
        self.asynchronous = Asynchronous(wave, self.clocks, self.inflight)
        self.exits = Exits(wave, self.clocks)
        self.tensor = TensorMemory(wave, self.clocks)
        self._commits: dict[AsyncOp, Clock] = {}  # what those not yet done will publish
        grid = wave.launch.grid
        self._numbered = grid[0] * grid[1] * grid[2] * per_cta < MAX_WARPS

    # Waves

    def wave_started(self, wave: Wave) -> None:
        if self._wave is None:
            self._begin(wave)
        self.clocks.restart(wave.first_cluster * wave.cluster_size * self.clocks.warps_per_cta)
        for latest in self._latest:
            latest.restart()
        self.flags.restart()
        self.meetings.restart()
        self.exits.restart()
        self.tensor.restart()
        self._commits.clear()

    def wave_ended(self, wave: Wave) -> None:
        self.flags.end_wave()
        self.inflight.end_wave()
        if wave.shared in self._shadows:
            self.flags.drop(self._shadows[wave.shared])
            self._shadows[wave.shared].forget_async()

    # Memory

    def _shadow(self, store: Store, space: str) -> Shadow:
        shadow = self._shadows.get(store)
        if shadow is None:
            shadow = self._shadows[store] = Shadow(
                store.data.size,
                self._granules[space],
                self.clocks if space == "shared" else None,
                getattr(store, "base", 0) % 4,
            )
            if space == "shared":
                shadow.latest_writes, shadow.latest_reads = self._latest
        return shadow

    def accessed(self, lanes: Lanes, access: Access, kind: str, order: str) -> None:
        if access.space == "local" or not getattr(access.store, "writable", True):
            return
        if access.space == "global" and not self._numbered:
            return
        shadow = self._shadow(access.store, access.space)
        if kind == "read" and order == "weak" and self._postponed(lanes, access, shadow):
            return
        touch = Touch(lanes, access, shadow, self.clocks)
        weak = order == "weak"
        if not weak:
            self.flags.access(shadow, touch, kind, order)
        if kind == "read":
            self.races.read(lanes, access, shadow, touch, weak)
        else:
            self.races.write(lanes, access, shadow, touch, weak)
        if shadow.writers is not None:
            self.asynchronous.accessed(lanes, access, shadow, touch, kind, weak)
        if access.pattern.strangers:
            self.exits.accessed(access, touch)

    def _postponed(self, lanes: Lanes, access: Access, shadow: Shadow) -> bool:
        """Leave a harmless read to be noted when it matters; whether that is possible."""
        late = shadow.late_reads(lanes.lo // 32) if lanes.width == 32 else None
        if late is None:
            return False
        stamp = self.clocks.lane_stamps.item(lanes.lo) + lanes.current.pc
        late.postpone(access.pattern, access.base, stamp)
        if shadow.latest_reads is not None:
            shadow.latest_reads.note(lanes)
        return True

    # Asynchronous operations

    def async_issued(self, op: AsyncOp) -> None:
        bit = self.inflight.add(op)
        for part in op.reads:
            if self._relevant(part):
                self.asynchronous.reads(self._site(op, part), bit)
        for part in op.writes:
            if self._relevant(part):
                self.asynchronous.writes(self._site(op, part), bit)
        for writes, parts in ((False, op.reads), (True, op.writes)):
            for part in parts:
                if isinstance(part.owner, int):
                    self.exits.uses(part.owner, bit, writes, op)
        if op.kind == COMMIT:
            self._committed(op, bit)
        elif op.cells_read or op.cells_written:
            self.tensor.issued(op, bit)

    def _committed(self, op: AsyncOp, bit: int) -> None:
        """The commit will publish what it tracks, and what its thread has heard of so far."""
        assert isinstance(op.form, MBarrier)
        slot = op.form.cta.slot
        self.exits.uses(slot, bit, True, op)
        tracked = self.tensor.tracked(op, bit, slot)
        clock = self._commits[op] = self.clocks.heard(op.warp.lo // 32)
        clock.done |= tracked
        clock.read |= tracked

    def _relevant(self, part: Range) -> bool:
        if part.size == 0 or isinstance(part.owner, int):
            return part.size > 0
        return self._numbered and part.owner.writable

    def _site(self, op: AsyncOp, part: Range) -> Site:
        shared = op.warp.wave.shared
        if isinstance(part.owner, int):
            base = shared.start_of(part.owner)
            return Site(op, part, shared, self._shadow(shared, "shared"), base)
        return Site(op, part, part.owner, self._shadow(part.owner, "global"), 0)

    def barrier_signalled(self, barrier: object, phase: int, op: AsyncOp) -> None:
        if op in self._commits:
            self.meetings.publish(barrier, phase, self._commits.pop(op))
            return
        self.meetings.tell(barrier, phase, self.inflight.bits([op]))

    def group_waited(
        self, warp: Warp, mask: Mask, ops: Sequence[AsyncOp], reads_only: bool
    ) -> None:
        clock, bits = self.clocks.of_warp[warp.lo // 32], self.inflight.bits(ops)
        clock.read |= bits
        if not reads_only:
            clock.done |= bits
        if ops and ops[0].kind in OWN:
            self.tensor.waited(warp, bits)

    def tensor_allocated(self, warp: Warp, held: Allocated) -> None:
        self.tensor.allocated(warp, held)

    def tensor_freed(self, warp: Warp, held: Allocated) -> None:
        self.tensor.freed(warp, held)

    # Order

    def fenced(self, lanes: Lanes, mask: Mask, kind: str) -> None:
        for warp in warps_of(lanes, mask):
            if kind == "tcgen05.fence::before_thread_sync":
                self.tensor.fence_before(warp)
            elif kind == "tcgen05.fence::after_thread_sync":
                self.tensor.fence_after(warp)
            elif kind.startswith("fence.proxy.async"):
                self._proxy_fenced(warp, kind)
            elif "proxy" not in kind:
                self.flags.fence(warp)

    def _proxy_fenced(self, warp: int, kind: str) -> None:
        """One with ``.release`` or ``.acquire`` is also a fence of the generic proxy."""
        if ".acquire" in kind:
            self.flags.fence(warp)
        self.clocks.proxy_fence(warp)
        if ".release" in kind:
            self.flags.fence(warp)

    def barrier_created(self, warp: Warp, barrier: object) -> None:
        self.meetings.created(warp, barrier)

    def barrier_counts(self, warp: Warp, mask: Mask, barrier: object, phase: int) -> None:
        self.meetings.used(warp, warp.lo // 32, barrier)
        self.exits.signalled(warp, barrier, phase)

    def barrier_arrived(self, warp: Warp, mask: Mask, barrier: object, phase: int) -> None:
        self._arrived(warp, barrier, phase, relaxed=False)

    def barrier_arrived_relaxed(self, warp: Warp, mask: Mask, barrier: object, phase: int) -> None:
        self._arrived(warp, barrier, phase, relaxed=True)

    def _arrived(self, warp: Warp, barrier: object, phase: int, relaxed: bool) -> None:
        self.exits.signalled(warp, barrier, phase)
        self.meetings.arrive(warp, warp.lo // 32, barrier, phase, relaxed)

    def barrier_passed(self, warp: Warp, mask: Mask, barrier: object, phase: int) -> None:
        self.exits.passed(barrier, phase)
        self.meetings.passed(warp, warp.lo // 32, barrier, phase)

    def barrier_passed_relaxed(self, warp: Warp, mask: Mask, barrier: object, phase: int) -> None:
        self.exits.passed(barrier, phase)
        self.meetings.passed(warp, warp.lo // 32, barrier, phase, relaxed=True)

    def lanes_ended(self, warp: Warp, mask: Mask) -> None:
        if not warp.splits:
            self.meetings.leave(warp, warp.lo // 32)
            if self.exits.matter and warp.cta.ended:
                self.exits.cta_ended(warp.cta)
