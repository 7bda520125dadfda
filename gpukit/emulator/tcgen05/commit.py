"""tcgen05.commit and tcgen05.fence.

Without a state space commit takes a generic address. By the ISA nothing below the shared window
is one of shared memory, but the machine instruction takes the lower 32 bits for a shared::cluster
address, and kernels that run on B200 give it just that. So do we.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpukit.emulator.aio.bulk import per_lane
from gpukit.emulator.aio.engine import one_lane
from gpukit.emulator.aio.signals import BYTES, receivers
from gpukit.emulator.instructions import Mask, Modifiers, Op, op
from gpukit.emulator.mem import windows
from gpukit.emulator.mem.points import Point, shared_point, take_shared_space
from gpukit.emulator.mem.spaces import require
from gpukit.emulator.outcomes import Outcome
from gpukit.emulator.ptx.ir import Instr
from gpukit.emulator.ptx.types import TYPES
from gpukit.emulator.sync.mbarrier import MBarrier, MBarriers
from gpukit.emulator.tcgen05.pair import take_group
from gpukit.emulator.tcgen05.pipe import pipe_of
from gpukit.emulator.tcgen05.target import require_target

if TYPE_CHECKING:
    from gpukit.emulator.assembler import Assembler
    from gpukit.emulator.lanes import Lanes
    from gpukit.emulator.warps import Warp

U16 = TYPES["u16"]


@op("tcgen05.commit")
def commit(instr: Instr, modifiers: Modifiers, assembler: Assembler) -> Op:
    require_target(assembler)
    group = take_group(modifiers, assembler)
    require(modifiers.flag("mbarrier::arrive::one"), "needs .mbarrier::arrive::one")
    space, multicast = take_shared_space(modifiers), modifiers.flag("multicast::cluster")
    modifiers.drop("b64")
    address, *rest = instr.operands
    require(len(rest) == multicast, "has a ctaMask with .multicast::cluster, and only then")
    point = Point(assembler, address)
    selected = assembler.src(rest[0], U16) if multicast else None

    def act(warp: Warp, lane: int) -> None:
        mask = None if selected is None else warp.V[selected].item(lane)
        barriers = _barriers(warp, point.at(warp, lane), space, mask)
        pipe_of(warp, group).commit(warp, one_lane(lane), barriers)

    return per_lane("tcgen05", act)


def _barriers(warp: Warp, address: int, space: str, mask: int | None) -> list[MBarrier]:
    """The mbarrier at an address, or those at the same offset in the CTAs of a mask."""
    if space == "generic" and not address & ~windows.SHARED_MASK:
        space = "cluster"
    home, offset = shared_point(warp, address, space, BYTES, BYTES)
    found = [cta.state(MBarriers).find(offset) for cta in receivers(warp, home, mask)]
    for barrier in found:
        barrier.require_running(warp)
    return found


@op("tcgen05.fence::before_thread_sync", "tcgen05.fence::after_thread_sync")
def fence(instr: Instr, modifiers: Modifiers, assembler: Assembler) -> Op:
    require_target(assembler)
    kind = instr.opcode

    def run(lanes: Lanes, mask: Mask) -> Outcome:
        for listener in lanes.wave.listeners:
            listener.fenced(lanes, mask, kind)
        return None

    return Op("fence", handler=run, wide=True)
