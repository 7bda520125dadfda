"""tcgen05.alloc, dealloc and relinquish_alloc_permit.

With ``.cta_group::2`` one warp of each CTA of the pair takes part: the first waits for the other,
which the ISA allows and a program must be prepared for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gpukit.emulator.aio.engine import one_lane
from gpukit.emulator.errors import CollectiveError, TensorMemoryError
from gpukit.emulator.instructions import Modifiers, Op, op
from gpukit.emulator.mem.spaces import Place, take_space
from gpukit.emulator.mma.warpgroup import warps_of
from gpukit.emulator.outcomes import DISSOLVE, Outcome, Park
from gpukit.emulator.ptx.ir import Instr
from gpukit.emulator.ptx.types import TYPES
from gpukit.emulator.tcgen05.pair import members, peer_of, running_members, take_group
from gpukit.emulator.tcgen05.target import require_target
from gpukit.emulator.tcgen05.tmem import COLUMNS, UNIT, Allocated, Tmem, tmem_of
from gpukit.emulator.waits import WaitQueue
from gpukit.emulator.warp.collective import aligned
from gpukit.emulator.warps import Warp

if TYPE_CHECKING:
    from gpukit.emulator.assembler import Assembler
    from gpukit.emulator.cta import Cta
    from gpukit.emulator.lanes import Lanes

U32 = TYPES["u32"]


@dataclass(frozen=True, slots=True)
class Request:
    """What one warp of a CTA or of a pair asks for, and has not got yet."""

    warp: Warp
    pc: int
    columns: int
    address: int = 0  # of what it frees


class Meeting:
    """Where the warps of a pair meet, one meeting for alloc and one for dealloc.

    ``requests`` are of those who wait, ``granted`` what has been given to a CTA whose warp has not
    noticed yet.
    """

    def __init__(self) -> None:
        self.requests: dict[Cta, Request] = {}
        self.granted: dict[Cta, Allocated] = {}
        self.queue = WaitQueue()

    def settle(self, given: dict[Cta, Allocated]) -> None:
        """All requests are fulfilled."""
        self.requests.clear()
        self.granted.update(given)
        self.queue.wake()


class Meetings:
    """Those of one CTA or, kept by its even CTA, of a pair."""

    def __init__(self, cta: Cta) -> None:
        self.alloc, self.dealloc = Meeting(), Meeting()


def one_warp(action: Callable[[Warp], Outcome]) -> Op:
    """An operation that whole warps execute one by one, and may wait in."""

    def body(lanes: Lanes) -> Outcome:
        return action(lanes) if isinstance(lanes, Warp) else DISSOLVE

    return aligned("tcgen05", body)


def _uniform(warp: Warp, slot: int, what: str) -> int:
    row = warp.V[slot]
    first: int = row.item(0)
    if np.count_nonzero(row != row[0]):
        raise CollectiveError(f"{what} differs between the lanes of the warp")
    return first


def _columns(warp: Warp, slot: int) -> int:
    columns = _uniform(warp, slot, "the number of columns")
    if not UNIT <= columns <= COLUMNS or columns & columns - 1:
        raise TensorMemoryError(
            f"{columns} columns; the number must be a power of two from {UNIT} to {COLUMNS}"
        )
    return columns


# alloc


@op("tcgen05.alloc")
def alloc(instr: Instr, modifiers: Modifiers, assembler: Assembler) -> Op:
    require_target(assembler)
    group = take_group(modifiers, assembler)
    space = take_space(modifiers)
    modifiers.drop("sync", "aligned", "b32")
    target, columns = instr.operands
    place, count = Place(assembler, target, space, 4), assembler.src(columns, U32)

    def run(warp: Warp) -> Outcome:
        meeting = members(warp.cta, group)[0].state(Meetings).alloc
        held = meeting.granted.pop(warp.cta, None)
        if held is None:
            request = Request(warp, warp.current.pc, _columns(warp, count))
            outcome = _ask(meeting, request, group)
            if outcome is not None:
                return outcome
            held = meeting.granted.pop(warp.cta)
        _tell_address(warp, place, held)
        return None

    return one_warp(run)


def _ask(meeting: Meeting, request: Request, group: int) -> Outcome:
    """Allocate, in all CTAs of the group; or wait for the peer, or for room."""
    warp = request.warp
    _check_permit(tmem_of(warp.cta), request)
    meeting.requests[warp.cta] = request
    ctas = running_members(warp, group)
    if len(meeting.requests) < group:
        return Park(meeting.queue, lambda: "the peer CTA to execute tcgen05.alloc", retry=True)
    _check_same(meeting)
    memories = [tmem_of(cta) for cta in ctas]
    start = memories[0].find_room(request.columns)
    if start is None or any(m.find_room(request.columns) != start for m in memories):
        full = next((m for m in memories if m.find_room(request.columns) is None), memories[0])
        return Park(full.queue, lambda: _want_room(full, request), retry=True)
    given = {}
    for memory in memories:
        asked = meeting.requests[memory.cta]
        given[memory.cta] = memory.take(start, asked.columns, asked.warp, asked.pc)
    if group == 2:
        one, other = given.values()
        one.partner, other.partner = other, one
    meeting.settle(given)
    return None


def _want_room(tmem: Tmem, request: Request) -> str:
    held = ", ".join(f"{a.columns} ({a.place})" for a in tmem.allocations)
    return f"{request.columns} columns of Tensor Memory; CTA {tmem.cta.position} holds {held}"


def _check_permit(tmem: Tmem, request: Request) -> None:
    if tmem.relinquished is not None:
        raise TensorMemoryError(
            "tcgen05.alloc after tcgen05.relinquish_alloc_permit by the same CTA "
            f"({tmem.relinquished})"
        )
    if request.columns > tmem.smallest:
        raise TensorMemoryError(
            f"allocates {request.columns} columns after {tmem.smallest}; allocations of a CTA must "
            "not grow"
        )


def _check_same(meeting: Meeting) -> None:
    sizes = {request.columns for request in meeting.requests.values()}
    if len(sizes) > 1:
        raise TensorMemoryError(
            f"the CTAs of a pair ask for {' and '.join(map(str, sorted(sizes)))} columns; they "
            "must ask for the same"
        )


def _tell_address(warp: Warp, place: Place, held: Allocated) -> None:
    """Write the address to shared memory: a weak store by one lane."""
    lane = one_lane(0)
    for access in place.accesses(warp, lane):
        access.write(np.dtype(np.uint32), 0, np.uint32(held.column))
        access.mark_written(warp)
        for listener in warp.wave.listeners:
            listener.accessed(warp, access, "write", "weak")
    for listener in warp.wave.listeners:
        listener.tensor_allocated(warp, held)
    held.noticed = True


# dealloc


@op("tcgen05.dealloc")
def dealloc(instr: Instr, modifiers: Modifiers, assembler: Assembler) -> Op:
    require_target(assembler)
    group = take_group(modifiers, assembler)
    modifiers.drop("sync", "aligned", "b32")
    address, columns = (assembler.src(operand, U32) for operand in instr.operands)

    def run(warp: Warp) -> Outcome:
        meeting = members(warp.cta, group)[0].state(Meetings).dealloc
        if meeting.granted.pop(warp.cta, None) is not None:
            return None
        if warp.cta not in meeting.requests:
            where = _uniform(warp, address, "the address")
            request = Request(warp, warp.current.pc, _columns(warp, columns), where)
            _check_dealloc(request, group)
            meeting.requests[warp.cta] = request
        if len(meeting.requests) < group:
            running_members(warp, group)
            return Park(
                meeting.queue, lambda: "the peer CTA to execute tcgen05.dealloc", retry=True
            )
        _free(meeting)
        meeting.granted.pop(warp.cta)
        return None

    return one_warp(run)


def _check_dealloc(request: Request, group: int) -> None:
    warp = request.warp
    tmem = tmem_of(warp.cta)
    held = tmem.find(request.address, request.columns)
    if group == 2:
        other = tmem_of(peer_of(warp.cta)).find(request.address, request.columns)
        if not other.noticed:
            raise TensorMemoryError(
                "tcgen05.dealloc before the tcgen05.alloc of the peer CTA has completed "
                f"({other.place}); synchronise the pair in between"
            )
    _check_idle(tmem, held)
    for listener in warp.wave.listeners:
        listener.tensor_freed(warp, held)


def _check_idle(tmem: Tmem, held: Allocated) -> None:
    """No operation in flight may use the columns."""
    for user in tmem.users:
        for part in (*user.cells_read, *user.cells_written):
            if part.slot == tmem.cta.slot and held.overlaps(part):
                raise TensorMemoryError(
                    f"tcgen05.dealloc of columns that a {user.kind} in flight uses ({user.place}); "
                    "wait for its tcgen05.commit first"
                )


def _free(meeting: Meeting) -> None:
    given = {}
    for cta, request in meeting.requests.items():
        tmem = tmem_of(cta)
        held = given[cta] = tmem.find(request.address, request.columns)
        tmem.give_back(held)
    meeting.settle(given)


@op("tcgen05.relinquish_alloc_permit")
def relinquish(instr: Instr, modifiers: Modifiers, assembler: Assembler) -> Op:
    require_target(assembler)
    take_group(modifiers, assembler)
    modifiers.drop("sync", "aligned")

    def body(lanes: Lanes) -> Outcome:
        for warp in warps_of(lanes):
            tmem_of(warp.cta).relinquished = warp.wave.program.place(lanes.current.pc)
        return None

    return aligned("tcgen05", body)
