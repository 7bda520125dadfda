"""st.async and red.async: values for another CTA of the cluster, announced by its mbarrier."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from gpukit.emulator.aio import engine
from gpukit.emulator.aio.reductions import take_reduction
from gpukit.emulator.errors import BarrierError
from gpukit.emulator.instructions import Mask, Modifiers, Op, op
from gpukit.emulator.mem import windows
from gpukit.emulator.mem.access import Access
from gpukit.emulator.mem.atomics import modify
from gpukit.emulator.mem.patterns import ATOMICS, STORES
from gpukit.emulator.mem.spaces import Place, require
from gpukit.emulator.mem.transfer import Elements, items_of, raw, take_vector
from gpukit.emulator.outcomes import Outcome
from gpukit.emulator.ptx.ir import Addr, Instr
from gpukit.emulator.sync.mbarrier import MBarrier, announce, signal_tx
from gpukit.emulator.sync.mbarrier_ops import Groups, barrier_at
from gpukit.emulator.warps import Warp

if TYPE_CHECKING:
    from gpukit.emulator.assembler import Assembler
    from gpukit.emulator.lanes import Lanes

Values = list[Any]


def _take_common(modifiers: Modifiers, completion_needed: bool) -> str:
    """Take what both instructions have in common; returns the state space."""
    require("release" not in modifiers.words, "the .release form for global memory is not emulated")
    modifiers.drop("weak", "relaxed", "cluster")
    completes = modifiers.flag("mbarrier::complete_tx::bytes")
    require(completes or not completion_needed, "needs .mbarrier::complete_tx::bytes")
    return "cluster" if modifiers.flag("shared::cluster") else "generic"


@op("st.async")
def st_async(instr: Instr, modifiers: Modifiers, assembler: Assembler) -> Op:
    space = _take_common(modifiers, completion_needed=True)
    count, type_ = take_vector(modifiers), raw(modifiers.type())
    slots = [assembler.src(item, type_) for item in items_of(instr.operands[1], count)]
    elements = Elements(type_, slots, False)

    def write(warp: Warp, access: Access, values: Values) -> None:
        access.pattern.hits[STORES] += 1
        for k, row in enumerate(values):
            access.write(elements.dtype, k, row)

    def take(warp: Warp, mask: Mask) -> Values:
        return [row.copy() if mask is None else row[mask] for row in elements.pieces(warp)]

    return _build(instr, assembler, space, elements.size, "st_async", take, write)


@op("red.async")
def red_async(instr: Instr, modifiers: Modifiers, assembler: Assembler) -> Op:
    space = _take_common(modifiers, completion_needed=False)
    reduction = take_reduction(modifiers, "shared::cluster")
    type_ = reduction.type
    slot = assembler.src(instr.operands[1], type_)

    def write(warp: Warp, access: Access, values: Values) -> None:
        access.pattern.hits[ATOMICS] += 1
        access.check_written()
        modify(access, type_, 0, reduction.combine, values)

    def take(warp: Warp, mask: Mask) -> Values:
        return [warp.V[slot].copy() if mask is None else warp.V[slot][mask]]

    return _build(instr, assembler, space, type_.bytes, "red_async", take, write)


def _build(
    instr: Instr,
    assembler: Assembler,
    space: str,
    size: int,
    kind: str,
    take: Callable[[Warp, Mask], Values],
    write: Callable[[Warp, Access, Values], None],
) -> Op:
    address, _, barrier = instr.operands
    require(isinstance(barrier, Addr), "needs an mbarrier address")
    target = Place(assembler, address, "shared" if space == "cluster" else "generic", size)
    groups = Groups(assembler, barrier, None)

    def run(lanes: Lanes, mask: Mask) -> Outcome:
        assert isinstance(lanes, Warp)
        for part, where, _ in groups.of(lanes, mask):
            (access,) = target.accesses(lanes, part)
            found = barrier_at(lanes, where, space)
            _check_home(lanes, target.addresses(lanes), part, found, kind)
            _send(lanes, part, access, found, kind, take(lanes, part), write)
        return None

    return Op("async copy", handler=run)


def _check_home(warp: Warp, addresses: Any, mask: Mask, barrier: MBarrier, kind: str) -> None:
    chosen = addresses if mask is None else addresses[mask]
    ranks = chosen.astype(np.int64) >> windows.RANK_SHIFT & 0xFF
    if (ranks != barrier.cta.rank).any():
        raise BarrierError(
            f"{kind.replace('_', '.')}: the mbarrier is in the CTA of rank {barrier.cta.rank}, a "
            "destination is not; they must be in the same CTA"
        )
    if kind == "red_async" and barrier.cta is warp.cta:
        raise BarrierError("red.async: the destination must be in another CTA of the cluster")


def _send(
    warp: Warp,
    mask: Mask,
    access: Access,
    barrier: MBarrier,
    kind: str,
    values: Values,
    write: Callable[[Warp, Access, Values], None],
) -> None:
    size = access.pattern.size * access.pattern.offsets.size
    ranges = engine.shared_ranges(access)
    made = engine.issue(warp, mask, kind, (), ranges, proxy="generic", combines=kind == "red_async")
    announce(barrier, size)
    warp.wave.launch.count("cluster_copy_bytes", size)

    def complete() -> None:
        write(warp, access, values)
        access.mark_written(warp)
        engine.performed(made)
        signal_tx(barrier, size, made)

    engine.post(made, complete)
