"""The mbarrier instructions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from gpukit.emulator.errors import BarrierError
from gpukit.emulator.instructions import Expr, Mask, Modifiers, Op, Unsupported, alu, op
from gpukit.emulator.mem.points import Point, lane_numbers, shared_point, take_shared_space
from gpukit.emulator.outcomes import Outcome
from gpukit.emulator.ptx.ir import Instr, Operand, Sink
from gpukit.emulator.ptx.types import TYPES
from gpukit.emulator.sync.mbarrier import COUNT_BITS, MAX_COUNT, MBarrier, MBarriers
from gpukit.emulator.warps import Warp

if TYPE_CHECKING:
    from gpukit.emulator.assembler import Assembler
    from gpukit.emulator.lanes import Lanes

U32, U64 = TYPES["u32"], TYPES["u64"]
BYTES = 8


def barriers_at(warp: Warp, address: int, space: str) -> tuple[MBarriers, int]:
    """The CTA's barriers and the offset that an mbarrier address means."""
    cta, offset = shared_point(warp, address, space, BYTES, BYTES)
    return cta.state(MBarriers), offset


def barrier_at(warp: Warp, address: int, space: str) -> MBarrier:
    """The live mbarrier at an address."""
    barriers, offset = barriers_at(warp, address, space)
    found = barriers.find(offset)
    found.require_running(warp)
    return found


def own_barriers_at(warp: Warp, address: int, space: str) -> tuple[MBarriers, int]:
    """As ``barriers_at``, for what works only on the warp's own CTA."""
    barriers, offset = barriers_at(warp, address, space)
    if barriers.cta is not warp.cta:
        raise BarrierError(
            f"0x{address:x} is in the shared memory of rank {barriers.cta.rank}; this works on the "
            "own CTA's mbarriers only",
            address=address,
        )
    return barriers, offset


class Groups:
    """Splits the active lanes by mbarrier address and one more operand; usually into one group."""

    def __init__(self, assembler: Assembler, address: Operand, value: int | None) -> None:
        self._point = Point(assembler, address)
        self._base, self._offset = assembler.address(address)
        self._value = value

    def of(self, warp: Warp, mask: Mask) -> Iterator[tuple[Mask, int, int]]:
        """Triples of (lanes, address, value)."""
        if not self._same_for_all(warp, mask):
            yield from self._divided(warp, mask)
            return
        first = 0 if mask is None else int(mask.argmax())
        value = 0 if self._value is None else warp.V[self._value].item(first)
        yield mask, self._point.at(warp, first), value

    def _same_for_all(self, warp: Warp, mask: Mask) -> bool:
        if mask is not None and mask.tobytes().count(1) == 1:
            return True
        rows = [warp.V[self._base]]
        if self._value is not None:
            rows.append(warp.V[self._value])
        return all(_uniform(row if mask is None else row[mask]) for row in rows)

    def _divided(self, warp: Warp, mask: Mask) -> Iterator[tuple[Mask, int, int]]:
        members: dict[tuple[int, int], Any] = {}
        for lane in lane_numbers(mask):
            value = warp.V[self._value].item(lane) if self._value is not None else 0
            key = (self._point.at(warp, lane), value)
            members.setdefault(key, np.zeros(32, np.bool_))[lane] = True
        for (address, value), lanes in members.items():
            yield lanes, address, value


def _uniform(row: Any) -> bool:
    raw = row.tobytes()
    size = row.itemsize
    return bool(raw == raw[:size] * row.size)


def _count(mask: Mask) -> int:
    return 32 if mask is None else int(np.count_nonzero(mask))


def per_barrier(
    groups: Groups, space: str, action: Callable[[Warp, Mask, MBarrier, int], None]
) -> Op:
    """An operation on the mbarrier at an address, for each group of lanes."""

    def run(lanes: Lanes, mask: Mask) -> Outcome:
        assert isinstance(lanes, Warp)
        for part, address, value in groups.of(lanes, mask):
            action(lanes, part, barrier_at(lanes, address, space), value)
        return None

    return Op("mbarrier", handler=run)


@op("mbarrier.init")
def init(instr: Instr, modifiers: Modifiers, assembler: Assembler) -> Op:
    space = take_own_space(modifiers)
    modifiers.drop("b64")
    groups = Groups(assembler, instr.operands[0], assembler.src(instr.operands[1], U32))

    def run(lanes: Lanes, mask: Mask) -> Outcome:
        assert isinstance(lanes, Warp)
        for _, address, count in groups.of(lanes, mask):
            barriers, offset = own_barriers_at(lanes, address, space)
            made = barriers.create(offset, count)
            for listener in lanes.wave.listeners:
                listener.barrier_created(lanes, made)
        return None

    return Op("mbarrier", handler=run)


@op("mbarrier.inval")
def inval(instr: Instr, modifiers: Modifiers, assembler: Assembler) -> Op:
    space = take_own_space(modifiers)
    modifiers.drop("b64")
    groups = Groups(assembler, instr.operands[0], None)

    def run(lanes: Lanes, mask: Mask) -> Outcome:
        assert isinstance(lanes, Warp)
        for _, address, _ in groups.of(lanes, mask):
            barriers, offset = own_barriers_at(lanes, address, space)
            barriers.destroy(offset)
        return None

    return Op("mbarrier", handler=run)


def take_own_space(modifiers: Modifiers) -> str:
    """Take a state space that is not another CTA's."""
    space = take_shared_space(modifiers)
    if space == "cluster":
        raise Unsupported("works on the own CTA's mbarriers only (.shared::cta)")
    return space


def take_semantics(modifiers: Modifiers, default: str) -> bool:
    """Take order and scope; returns whether the order is relaxed."""
    order = modifiers.pick("relaxed", "release", "acquire", default=default)
    modifiers.drop("cta", "cluster", "b64")
    return order == "relaxed"


@op("mbarrier.expect_tx", "mbarrier.complete_tx")
def transactions(instr: Instr, modifiers: Modifiers, assembler: Assembler) -> Op:
    space = take_shared_space(modifiers)
    take_semantics(modifiers, "relaxed")
    groups = Groups(assembler, instr.operands[0], assembler.src(instr.operands[1], U32))
    expects = instr.mods[0] == "expect_tx"

    def act(warp: Warp, mask: Mask, barrier: MBarrier, size: int) -> None:
        for listener in warp.wave.listeners:
            listener.barrier_counts(warp, mask, barrier, barrier.phase)
        if expects:
            barrier.expect(size * _count(mask))
            barrier.settle()
        else:
            barrier.complete_tx(size * _count(mask))

    return per_barrier(groups, space, act)


@op("mbarrier.arrive", "mbarrier.arrive_drop")
def arrive(instr: Instr, modifiers: Modifiers, assembler: Assembler) -> Op:
    drop = instr.mods[0] == "arrive_drop"
    expects, completes = modifiers.flag("expect_tx"), not modifiers.flag("noComplete")
    space = take_shared_space(modifiers)
    relaxed = take_semantics(modifiers, "release")
    target, address, *rest = instr.operands
    if not isinstance(target, Sink) and space == "cluster":
        raise Unsupported("an arrive on .shared::cluster returns no state, use _")
    value = assembler.src(rest[0], U32) if rest else None
    groups = Groups(assembler, address, value)
    state = None if isinstance(target, Sink) else assembler.dst(target, U64)

    def act(warp: Warp, mask: Mask, barrier: MBarrier, given: int) -> None:
        if state is not None and barrier.cta is not warp.cta:
            raise barrier.error("an arrive on another CTA's mbarrier returns no state, use _")
        for listener in warp.wave.listeners:
            tell = listener.barrier_arrived_relaxed if relaxed else listener.barrier_arrived
            tell(warp, mask, barrier, barrier.phase)
        if expects:
            barrier.expect(given * _count(mask))
        count = given if rest and not expects else 1
        _arrive(warp, mask, barrier, count, completes, drop, state)

    return per_barrier(groups, space, act)


def _arrive(
    warp: Warp,
    mask: Mask,
    barrier: MBarrier,
    count: int,
    completes: bool,
    drop: bool,
    state: int | None,
) -> None:
    """The lanes arrive one after the other; each gets the state before its own arrival."""
    if state is None:
        total = count * _count(mask)
        barrier.arrive(total if 0 < count <= MAX_COUNT else count, completes=completes, drop=drop)
        return
    for lane in lane_numbers(mask):
        warp.V[state][lane] = barrier.token
        barrier.arrive(count, completes=completes, drop=drop)


@alu("mbarrier.pending_count")
def pending_count(modifiers: Modifiers) -> Expr:
    modifiers.drop("b64")
    mask = np.uint64((1 << COUNT_BITS) - 1)
    return Expr(lambda state: (state & mask).astype(np.uint32), (U64,), U32, category="mbarrier")
