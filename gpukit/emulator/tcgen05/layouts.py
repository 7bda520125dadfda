"""Where D (and A) lie in tensor memory: the data path layouts A, B, D, E, F and G.

D [M, N] falls into blocks, each of which one quarter, half or all of a CTA's data path computes:

    D  M = 128                 lane m, column n
    F  M = 64                  lane m % 16 + 32 * (m // 16), column n: half the lanes, from 0 or 16
    A  M = 256, pair           CTA c has rows 128c to 128c + 127, as D
    B  M = 128, pair           CTA c has rows 64c to 64c + 63; columns from N/2 on in lanes 64-127
    E  M = 64, .ws             columns from N/2 on in lanes 64-127
    G  M = 32, .ws             every quarter of the columns in lanes of its own

A in tensor memory, and scale factors, are read by each block from its own lanes: in layouts B, E
and G every block needs its copy of A. (The ISA shows that in figures only; CUTLASS allocates so.)
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from gpukit.emulator.check.async_ops import Cells

HALF = 16  # lanes: where a block of layout F may begin instead of at 0


@dataclass(frozen=True, slots=True)
class Block:
    """All rows that CTA number ``member`` of the group has, by some columns of N.

    ``runs`` are the lanes that hold the rows, as (first, number); the columns start at the first
    column of D. ``lanes`` is the same as an index: a slice, or an int array.
    """

    member: int
    columns: slice
    runs: tuple[tuple[int, int], ...]
    lanes: Any

    @property
    def width(self) -> int:
        """Columns of tensor memory."""
        return int(self.columns.stop - self.columns.start)

    def cells(self, slot: int, column: int, width: int) -> tuple[Cells, ...]:
        """``width`` columns of its lanes, in the CTA of a slot."""
        return tuple(Cells(slot, lane, lanes, column, width) for lane, lanes in self.runs)


def _block(member: int, start: int, stop: int, *runs: tuple[int, int]) -> Block:
    if len(runs) == 1:
        lanes: Any = slice(runs[0][0], sum(runs[0]))
    else:
        lanes = np.concatenate([np.arange(first, first + n) for first, n in runs])
    return Block(member, slice(start, stop), runs, lanes)


@lru_cache(maxsize=256)
def blocks(m: int, n: int, cta_group: int, ws: bool, first_lane: int) -> tuple[Block, ...]:
    """The blocks of D; ``first_lane`` is 0, or 16 for the other half of layout F."""
    if cta_group == 2:
        return tuple(b for member in range(2) for b in _per_cta(member, m // 2, n))
    if m == 64 and not ws:
        return (_block(0, 0, n, *((first_lane + 32 * quarter, 16) for quarter in range(4))),)
    return _per_cta(0, m, n)


def _per_cta(member: int, rows: int, n: int) -> tuple[Block, ...]:
    """``rows`` lanes at a time for as many parts of the columns as fit in 128 lanes."""
    parts = 128 // rows
    width = n // parts
    return tuple(
        _block(member, part * width, (part + 1) * width, (part * rows, rows))
        for part in range(parts)
    )
