"""The mbarrier object: phases, pending arrivals and transaction bytes, and what may go wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpukit.emulator.errors import BarrierError, KernelFault, RemoteAccessError
from gpukit.emulator.lanes import Split
from gpukit.emulator.waits import WaitQueue

if TYPE_CHECKING:
    from gpukit.emulator.check.async_ops import AsyncOp
    from gpukit.emulator.cta import Cta
    from gpukit.emulator.warps import Warp

MAX_COUNT = (1 << 20) - 1
COUNT_BITS = 20


class MBarrier:
    """One live mbarrier of a CTA. ``phase`` counts completed phases."""

    def __init__(self, cta: Cta, offset: int, count: int) -> None:
        if not 1 <= count <= MAX_COUNT:
            raise BarrierError(f"mbarrier.init: count {count} is not in 1 to {MAX_COUNT}")
        self.cta = cta
        self.offset = offset
        self.phase = 0
        self.expected = count
        self.pending = count
        self.tx = 0
        self.queue = WaitQueue()
        self.in_flight = 0  # bytes of issued copies that will signal this barrier
        self._seen = -1  # latest completed phase that some thread has observed
        self._sleeping: set[Warp] = set()
        self._woken: set[Warp] = set()  # have not looked yet since their phase completed

    @property
    def name(self) -> str:
        return f"mbarrier at shared 0x{self.offset:x} of CTA {self.cta.position}"

    def describe(self) -> str:
        """State in words."""
        return (
            f"{self.name} (phase {self.phase}, {self.pending} of {self.expected} arrivals "
            f"pending, {self.tx} bytes of tx-count)"
        )

    def error(self, what: str) -> BarrierError:
        """A complaint that ends with the barrier's state."""
        return BarrierError(f"{what}: {self.describe()}", address=self.offset)

    @property
    def token(self) -> int:
        """The opaque state that arrive returns."""
        return self.phase << COUNT_BITS | self.pending

    # Signalling

    def arrive(self, count: int, *, completes: bool = True, drop: bool = False) -> None:
        """Arrive-on by ``count``. Raises ``BarrierError`` on an overrun of the phase."""
        self._check_alive()
        if not 1 <= count <= MAX_COUNT:
            raise self.error(f"arrive count {count} is not in 1 to {MAX_COUNT}")
        if count > self.pending:
            raise self.error(f"phase overrun: {count} arrivals are more than the phase expects")
        if self._seen < self.phase - 1:
            raise self.error(
                f"phase overrun: an arrival in phase {self.phase} before any thread has seen "
                f"phase {self.phase - 1} complete"
            )
        self.pending -= count
        if drop:
            self.expected -= count
        if not completes and self.pending == 0 and self.tx == 0:
            raise self.error("arrive.noComplete completes the phase")
        self.settle()

    def expect(self, size: int) -> None:
        """Add bytes that the current phase waits for."""
        self._check_alive()
        self._add_tx(size)

    def complete_tx(self, size: int) -> None:
        """Bytes have arrived."""
        self._check_alive()
        self._add_tx(-size)
        self.settle()

    def _add_tx(self, size: int) -> None:
        self.tx += size
        if abs(self.tx) > MAX_COUNT:
            raise self.error(f"tx-count leaves the range of +-{MAX_COUNT}")

    def more_pending(self, count: int) -> None:
        """More arrivals are due (cp.async.mbarrier.arrive without .noinc)."""
        self.pending += count
        if self.pending > MAX_COUNT:
            raise self.error(f"pending count exceeds {MAX_COUNT}")

    def settle(self) -> None:
        """Complete the phase if nothing is missing."""
        self.cta.wave.scheduler.changed = True
        self.cta.cluster[0].state(Patience).spent.clear()
        if self.pending == 0 and self.tx == 0:
            self._next_phase()

    def _next_phase(self) -> None:
        if self.in_flight:
            raise self.error(
                f"the phase completes while copies of {self.in_flight} bytes that signal it are "
                "still in flight (expect_tx is too small)"
            )
        if self._woken:
            who = ", ".join(sorted(f"warp {warp.index}" for warp in self._woken))
            raise self.error(f"phase overrun: a phase completes before {who} has seen the last one")
        self._woken, self._sleeping = self._sleeping, set()
        self.phase += 1
        self.pending = self.expected
        self.queue.wake()

    def _check_alive(self) -> None:
        if self.cta.ended:
            fault = self.error("signals a CTA that has exited")
            self.cta.wave.launch.rules.report("exits", fault)

    def require_running(self, warp: Warp) -> None:
        """A warp signals the barrier, now or later: its CTA must not have exited."""
        if self.cta.ended and self.cta is not warp.cta:
            fault = RemoteAccessError(
                f"signals a CTA that has exited: {self.describe()}", address=self.offset
            )
            warp.wave.launch.rules.report("exits", fault)

    # Waiting

    def phase_of_parity(self, parity: int) -> int:
        """Which phase, the current or the one before, has this parity."""
        if parity not in (0, 1):
            raise self.error(f"phase parity {parity} is not 0 or 1")
        return self.phase if parity == self.phase & 1 else self.phase - 1

    def phase_of_token(self, token: int) -> int:
        """The phase of a state that arrive returned; must be this phase or the one before."""
        phase = token >> COUNT_BITS
        if phase not in (self.phase, self.phase - 1):
            raise self.error(
                f"waits for phase {phase}; only the current phase and the one before can be tested"
            )
        return phase

    def passed(self, warp: Warp, phase: int) -> bool:
        """Whether a phase is over; if so the warp has seen it."""
        self._woken.discard(warp)
        if phase == self.phase:
            return False
        self._seen = max(self._seen, phase)
        return True

    def observed(self, phase: int) -> bool:
        """Whether some thread has seen that a phase is over."""
        return self._seen >= phase

    def sleeps(self, warp: Warp) -> None:
        """A warp parks until the current phase completes."""
        self._sleeping.add(warp)

    def stops_waiting(self, warp: Warp) -> None:
        """A parked warp goes on although the phase is not over."""
        self._sleeping.discard(warp)


class Patience:
    """Waits of a cluster whose time limit ran out since any of its mbarriers last changed."""

    def __init__(self, cta: Cta) -> None:
        self.spent: set[tuple[Warp, MBarrier]] = set()
        self.polls: dict[tuple[Warp, MBarrier], tuple[int, int]] = {}  # phase, how often

    def expire(self, warp: Warp, barrier: MBarrier) -> bool:
        """Whether this wait may end early once more."""
        key = (warp, barrier)
        if key in self.spent:
            return False
        self.spent.add(key)
        return True


class MBarriers:
    """The live mbarriers of one CTA, by offset."""

    def __init__(self, cta: Cta) -> None:
        self.cta = cta
        self.items: dict[int, MBarrier] = {}
        cta.exit_hooks.append(self._check_exit)

    def create(self, offset: int, count: int) -> MBarrier:
        """mbarrier.init"""
        if offset in self.items:
            raise self.items[offset].error(
                "mbarrier.init on a live mbarrier; mbarrier.inval it first"
            )
        made = self.items[offset] = MBarrier(self.cta, offset, count)
        shared = self.cta.wave.shared
        shared.guard(shared.start_of(self.cta.slot) + offset)
        return made

    def destroy(self, offset: int) -> None:
        """mbarrier.inval"""
        barrier = self.find(offset)
        if barrier.in_flight or len(barrier.queue):
            raise barrier.error("mbarrier.inval while somebody waits or copies are in flight")
        del self.items[offset]
        shared = self.cta.wave.shared
        shared.release(shared.start_of(self.cta.slot) + offset)

    def find(self, offset: int) -> MBarrier:
        """The live mbarrier at an offset."""
        found = self.items.get(offset)
        if found is None:
            raise BarrierError(
                f"shared 0x{offset:x} of CTA {self.cta.position} holds no initialised mbarrier",
                address=offset,
            )
        return found

    def _check_exit(self) -> None:
        """At the end of the CTA every expected byte must have come, and no other."""
        if not self.cta.ended:
            return
        for barrier in self.items.values():
            if barrier.tx and not barrier.in_flight:
                fault = self._unbalanced(barrier)
                rule = "exits" if isinstance(fault, RemoteAccessError) else ""
                self.cta.wave.launch.rules.report(rule, fault)

    def _unbalanced(self, barrier: MBarrier) -> KernelFault:
        what = f"tx mismatch: the CTA exits with a tx-count of {barrier.tx} bytes"
        running = [f"CTA {cta.position}" for cta in self.cta.cluster if not cta.ended]
        if barrier.tx > 0 and running:
            return RemoteAccessError(
                f"{what}, which {' or '.join(running)} may still send: {barrier.describe()}",
                address=barrier.offset,
            )
        return barrier.error(what)


def signal_tx(barrier: MBarrier, size: int, op: AsyncOp) -> None:
    """complete-tx by an asynchronous operation that announced itself with ``announce``."""
    barrier.in_flight -= size
    _tell(barrier, op)
    barrier.complete_tx(size)


def announce(barrier: MBarrier, size: int) -> None:
    """An operation was issued that will signal ``size`` bytes."""
    barrier.in_flight += size


def signal_arrival(barrier: MBarrier, count: int, ops: list[AsyncOp]) -> None:
    """Arrive-on by the system once asynchronous operations have completed."""
    for op in ops:
        _tell(barrier, op)
    barrier.arrive(count)


def _tell(barrier: MBarrier, op: AsyncOp) -> None:
    for listener in op.warp.wave.listeners:
        listener.barrier_signalled(barrier, barrier.phase, op)


def let_go(warp: Warp, barrier: MBarrier, predicate: int, split: Split) -> bool:
    """End a try_wait without success, as after its time limit; False to insist on waiting."""
    patience = barrier.cta.cluster[0].state(Patience)
    if not patience.expire(warp, barrier):
        return False
    barrier.stops_waiting(warp)
    warp.V[predicate][slice(None) if split.mask is None else split.mask] = False
    split.pc += 1
    return True
