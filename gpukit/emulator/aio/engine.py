"""Issuing asynchronous operations and completing them later.

An operation reads its sources and writes its destinations when it completes, at a time that the
policy chooses. Operations are not ordered among each other.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING

import numpy as np

from gpukit.emulator.check.async_ops import AsyncOp, Cells, Range
from gpukit.emulator.errors import BarrierError, RemoteAccessError
from gpukit.emulator.instructions import Mask
from gpukit.emulator.mem.access import Access
from gpukit.emulator.mem.shared import SharedMemory

if TYPE_CHECKING:
    from gpukit.emulator.cta import Cta
    from gpukit.emulator.warps import Warp


class Flights:
    """Operations in flight that still use a CTA's shared memory: it must not exit before them."""

    def __init__(self, cta: Cta) -> None:
        self.cta = cta
        self.ops: set[AsyncOp] = set()
        cta.exit_hooks.append(self._check_exit)

    def _check_exit(self) -> None:
        if not self.ops or not self.cta.ended:
            return
        op = min(self.ops, key=lambda op: op.id)
        what = "reads" if any(r.owner == self.cta.slot for r in op.reads) else "writes"
        what = "signals an mbarrier in" if op.kind == "tcgen05.commit" else what
        error = BarrierError if op.warp.cta is self.cta else RemoteAccessError
        fault = error(
            f"CTA {self.cta.position} exits while a {op.kind} still {what} its shared memory "
            f"({op.place}); wait for it first"
        )
        self.cta.wave.launch.rules.report("exits", fault)


class OpNumbers:
    """Counts the operations that a cluster issues."""

    def __init__(self, cta: Cta) -> None:
        self.next = 0


def issue(
    warp: Warp,
    mask: Mask,
    kind: str,
    reads: tuple[Range, ...],
    writes: tuple[Range, ...],
    proxy: str = "async",
    combines: bool = False,
    cells_read: tuple[Cells, ...] = (),
    cells_written: tuple[Cells, ...] = (),
    form: Hashable = None,
    pc: int | None = None,
) -> AsyncOp:
    """Announce an operation.

    Its destination bytes in shared memory become undefined, unless it ``combines`` with them.
    ``cells_read``, ``cells_written`` and ``form`` are those of ``AsyncOp``; ``pc`` is the warp's
    own unless it runs in a gang.
    """
    numbers = warp.cta.cluster[0].state(OpNumbers)
    op = AsyncOp(
        numbers.next, kind, warp, mask, warp.current.pc if pc is None else pc, proxy, reads, writes,
        cells_read, cells_written, form,
    )  # fmt: skip
    numbers.next += 1
    for part in (*reads, *writes):
        if part.space == "shared":
            _home(warp, part).state(Flights).ops.add(op)
    for listener in warp.wave.listeners:
        listener.async_issued(op)
    for part in () if combines else writes:
        if part.space == "shared":
            _forget(warp, part)
    return op


def post(op: AsyncOp, action: Callable[[], None]) -> str:
    """Run ``action`` later; what it complains about is located at the issuing instruction.

    Returns that place, for ``post_again``.
    """
    where = op.warp.where(lane_of(op.mask))
    post_again(op, where, action)
    return where


def post_again(op: AsyncOp, where: str, action: Callable[[], None]) -> None:
    """Run a further step of an operation, again later."""
    op.warp.wave.scheduler.events.post(action, where=where)


def lane_of(mask: Mask) -> int:
    """The first active lane."""
    return 0 if mask is None else int(mask.argmax())


def one_lane(lane: int) -> Mask:
    """The mask of a single lane."""
    mask = np.zeros(32, np.bool_)
    mask[lane] = True
    return mask


def sources_read(op: AsyncOp) -> None:
    """The operation has read its sources; they may be reused once somebody has observed it."""
    op.read_done = True
    op.warp.wave.scheduler.changed = True
    for part in op.reads:
        if part.space == "shared":
            _home(op.warp, part).state(Flights).ops.discard(op)


def performed(op: AsyncOp) -> None:
    """The operation's values have moved."""
    sources_read(op)
    op.done = True
    for part in op.writes:
        if part.space == "shared":
            _home(op.warp, part).state(Flights).ops.discard(op)
    for listener in op.warp.wave.listeners:
        listener.async_performed(op)


def shared_ranges(access: Access) -> tuple[Range, ...]:
    """The bytes of an access to shared memory, one range per CTA."""
    shared, starts = access.store, access.bytes
    assert isinstance(shared, SharedMemory)
    size, low = access.pattern.size, int(starts.min())
    slot, start = divmod(low, shared.stride)
    if int(starts.max()) - low + start < shared.stride:
        return (Range("shared", slot, start, size, starts - slot * shared.stride),)
    slots, offsets = np.divmod(starts, shared.stride)
    ranges = []
    for slot in np.unique(slots).tolist():
        here = offsets[slots == slot]
        ranges.append(Range("shared", slot, int(here.min()), size, here))
    return tuple(ranges)


def _home(warp: Warp, part: Range) -> Cta:
    assert isinstance(part.owner, int)
    return warp.wave.ctas[part.owner]


def _forget(warp: Warp, part: Range) -> None:
    init = _home(warp, part).shared.init
    if init is None:
        return
    if part.starts is None:
        init[part.start : part.start + part.size] = 0
    else:
        init[part.starts[:, None] + np.arange(part.size)] = 0
