"""griddepcontrol: order between dependent grids. A launch on its own depends on nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpukit.emulator.instructions import Mask, Modifiers, Op, op
from gpukit.emulator.ptx.ir import Instr

if TYPE_CHECKING:
    from gpukit.emulator.assembler import Assembler


@op("griddepcontrol")
def griddepcontrol(instr: Instr, modifiers: Modifiers, assembler: Assembler) -> Op:
    """launch_dependents is a hint; wait returns once the grids before this one have ended."""
    modifiers.pick("launch_dependents", "wait")
    return Op("hint", full=_nothing, masked=_nothing_masked)


def _nothing(v: list[Any]) -> None:
    """The grids before this one have ended."""


def _nothing_masked(v: list[Any], mask: Mask) -> None:
    """The grids before this one have ended."""
