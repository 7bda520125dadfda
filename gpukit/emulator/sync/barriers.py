"""CTA barriers: bar and barrier with ids, thread counts, arrive and reductions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from gpukit.emulator.errors import BarrierError
from gpukit.emulator.instructions import Mask, Modifiers, Op, Unsupported, op
from gpukit.emulator.outcomes import DISSOLVE, Outcome, Park
from gpukit.emulator.ptx.ir import Instr, Operand, Sink
from gpukit.emulator.ptx.types import TYPES
from gpukit.emulator.waits import WaitQueue
from gpukit.emulator.warps import Gang, Warp

if TYPE_CHECKING:
    from gpukit.emulator.assembler import Assembler
    from gpukit.emulator.cta import Cta
    from gpukit.emulator.lanes import Lanes

U32, PRED = TYPES["u32"], TYPES["pred"]
BARRIERS = 16


class Barrier:
    """One of a CTA's sixteen barriers.

    Arrival counts whole warps, as the hardware does: a warp counts once all its live lanes (a
    split warp arrives piece by piece) are here.
    """

    def __init__(self, cta: Cta, number: int) -> None:
        self.cta = cta
        self.number = number
        self.queue = WaitQueue()
        self.phase = 0  # completed so far
        self.expected: int | None = None  # warps; None = all live warps of the CTA
        self.arrived: dict[Warp, Any] = {}  # lanes that have arrived
        self.waiting: dict[Warp, Any] = {}  # those of them that wait
        self.places: dict[Warp, int] = {}  # pc of each warp's first arrival
        self.votes: list[tuple[Warp, Any, Any]] = []  # of a reduction: warp, lanes, predicates
        self.finish: Callable[[], None] | None = None  # delivers a reduction's result
        self.result: Any = None  # of the last reduction

    # Arriving

    def arrive(self, warp: Warp, mask: Mask, threads: int | None, aligned: bool) -> None:
        """Count lanes in. Raises ``BarrierError`` if they do not fit what is pending."""
        expected = None if threads is None else threads // 32
        if self.arrived and expected != self.expected:
            raise BarrierError(
                f"barrier {self.number} is used with {self._count(expected)} while it waits for "
                f"{self._count(self.expected)}"
            )
        self.expected = expected
        lanes = np.ones(32, np.bool_) if mask is None else mask
        before = self.arrived.get(warp)
        if before is not None and (before & lanes).any():
            raise BarrierError(
                f"barrier {self.number}: warp {warp.index} arrives again before it completed"
            )
        if before is not None and aligned and self.places[warp] != warp.current.pc:
            raise BarrierError(
                f"barrier {self.number}: lanes of warp {warp.index} arrive from different "
                f"instructions (divergent barrier), others at "
                f"{warp.wave.program.place(self.places[warp])}"
            )
        self.places.setdefault(warp, warp.current.pc)
        self.arrived[warp] = lanes if before is None else before | lanes
        for listener in self.cta.wave.listeners:
            listener.barrier_arrived(warp, mask, self, self.phase)

    def wait(self, warp: Warp, mask: Mask) -> None:
        """Note that these lanes do not go on before the barrier completes."""
        lanes = np.ones(32, np.bool_) if mask is None else mask
        before = self.waiting.get(warp)
        self.waiting[warp] = lanes if before is None else before | lanes

    @staticmethod
    def _count(warps: int | None) -> str:
        return "all threads" if warps is None else f"{warps * 32} threads"

    # Completing

    def complete_warps(self) -> int:
        """Warps all of whose live lanes have arrived."""
        return sum(not (warp.live & ~lanes).any() for warp, lanes in self.arrived.items())

    def needed(self) -> int:
        if self.expected is not None:
            return self.expected
        return sum(bool(warp.splits) for warp in self.cta.warps)

    def try_complete(self) -> bool:
        """Release everybody if enough warps are here."""
        if not self.arrived or self.complete_warps() < self.needed():
            return False
        if self.finish is not None:
            self.finish()
            self.finish, self.votes = None, []
        self.complete()
        return True

    def complete(self) -> None:
        """Begin the next phase and let the waiting lanes go on."""
        for listener in self.cta.wave.listeners:
            for warp, lanes in self.waiting.items():
                listener.barrier_passed(warp, lanes, self, self.phase)
        self.phase += 1
        self.arrived, self.waiting, self.places, self.expected = {}, {}, {}, None
        self.queue.wake()

    def describe(self) -> str:
        """For the deadlock report."""
        missing = [str(w.index) for w in self.cta.warps if w.splits and w not in self.arrived]
        return (
            f"barrier {self.number}: {self.complete_warps()} of {self.needed()} warps have arrived"
            + (f", not warp {', '.join(missing)}" if missing else "")
        )


class Barriers:
    """The barriers of one CTA."""

    def __init__(self, cta: Cta) -> None:
        self.items = [Barrier(cta, number) for number in range(BARRIERS)]
        cta.exit_hooks.append(self._somebody_left)

    def _somebody_left(self) -> None:
        for barrier in self.items:
            barrier.try_complete()


def barrier_of(cta: Cta, number: int) -> Barrier:
    """Barrier ``number`` of a CTA."""
    if not 0 <= number < BARRIERS:
        raise BarrierError(f"barrier {number} does not exist; a CTA has 0 to {BARRIERS - 1}")
    return cta.state(Barriers).items[number]


class _Operands:
    """Barrier id and thread count of one instruction; ``aligned`` forbids divergence."""

    def __init__(self, assembler: Assembler, operands: list[Operand], aligned: bool) -> None:
        self.aligned = aligned
        self._number = assembler.src(operands[0], U32)
        self._threads = assembler.src(operands[1], U32) if len(operands) > 1 else None

    def number(self, lanes: Lanes, mask: Mask) -> int:
        return self._uniform(lanes, mask, self._number, "barrier id")

    def threads(self, lanes: Lanes, mask: Mask) -> int | None:
        if self._threads is None:
            return None
        count = self._uniform(lanes, mask, self._threads, "thread count")
        if count == 0 or count % 32:
            raise BarrierError(f"thread count {count} is not a positive multiple of 32")
        if count > lanes.wave.lanes_per_cta:
            raise BarrierError(
                f"thread count {count} exceeds the CTA's {lanes.wave.launch.threads} threads"
            )
        return count

    @staticmethod
    def _uniform(lanes: Lanes, mask: Mask, slot: int, what: str) -> int:
        values = lanes.V[slot] if mask is None else lanes.V[slot][mask]
        if (values != values[0]).any():
            raise BarrierError(f"{what} differs between the lanes of a warp")
        return int(values[0])


def _aligned(instr: Instr, modifiers: Modifiers) -> bool:
    modifiers.drop("cta")
    return modifiers.flag("aligned") or instr.name == "bar"


@op("bar.warp.sync")
def bar_warp(instr: Instr, modifiers: Modifiers, assembler: Assembler) -> Op:
    from gpukit.emulator.warp.collective import collective

    members = assembler.src(instr.operands[0], U32)
    return collective("barrier", members, lambda lanes, group: None)


@op("bar.sync", "bar.cta.sync", "barrier.sync", "barrier.cta.sync")
def sync(instr: Instr, modifiers: Modifiers, assembler: Assembler) -> Op:
    operands = _Operands(assembler, list(instr.operands), _aligned(instr, modifiers))

    def run(lanes: Lanes, mask: Mask) -> Outcome:
        if isinstance(lanes, Gang):
            return _together(lanes, mask, operands)
        assert isinstance(lanes, Warp)
        return _arrive_and_wait(lanes, mask, operands)

    return Op("barrier", handler=run, wide=True)


def _arrive_and_wait(warp: Warp, mask: Mask, operands: _Operands) -> Outcome:
    barrier = barrier_of(warp.cta, operands.number(warp, mask))
    barrier.arrive(warp, mask, operands.threads(warp, mask), operands.aligned)
    barrier.wait(warp, mask)
    if barrier.try_complete():
        return None
    return Park(barrier.queue, barrier.describe)


def _together(gang: Gang, mask: Mask, operands: _Operands) -> Outcome:
    """A gang that holds every warp of its CTAs passes at once; otherwise warp by warp."""
    per_cta = len(gang.warps[0].cta.warps)
    whole = len(gang.warps) % per_cta == 0 and gang.warps[0].index == 0
    if not whole or mask is not None or len(gang.splits) > 1:
        return DISSOLVE
    if (gang.V[operands._number] != gang.V[operands._number][0]).any():
        return DISSOLVE
    number, threads = operands.number(gang, mask), operands.threads(gang, mask)
    if threads not in (None, per_cta * 32):
        return DISSOLVE
    for warp in gang.warps:
        barrier = barrier_of(warp.cta, number)
        barrier.arrive(warp, None, threads, False)
        barrier.wait(warp, None)
        if warp.index == per_cta - 1:
            barrier.complete()
    return None


@op("bar.arrive", "bar.cta.arrive", "barrier.arrive", "barrier.cta.arrive")
def arrive(instr: Instr, modifiers: Modifiers, assembler: Assembler) -> Op:
    aligned = _aligned(instr, modifiers)
    if len(instr.operands) != 2:
        raise Unsupported("arrive needs a barrier and a thread count")
    operands = _Operands(assembler, list(instr.operands), aligned)

    def run(lanes: Lanes, mask: Mask) -> Outcome:
        assert isinstance(lanes, Warp)
        barrier = barrier_of(lanes.cta, operands.number(lanes, mask))
        barrier.arrive(lanes, mask, operands.threads(lanes, mask), operands.aligned)
        barrier.try_complete()
        return None

    return Op("barrier", handler=run)


@op("bar.red", "bar.cta.red", "barrier.red", "barrier.cta.red")
def reduce(instr: Instr, modifiers: Modifiers, assembler: Assembler) -> Op:
    """d = popc, and, or of a predicate over all threads of the barrier."""
    aligned = _aligned(instr, modifiers)
    kind = modifiers.pick("popc", "and", "or")
    type_ = modifiers.type()
    target, *rest = instr.operands
    operands = _Operands(assembler, rest[:-1], aligned)
    negated = hasattr(rest[-1], "operand")
    vote = assembler.src(rest[-1].operand if negated else rest[-1], PRED)  # type: ignore[union-attr]
    d = assembler.scratch(type_) if isinstance(target, Sink) else assembler.dst(target, type_)

    def run(lanes: Lanes, mask: Mask) -> Outcome:
        assert isinstance(lanes, Warp)
        barrier = barrier_of(lanes.cta, operands.number(lanes, mask))
        active = np.ones(32, np.bool_) if mask is None else mask
        votes = (lanes.V[vote] ^ negated)[active]
        barrier.arrive(lanes, mask, operands.threads(lanes, mask), operands.aligned)
        barrier.votes.append((lanes, active, votes))
        barrier.wait(lanes, mask)
        barrier.finish = lambda: _deliver(barrier, kind, d)
        if barrier.try_complete():
            return None
        return Park(barrier.queue, barrier.describe)

    return Op("barrier", handler=run)


def _deliver(barrier: Barrier, kind: str, d: int) -> None:
    every = np.concatenate([votes for _, _, votes in barrier.votes])
    result = {"popc": every.sum(), "and": every.all(), "or": every.any()}[kind]
    for warp, active, _ in barrier.votes:
        warp.V[d][active] = result
    if result != barrier.result:
        barrier.cta.wave.scheduler.changed = True
        barrier.result = result
