"""cp.async: 4, 8 or 16 bytes a thread from global to shared memory, and its groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from gpukit.emulator.aio import engine
from gpukit.emulator.aio.blocks import GlobalBlock
from gpukit.emulator.aio.groups import AsyncGroups, CpAsyncGroups, Member, bits_of
from gpukit.emulator.check.async_ops import AsyncOp, Range
from gpukit.emulator.errors import KernelFault
from gpukit.emulator.instructions import Mask, Modifiers, Op, Unsupported, op
from gpukit.emulator.mem.access import Access
from gpukit.emulator.mem.allocations import Allocation
from gpukit.emulator.mem.patterns import LOADS, STORES
from gpukit.emulator.mem.points import global_point, lane_numbers, take_shared_space
from gpukit.emulator.mem.spaces import Place, require
from gpukit.emulator.outcomes import Outcome
from gpukit.emulator.ptx.ir import Imm, Instr, Not, Operand, Reg
from gpukit.emulator.ptx.types import TYPES
from gpukit.emulator.sync.mbarrier import MBarrier, signal_arrival
from gpukit.emulator.sync.mbarrier_ops import Groups, own_barriers_at
from gpukit.emulator.warps import Warp

if TYPE_CHECKING:
    from gpukit.emulator.assembler import Assembler
    from gpukit.emulator.cta import Cta
    from gpukit.emulator.lanes import Lanes

U32, PRED = TYPES["u32"], TYPES["pred"]
WORD = np.dtype(np.uint32)


class _SourceSize:
    """How many bytes each lane reads: all, ``src-size``, or none where ``ignore-src`` holds."""

    def __init__(self, assembler: Assembler, operand: Operand | None, size: int) -> None:
        self.size = size
        self._negated = isinstance(operand, Not)
        plain = operand.operand if isinstance(operand, Not) else operand
        self._ignores = isinstance(plain, Reg) and plain.type.kind == "p"
        type_ = PRED if self._ignores else U32
        self._slot = None if plain is None else assembler.src(plain, type_)

    def of(self, lanes: Lanes) -> Any:
        """One number per lane, or None if all lanes read everything."""
        if self._slot is None:
            return None
        row = lanes.V[self._slot]
        if self._ignores:
            return np.where(row ^ self._negated, 0, self.size)
        return row.astype(np.int64)


@op("cp.async")
def cp_async(instr: Instr, modifiers: Modifiers, assembler: Assembler) -> Op:
    """Copies read global memory and write shared memory when they complete."""
    cache = modifiers.pick("ca", "cg")
    hinted = modifiers.flag("L2::cache_hint")
    modifiers.drop("shared", "shared::cta", "global", "L2::64B", "L2::128B", "L2::256B")
    to, source, length, *rest = instr.operands
    size = int(length.value) if isinstance(length, Imm) else 0
    require(size in (4, 8, 16) and (cache == "ca" or size == 16), f"cannot copy {size} bytes")
    rest = rest[: len(rest) - hinted]
    require(len(rest) <= 1, "has too many operands")
    amounts = _SourceSize(assembler, rest[0] if rest else None, size)
    target = Place(assembler, to, "shared", size)
    origin = Place(assembler, source, "global", size)

    def run(lanes: Lanes, mask: Mask) -> Outcome:
        assert isinstance(lanes, Warp)
        _start(lanes, mask, target, origin, amounts.of(lanes), size)
        return None

    return Op("async copy", handler=run)


def _start(warp: Warp, mask: Mask, target: Place, origin: Place, amounts: Any, size: int) -> None:
    whole, partial = _divide(mask, amounts, size)
    pairs = []
    if whole is None or whole.any():
        pairs = [(a, _within(target, warp, a.mask)) for a in origin.accesses(warp, whole)]
    pieces = _pieces(warp, target, origin, amounts, partial)
    parts = [part for _, part in pieces if part is not None]
    reads = [_range(a) for a, _ in pairs] + [part.range for part in parts]
    targets = [to for _, to in pairs] + [to for to, _ in pieces]
    writes = tuple(part for to in targets for part in engine.shared_ranges(to))
    made = engine.issue(warp, mask, "cp_async", tuple(reads), writes, proxy="generic")
    _groups(warp).add(made)
    warp.cta.state(CpAsyncState).started(warp, made)
    bytes_read = sum(a.pattern.offsets.size * size for a, _ in pairs)
    bytes_read += sum(part.size for part in parts)
    warp.wave.launch.count("cp_async_bytes", bytes_read)
    warp.wave.launch.count("l2_to_shared_bytes", bytes_read)

    def complete() -> None:
        for source, to in pairs:
            _copy(warp, source, to, size)
        for to, part in pieces:
            _copy_part(warp, to, part, size)
        engine.performed(made)
        warp.cta.state(CpAsyncState).finished(warp)

    engine.post(made, complete)


def _divide(mask: Mask, amounts: Any, size: int) -> tuple[Mask, list[int]]:
    """The lanes that read everything, and the others."""
    if amounts is None:
        return mask, []
    active = np.ones(32, np.bool_) if mask is None else mask
    if (amounts[active] > size).any():
        raise KernelFault(f"src-size is larger than the copy's {size} bytes")
    full = active & (amounts == size)
    if (full == active).all():
        return mask, []
    return full, lane_numbers(active & ~full)


def _within(target: Place, warp: Warp, mask: Mask) -> Access:
    (access,) = target.accesses(warp, mask)
    return access


def _range(access: Access) -> Range:
    starts = access.bytes
    assert isinstance(access.store, Allocation)
    return Range("global", access.store, int(starts.min()), access.pattern.size, starts)


def _copy(warp: Warp, source: Access, to: Access, size: int) -> None:
    source.pattern.hits[LOADS] += 1
    to.pattern.hits[STORES] += 1
    source.check_written()
    for k in range(size // 4):
        to.write(WORD, k, source.read(WORD, k))
    to.mark_written(warp)


# Lanes that read less than they write


Piece: TypeAlias = "tuple[Access, GlobalBlock | None]"


def _pieces(
    warp: Warp, target: Place, origin: Place, amounts: Any, lanes: list[int]
) -> list[Piece]:
    """Destination and source of each lane; there is no source where the size is 0."""
    found: list[Piece] = []
    addresses = origin.addresses(warp)
    for lane in lanes:
        length = int(amounts[lane])
        part = None
        if length:
            held, start = global_point(warp.wave, int(addresses[lane]), length, target.size)
            part = GlobalBlock(held, start, length, held)
        found.append((_within(target, warp, engine.one_lane(lane)), part))
    return found


def _copy_part(warp: Warp, to: Access, part: GlobalBlock | None, size: int) -> None:
    data = np.zeros(size, np.uint8)
    if part is not None:
        data[: part.size] = part.read()
    start = int(to.bytes[0])
    to.store.data[start : start + size] = data
    to.pattern.hits[STORES] += 1
    to.mark_written(warp)


# Groups and mbarriers


class CpAsyncState:
    """Of each warp: copies that no mbarrier tracks yet, and arrivals that wait for copies."""

    def __init__(self, cta: Cta) -> None:
        self.untracked: list[list[Member]] = [[] for _ in cta.warps]
        self.arrivals: list[list[_Arrival]] = [[] for _ in cta.warps]

    def started(self, warp: Warp, made: AsyncOp) -> None:
        self.untracked[warp.index].append(Member(made, bits_of(made.mask)))

    def finished(self, warp: Warp) -> None:
        """A copy completed: wake waits for groups and send the arrivals that it held up."""
        _groups(warp).queue.wake()
        waiting = self.arrivals[warp.index]
        if waiting:
            self.arrivals[warp.index] = [a for a in waiting if not a.ready]
            for arrival in waiting:
                if arrival.ready:
                    arrival.send()

    def observed(self, warp: Warp) -> None:
        """A group wait has seen what is complete: no mbarrier needs to."""
        mine = self.untracked[warp.index]
        self.untracked[warp.index] = [member for member in mine if not member.op.done]

    def track(self, warp: Warp, lanes: int) -> list[AsyncOp]:
        """Take the untracked copies of some lanes."""
        mine = self.untracked[warp.index]
        taken = [member.op for member in mine if member.lanes & lanes]
        rest = [Member(m.op, m.lanes & ~lanes) for m in mine]
        self.untracked[warp.index] = [member for member in rest if member.lanes]
        return taken


@dataclass(frozen=True, slots=True)
class _Arrival:
    """cp.async.mbarrier.arrive: an arrive-on once earlier copies of ``count`` lanes completed."""

    barrier: MBarrier
    ops: list[AsyncOp]
    count: int

    @property
    def ready(self) -> bool:
        return all(op.done for op in self.ops)

    def send(self) -> None:
        if self.ops or not self.barrier.cta.ended:  # an empty last commit may outlive its CTA
            signal_arrival(self.barrier, self.count, self.ops)


def _groups(warp: Warp) -> AsyncGroups:
    return warp.cta.state(CpAsyncGroups).of(warp)


@op("cp.async.commit_group")
def commit_group(instr: Instr, modifiers: Modifiers, assembler: Assembler) -> Op:
    def run(lanes: Lanes, mask: Mask) -> Outcome:
        assert isinstance(lanes, Warp)
        _groups(lanes).commit(mask)
        return None

    return Op("async copy", handler=run)


@op("cp.async.wait_group", "cp.async.wait_all")
def wait_group(instr: Instr, modifiers: Modifiers, assembler: Assembler) -> Op:
    everything = instr.mods[1] == "wait_all"
    newest = 0 if everything else constant(instr.operands[0])

    def run(lanes: Lanes, mask: Mask) -> Outcome:
        assert isinstance(lanes, Warp)
        groups = _groups(lanes)
        if everything and any(member.lanes & bits_of(mask) for member in groups.open):
            groups.commit(mask)
        outcome = groups.wait(mask, newest, reads_only=False)
        if outcome is None:
            lanes.cta.state(CpAsyncState).observed(lanes)
        return outcome

    return Op("async copy", handler=run)


def constant(operand: Operand) -> int:
    """A number of groups, which must be a literal."""
    if not isinstance(operand, Imm):
        raise Unsupported("the number of groups must be a constant")
    return int(operand.value)


@op("cp.async.mbarrier.arrive")
def mbarrier_arrive(instr: Instr, modifiers: Modifiers, assembler: Assembler) -> Op:
    noinc = modifiers.flag("noinc")
    space = take_shared_space(modifiers)
    modifiers.drop("b64")
    groups = Groups(assembler, instr.operands[0], None)

    def run(lanes: Lanes, mask: Mask) -> Outcome:
        assert isinstance(lanes, Warp)
        for part, address, _ in groups.of(lanes, mask):
            barriers, offset = own_barriers_at(lanes, address, space)
            _arrive_later(lanes, part, barriers.find(offset), noinc)
        return None

    return Op("async copy", handler=run)


def _arrive_later(warp: Warp, mask: Mask, barrier: MBarrier, noinc: bool) -> None:
    lanes = bits_of(mask)
    count = bin(lanes).count("1")
    if not noinc:
        barrier.more_pending(count)
    state = warp.cta.state(CpAsyncState)
    arrival = _Arrival(barrier, state.track(warp, lanes), count)
    if arrival.ready:
        warp.wave.scheduler.events.post(arrival.send, where=warp.where())
    else:
        state.arrivals[warp.index].append(arrival)
