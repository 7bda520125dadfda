"""A CTA ends: nobody may use its shared memory any more, mbarriers included.

In a schedule where a peer's use came before the exit, the exit must also be ordered after it: some
warp of the CTA has heard of the use, or has seen the phase complete that an arrival counted for.
(Where the use comes after the exit, it is refused when it happens.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpukit.emulator.check import places
from gpukit.emulator.check.clocks import MOMENT, Clocks
from gpukit.emulator.check.tensor_uses import COMMIT
from gpukit.emulator.errors import KernelFault, PendingAsyncError, RemoteAccessError
from gpukit.emulator.sync.mbarrier import MBarrier

if TYPE_CHECKING:
    from gpukit.emulator.check.async_ops import AsyncOp
    from gpukit.emulator.check.touch import Touch
    from gpukit.emulator.cta import Cta
    from gpukit.emulator.mem.access import Access
    from gpukit.emulator.warps import Warp
    from gpukit.emulator.wave import Wave


class Exits:
    """What uses each CTA's shared memory besides its own warps."""

    def __init__(self, wave: Wave, clocks: Clocks) -> None:
        self._wave = wave
        self._clocks = clocks
        self._users: dict[int, list[tuple[int, bool, AsyncOp]]] = {}  # by CTA slot
        self._touched: dict[int, dict[int, tuple[int, int]]] = {}  # ... and warp: stamp, address
        self._signals: dict[MBarrier, dict[int, tuple[int, int]]] = {}  # ... by warp: stamp, phase

    def restart(self) -> None:
        for uses in (self._users, self._touched, self._signals):
            uses.clear()

    # Uses

    def uses(self, slot: int, bit: int, writes: bool, op: AsyncOp) -> None:
        """An asynchronous operation reads or writes this CTA's shared memory."""
        self._users.setdefault(slot, []).append((bit, writes, op))

    def accessed(self, access: Access, touch: Touch) -> None:
        """Some lanes access other CTAs' shared memory. A warp's last access stands for all."""
        stride, per_cta = self._wave.shared.stride, self._clocks.warps_per_cta
        for position, start in enumerate(access.bytes.tolist()):
            slot, first = start // stride, position * touch.per_lane
            warp = touch.warp(first)
            if slot != warp // per_cta:
                address = access.store.address_of(start)
                self._touched.setdefault(slot, {})[warp] = touch.stamp(first), address

    def signalled(self, warp: Warp, barrier: object, phase: int) -> None:
        """A warp arrives at an mbarrier, or changes its tx-count, while ``phase`` is current."""
        if isinstance(barrier, MBarrier) and barrier.cta is not warp.cta:
            stamp = self._clocks.lane_stamps.item(warp.lo) + warp.current.pc
            self._signals.setdefault(barrier, {})[warp.lo // 32] = stamp, phase

    def passed(self, barrier: object, phase: int) -> None:
        """The CTA has seen the end of an mbarrier's phase, and with it all that it counted."""
        if self._signals and isinstance(barrier, MBarrier) and barrier in self._signals:
            later = {w: s for w, s in self._signals[barrier].items() if s[1] > phase}
            self._signals[barrier] = later

    # The end

    @property
    def matter(self) -> bool:
        """Whether anything can be wrong with the end of a CTA."""
        return bool(self._users or self._touched or self._signals)

    def cta_ended(self, cta: Cta) -> None:
        """All warps of the CTA have exited."""
        if cta.slot in self._users:
            self._check_operations(cta)
        if self._touched or self._signals:
            self._check_peers(cta)

    def _check_operations(self, cta: Cta) -> None:
        done = read = 0
        for warp in cta.warps:
            clock = self._clocks.of_warp[warp.lo // 32]
            done |= clock.done
            read |= clock.read
        for bit, writes, op in self._users[cta.slot]:
            if not bit & (done if writes else read):
                self._report(self._pending(cta, writes, op))

    def _report(self, fault: KernelFault) -> None:
        self._wave.launch.rules.report("exits", fault)

    def _pending(self, cta: Cta, writes: bool, op: AsyncOp) -> KernelFault:
        own = op.warp.cta is cta
        whose, use = "" if own else f" of CTA {op.warp.cta.position}", "write" if writes else "read"
        use = "signal an mbarrier in" if op.kind == COMMIT else use
        what = (
            f"CTA {cta.position} exits while a {op.kind}{whose} may still {use} its shared memory "
            f"({places.shortened(op.place)}); wait for it first"
        )
        return PendingAsyncError(what) if own else RemoteAccessError(what)

    def _check_peers(self, cta: Cta) -> None:
        """Accesses and signals by other CTAs of the cluster must have been waited for."""
        touched = self._touched.get(cta.slot, {})
        for warp, (stamp, address) in touched.items():
            if self._unheard(cta, warp, stamp):
                fault = RemoteAccessError(
                    f"CTA {cta.position} exits although nothing orders that after the access of "
                    f"{places.of_stamp(self._wave, stamp)} to its shared memory at 0x{address:x}; "
                    "a cluster barrier is missing",
                    address=address,
                )
                self._report(fault)
        for barrier in [b for b in self._signals if b.cta is cta]:
            for warp, (stamp, phase) in self._signals[barrier].items():
                if self._unheard(cta, warp, stamp):
                    fault = RemoteAccessError(
                        f"CTA {cta.position} exits although nothing orders that after the signal "
                        f"of {places.of_stamp(self._wave, stamp)} to its mbarrier at shared "
                        f"0x{barrier.offset:x}; wait for the end of its phase {phase} first, or "
                        "end with a cluster barrier",
                        address=barrier.offset,
                    )
                    self._report(fault)

    def _unheard(self, cta: Cta, warp: int, stamp: int) -> bool:
        first, count = cta.slot * self._clocks.warps_per_cta, self._clocks.warps_per_cta
        return bool(stamp & MOMENT >= self._clocks.seen[first : first + count, warp].max())
