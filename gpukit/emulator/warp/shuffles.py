"""shfl.sync: read another lane's register."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpukit.emulator.instructions import Mask, Modifiers, Op, op
from gpukit.emulator.ptx.ir import Instr, Pair
from gpukit.emulator.ptx.types import TYPES
from gpukit.emulator.warp.collective import collective

if TYPE_CHECKING:
    from gpukit.emulator.assembler import Assembler
    from gpukit.emulator.lanes import Lanes

U32, PRED = TYPES["u32"], TYPES["pred"]
_UNDEFINED = np.uint32(0xCBCBCBCB)  # what a lane reads from one that does not take part


@op("shfl.sync")
def shfl(instr: Instr, modifiers: Modifiers, assembler: Assembler) -> Op:
    mode = modifiers.pick("up", "down", "bfly", "idx")
    modifiers.type()
    first, *sources = instr.operands
    target, inside = (first.first, first.second) if isinstance(first, Pair) else (first, None)
    d = assembler.dst(target, U32)
    p = assembler.dst(inside, PRED) if inside is not None else None
    a, b, c, members = (assembler.src(source, U32) for source in sources)
    known: dict[bytes, tuple[Any, Any]] = {}

    def body(lanes: Lanes, group: Mask) -> None:
        offset, clamp = lanes.V[b], lanes.V[c]
        key = offset.tobytes() + clamp.tobytes()
        if key not in known:
            if len(known) > 256:
                known.clear()
            known[key] = source_lanes(mode, offset, clamp)
        source, valid = known[key]
        values = lanes.V[a]
        if group is None:
            lanes.V[d][...] = values[source]
        else:
            values = np.where(group, values, _UNDEFINED)
            lanes.V[d][group] = values[source][group]
        if p is not None:
            where = slice(None) if group is None else group
            lanes.V[p][where] = valid[where]

    return collective("shuffle", members, body)


def source_lanes(mode: str, offset: Any, clamp: Any) -> tuple[Any, Any]:
    """For each lane the position it reads from (in the unit) and whether that was in range."""
    position = np.arange(offset.size)
    lane = position & 31
    b, c = offset.astype(np.int64) & 31, clamp.astype(np.int64) & 31
    segment = clamp.astype(np.int64) >> 8 & 31
    lowest = lane & segment
    highest = lowest | (c & ~segment)
    j = {
        "up": lane - b,
        "down": lane + b,
        "bfly": lane ^ b,
        "idx": lowest | (b & ~segment),
    }[mode]
    valid = j >= highest if mode == "up" else j <= highest
    return (position - lane) + np.where(valid, j, lane), valid
