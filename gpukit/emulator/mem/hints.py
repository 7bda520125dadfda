"""Instructions that only advise the caches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpukit.emulator.instructions import Mask, Modifiers, Op, op
from gpukit.emulator.ptx.ir import Instr
from gpukit.emulator.ptx.types import TYPES

if TYPE_CHECKING:
    from gpukit.emulator.assembler import Assembler


@op("prefetch", "prefetchu", "discard", "applypriority")
def hint(instr: Instr, modifiers: Modifiers, assembler: Assembler) -> Op:
    modifiers.words = []
    return Op("hint", full=_nothing, masked=_nothing_masked)


@op("createpolicy")
def createpolicy(instr: Instr, modifiers: Modifiers, assembler: Assembler) -> Op:
    """Any value will do: policies are never looked at."""
    modifiers.words = []
    d = assembler.dst(instr.operands[0], TYPES["u64"])

    def full(v: list[Any]) -> None:
        v[d][...] = 0

    def masked(v: list[Any], mask: Mask) -> None:
        v[d][mask] = 0

    return Op("hint", full, masked)


def _nothing(v: list[Any]) -> None:
    """Hints change no value."""


def _nothing_masked(v: list[Any], mask: Mask) -> None:
    """Hints change no value."""
