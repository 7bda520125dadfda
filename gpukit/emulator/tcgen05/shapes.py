"""Which cell of Tensor Memory each register of each thread holds, for tcgen05.ld and st.

Rows and columns count from the address of the instruction. Lane t of a warp keeps in register r

    32x32b     row t                        column r
    16x64b     row t / 4 + 8 (t % 2)        column 2r + t / 2 % 2
    16x128b    row t / 4 + 8 (r % 2)        column 4 (r / 2) + t % 4
    16x256b    row t / 4 + 8 (r / 2 % 2)    column 8 (r / 4) + 2 (t % 4) + r % 2
    16x32bx2   row t % 16                   column r, from lane 16 on that of the second address

Packed, a register holds the low halves of two columns: those with twice the number, and the next.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from gpukit.emulator.instructions import Modifiers, Unsupported

SHAPES = ("32x32b", "16x64b", "16x128b", "16x256b", "16x32bx2")
COUNTS = tuple(f"x{1 << n}" for n in range(8))
_PER_REPEAT = {"16x128b": 2, "16x256b": 4}  # registers; 1 of all others
MOST = 128  # registers


@dataclass(frozen=True, slots=True)
class Fragment:
    """The cells of one shape: int64 ``rows`` and ``columns`` [register, lane of the warp].

    ``lanes`` and ``width`` are how many rows and columns a block of it takes; ``parts`` at which
    columns such blocks begin. A ``plain`` fragment is 32x32b without packing.
    """

    registers: int
    rows: Any
    columns: Any
    lanes: int
    width: int
    parts: tuple[int, ...]
    packed: bool
    plain: bool


def take_fragment(modifiers: Modifiers, split: int | None) -> Fragment:
    """Take shape, repeat count and packing. ``split`` is the immediate of 16x32bx2."""
    shape, count = modifiers.pick(*SHAPES), int(modifiers.pick(*COUNTS)[1:])
    packed = modifiers.flag("pack::16b") or modifiers.flag("unpack::16b")
    modifiers.drop("sync", "aligned", "b32")
    registers = count * _PER_REPEAT.get(shape, 1)
    if registers > MOST:
        raise Unsupported(f".{shape} goes up to .x{MOST // _PER_REPEAT.get(shape, 1)}")
    if (split is None) == (shape == "16x32bx2"):
        raise Unsupported(".16x32bx2, and no other shape, has a second column offset")
    return fragment(shape, registers, packed, split or 0)


@lru_cache(maxsize=256)
def fragment(shape: str, registers: int, packed: bool, split: int) -> Fragment:
    """The cells of ``registers`` registers of a shape."""
    r, t = np.ogrid[:registers, :32]
    rows, columns = _CELLS[shape](r, t)
    rows, columns = (np.ascontiguousarray(np.broadcast_to(x, (registers, 32))) for x in
                     (rows, columns))  # fmt: skip
    width = (int(columns.max()) + 1) << packed
    columns = columns << packed
    parts: tuple[int, ...] = (0,)
    if shape == "16x32bx2":
        columns = columns + split * (t >= 16)
        parts = (0, split)
    lanes = 32 if shape == "32x32b" else 16
    plain = shape == "32x32b" and not packed
    return Fragment(registers, rows, columns, lanes, width, parts, packed, plain)


_CELLS = {
    "32x32b": lambda r, t: (t, r),
    "16x64b": lambda r, t: (t // 4 + t % 2 * 8, 2 * r + t // 2 % 2),
    "16x128b": lambda r, t: (t // 4 + r % 2 * 8, r // 2 * 4 + t % 4),
    "16x256b": lambda r, t: (t // 4 + r // 2 % 2 * 8, r // 4 * 8 + t % 4 * 2 + r % 2),
    "16x32bx2": lambda r, t: (t % 16, r),
}
