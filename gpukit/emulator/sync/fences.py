"""Fences: no effect on values (memory is sequentially consistent here), but checks hear them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpukit.emulator.instructions import Mask, Modifiers, Op, op
from gpukit.emulator.ptx.ir import Instr

if TYPE_CHECKING:
    from gpukit.emulator.assembler import Assembler
    from gpukit.emulator.lanes import Lanes
    from gpukit.emulator.outcomes import Outcome

_PARTS = (
    "cta", "cluster", "gpu", "sys", "gl", "sc", "acq_rel", "acquire", "release",
    "proxy", "alias", "async", "async::generic", "sync_restrict::shared::cta",
    "sync_restrict::shared::cluster", "global", "shared::cta", "shared::cluster",
    "tensormap::generic", "mbarrier_init",
)  # fmt: skip


@op("membar", "fence")
def fence(instr: Instr, modifiers: Modifiers, assembler: Assembler) -> Op:
    modifiers.drop(*_PARTS)
    kind = instr.opcode

    def run(lanes: Lanes, mask: Mask) -> Outcome:
        for listener in lanes.wave.listeners:
            listener.fenced(lanes, mask, kind)
        return None

    return Op("fence", handler=run, wide=True)
