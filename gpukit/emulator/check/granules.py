"""How fine shadow memory must be for a program: as fine as its narrowest store.

A store always covers whole granules then, so a conflict that the shadow shows is one of bytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gpukit.emulator.mem.patterns import Pattern
from gpukit.emulator.program import Program
from gpukit.emulator.ptx.ir import Instr
from gpukit.emulator.ptx.types import TYPES

WIDEST = 4
_WRITERS = ("st", "atom", "red")
_VECTORS = {"v2": 2, "v4": 4, "v8": 8}


def granule_of(program: Program, space: str) -> int:
    """1, 2 or 4 bytes for ``space`` ("shared" or "global")."""
    other = "global" if space == "shared" else "shared"
    widths = [_width(i) for i in program.instrs if i.name in _WRITERS and _reaches(i, other)]
    return min([WIDEST, *widths])


def _reaches(instr: Instr, other: str) -> bool:
    """Whether a store may go elsewhere than to ``other`` (generic ones go anywhere)."""
    spaces = {word.partition("::")[0] for word in instr.mods}
    return not spaces & {other, "local", "param"}


def _width(instr: Instr) -> int:
    types = [TYPES[word] for word in instr.mods if word in TYPES]
    count = next((_VECTORS[word] for word in instr.mods if word in _VECTORS), 1)
    return types[-1].bytes * count if types else WIDEST


def touched(pattern: Pattern, base: int, granule: int, single: bool) -> Any:
    """The granules of an access at byte ``base`` of the shadow: a slice where they are contiguous.

    ``single``: one warp, so that lanes need not be told apart and each granule counts once.
    """
    first, count = (base + pattern.floor) // granule, pattern.size // granule
    if count == 0:
        return (pattern.offsets + base) // granule
    if single:
        found = pattern.footprint(granule)
        return slice(first, first + found) if isinstance(found, int) else found + first
    if pattern.kind == "block":
        return slice(first, first + pattern.offsets.size * count)
    at = pattern.steps(granule) + first
    return at if count == 1 else at[:, None] + np.arange(count)
