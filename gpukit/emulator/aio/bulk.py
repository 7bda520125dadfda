"""cp.async.bulk and cp.reduce.async.bulk: one thread moves a contiguous block."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from gpukit.emulator.aio import engine
from gpukit.emulator.aio.blocks import Block, global_block, shared_block
from gpukit.emulator.aio.cp_async import constant
from gpukit.emulator.aio.groups import AsyncGroups, BulkGroups
from gpukit.emulator.aio.reductions import Reduction, take_reduction
from gpukit.emulator.aio.signals import Signals, receivers, take_completion
from gpukit.emulator.errors import KernelFault, OutOfBoundsError
from gpukit.emulator.instructions import Mask, Modifiers, Op, Unsupported, op
from gpukit.emulator.mem.points import Point, lane_numbers
from gpukit.emulator.mem.spaces import require
from gpukit.emulator.outcomes import Outcome
from gpukit.emulator.ptx.ir import Instr
from gpukit.emulator.ptx.types import TYPES
from gpukit.emulator.warps import Warp

if TYPE_CHECKING:
    from gpukit.emulator.assembler import Assembler
    from gpukit.emulator.lanes import Lanes

U16, U32 = TYPES["u16"], TYPES["u32"]
CHUNK = 16
SPACES = ("global", "shared::cta", "shared::cluster")
PerLane = Callable[[Warp, int], None]


def per_lane(category: str, action: PerLane) -> Op:
    """Every active lane issues an operation of its own (normally there is one)."""

    def run(lanes: Lanes, mask: Mask) -> Outcome:
        assert isinstance(lanes, Warp)
        for lane in lane_numbers(mask):
            try:
                action(lanes, lane)
            except KernelFault as fault:
                fault.lane = lane if fault.lane is None else fault.lane
                raise
        return None

    return Op(category, handler=run)


def take_direction(modifiers: Modifiers) -> tuple[str, str]:
    """Take the destination's and the source's state space, in that order."""
    spaces = [word for word in modifiers.words if word in SPACES]
    require(len(spaces) == 2, "needs a destination and a source state space")
    modifiers.drop(*SPACES)
    return spaces[0], spaces[1]


@dataclass(frozen=True, slots=True)
class _Copy:
    """The decoded operands of one instruction."""

    to: Point
    source: Point
    size: int  # slots
    barrier: Point | None
    mask: int | None
    to_space: str
    source_space: str
    reduction: Reduction | None

    def bytes(self, warp: Warp, lane: int) -> int:
        size: int = warp.V[self.size].item(lane)
        if size % CHUNK or size == 0:
            raise KernelFault(
                f"a bulk copy of {size} bytes; the size must be a positive multiple of 16"
            )
        return size


@op("cp.async.bulk", "cp.reduce.async.bulk")
def bulk(instr: Instr, modifiers: Modifiers, assembler: Assembler) -> Op:
    to_space, source_space = take_direction(modifiers)
    signals = take_completion(modifiers)
    multicast, hinted = modifiers.flag("multicast::cluster"), modifiers.flag("L2::cache_hint")
    reduces = instr.name == "cp" and instr.mods[0] == "reduce"
    reduction = take_reduction(modifiers, to_space) if reduces else None
    to, source, size, *rest = instr.operands
    require(len(rest) == signals + multicast + hinted, "has a wrong number of operands")
    copy = _Copy(
        Point(assembler, to),
        Point(assembler, source),
        assembler.src(size, U32),
        Point(assembler, rest[0]) if signals else None,
        assembler.src(rest[1], U16) if multicast else None,
        to_space,
        source_space,
        reduction,
    )
    return per_lane("async copy", _action(copy, to_space, source_space, bool(signals)))


def _action(copy: _Copy, to: str, source: str, signals: bool) -> PerLane:
    if source == "global" and to != "global" and signals and copy.reduction is None:
        return lambda warp, lane: _load(warp, lane, copy)
    if source == "shared::cta" and to == "shared::cluster" and signals:
        return lambda warp, lane: _to_peer(warp, lane, copy)
    if source == "shared::cta" and to == "global" and not signals:
        return lambda warp, lane: _store(warp, lane, copy)
    raise Unsupported(f"a copy from .{source} to .{to} does not exist in this form")


def _load(warp: Warp, lane: int, copy: _Copy) -> None:
    """Global to shared memory, of one CTA or of several."""
    size = copy.bytes(warp, lane)
    source = global_block(warp, copy.source.at(warp, lane), size)
    space = copy.to_space.removeprefix("shared::")
    first = shared_block(warp, copy.to.at(warp, lane), space, size, CHUNK)
    assert copy.barrier is not None
    selected = warp.V[copy.mask].item(lane) if copy.mask is not None else None
    ctas = receivers(warp, first.cta, selected)
    targets = [first.on(cta) for cta in ctas]
    signals = Signals.find(warp, copy.barrier.at(warp, lane), space, first.cta, ctas, size)
    count_load(warp, size, len(ctas))

    for number, target in enumerate(targets):  # each receives its copy at a time of its own
        made = engine.issue(
            warp, engine.one_lane(lane), "bulk_load", (source.range,), (target.range,)
        )
        signals.after(partial(source.copy_to, target), made, number)


def count_load(warp: Warp, size: int, receivers: int) -> None:
    """Bytes from L2, once for all CTAs that receive them, and what that saved."""
    launch = warp.wave.launch
    launch.count("l2_to_shared_bytes", size)
    if receivers > 1:
        launch.count("multicast_saved_bytes", size * (receivers - 1))


def _to_peer(warp: Warp, lane: int, copy: _Copy) -> None:
    """From the CTA's shared memory to another CTA's of the cluster."""
    size = copy.bytes(warp, lane)
    source = shared_block(warp, copy.source.at(warp, lane), "cta", size, CHUNK)
    target = shared_block(warp, copy.to.at(warp, lane), "cluster", size, CHUNK)
    if target.cta is warp.cta:
        raise OutOfBoundsError("a copy to .shared::cluster must go to another CTA, not the own one")
    assert copy.barrier is not None
    address = copy.barrier.at(warp, lane)
    signals = Signals.find(warp, address, "cluster", target.cta, [target.cta], size)
    kind = "bulk_copy" if copy.reduction is None else "bulk_reduce"
    made = engine.issue(
        warp, engine.one_lane(lane), kind, (source.range,), (target.range,),
        combines=copy.reduction is not None,
    )  # fmt: skip
    warp.wave.launch.count("cluster_copy_bytes", size)

    signals.after(lambda: _deliver(copy.reduction, source.read(), target), made)


def _store(warp: Warp, lane: int, copy: _Copy) -> None:
    """Shared to global memory: the source is read first, the destination written later."""
    size = copy.bytes(warp, lane)
    source = shared_block(warp, copy.source.at(warp, lane), "cta", size, CHUNK)
    target = global_block(warp, copy.to.at(warp, lane), size, writes=True)
    kind = "bulk_store" if copy.reduction is None else "bulk_reduce"
    made = engine.issue(warp, engine.one_lane(lane), kind, (source.range,), (target.range,))
    warp.wave.launch.count("bulk_store_bytes", size)
    store_later(warp, made, source.read, lambda data: _deliver(copy.reduction, data, target))


def store_later(
    warp: Warp, made: Any, read: Callable[[], Any], write: Callable[[Any], None]
) -> None:
    """Two events: the source is read, then the destination written. Bulk groups see both."""
    groups = bulk_groups(warp)
    groups.add(made)

    def take() -> None:
        data = read()
        engine.sources_read(made)
        groups.queue.wake()
        engine.post_again(made, where, lambda: give(data))

    def give(data: Any) -> None:
        write(data)
        engine.performed(made)
        groups.queue.wake()

    where = engine.post(made, take)


def _deliver(reduction: Reduction | None, data: Any, target: Block) -> None:
    if reduction is None:
        target.write(data)
    else:
        target.update(reduction, data)


def bulk_groups(warp: Warp) -> AsyncGroups:
    """The bulk async-groups of a warp's threads."""
    return warp.cta.state(BulkGroups).of(warp)


@op("cp.async.bulk.commit_group")
def commit_group(instr: Instr, modifiers: Modifiers, assembler: Assembler) -> Op:
    def run(lanes: Lanes, mask: Mask) -> Outcome:
        assert isinstance(lanes, Warp)
        bulk_groups(lanes).commit(mask)
        return None

    return Op("async copy", handler=run)


@op("cp.async.bulk.wait_group")
def wait_group(instr: Instr, modifiers: Modifiers, assembler: Assembler) -> Op:
    reads_only = modifiers.flag("read")
    newest = constant(instr.operands[0])

    def run(lanes: Lanes, mask: Mask) -> Outcome:
        assert isinstance(lanes, Warp)
        return bulk_groups(lanes).wait(mask, newest, reads_only)

    return Op("async copy", handler=run)


@op("cp.async.bulk.prefetch")
def prefetch(instr: Instr, modifiers: Modifiers, assembler: Assembler) -> Op:
    """A hint for the L2 cache; the range must exist."""
    modifiers.drop("L2", "global", "L2::cache_hint")
    source, size = Point(assembler, instr.operands[0]), assembler.src(instr.operands[1], U32)

    def act(warp: Warp, lane: int) -> None:
        global_block(warp, source.at(warp, lane), warp.V[size].item(lane))

    return per_lane("hint", act)
