"""How the elements of a matrix are spread over the registers of a warp.

A fragment is two int arrays [register, lane, element of the register]: the row and the column that
each one holds. Everything is derived from the index formulas in the PTX documentation.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class Fragment:
    """``gather[row, col]`` is an element's position in [register, lane, element] order, flattened;
    ``scatter`` is the inverse: the position in the matrix of each register element."""

    gather: Any
    scatter: Any


def _fragment(rows: Any, cols: Any) -> Fragment:
    rows, cols = (
        np.broadcast_to(x, np.broadcast_shapes(rows.shape, cols.shape)) for x in (rows, cols)
    )
    shape = int(rows.max()) + 1, int(cols.max()) + 1
    gather = np.empty(shape, np.int64)
    gather[rows, cols] = np.arange(rows.size).reshape(rows.shape)
    return Fragment(gather, (rows * shape[1] + cols).ravel())


def _axes(registers: int, elements: int) -> tuple[Any, Any, Any]:
    """Index arrays: register, lane, element."""
    return tuple(np.ogrid[:registers, :32, :elements])  # type: ignore[return-value]


@lru_cache(maxsize=64)
def operand_a(m: int, k: int, elements: int) -> Fragment:
    """A of mma.m8* and m16*: rows by groups of four lanes, K by lane within the group."""
    halves = m // 8
    r, t, e = _axes(halves * k // (4 * elements), elements)
    return _fragment(t // 4 + 8 * (r % halves), (t % 4 + 4 * (r // halves)) * elements + e)


@lru_cache(maxsize=64)
def operand_b(k: int, elements: int) -> Fragment:
    """B (as K rows by 8 columns): columns by groups of four lanes."""
    r, t, e = _axes(k // (4 * elements), elements)
    return _fragment((t % 4 + 4 * r) * elements + e, t // 4)


@lru_cache(maxsize=16)
def accumulator(m: int, elements: int) -> Fragment:
    """C and D, 8 columns wide: two neighbours of a row per lane, then the row 8 further down."""
    r, t, e = _axes(m // 8 * 2 // elements, elements)
    i = r * elements + e
    return _fragment(t // 4 + 8 * (i // 2), 2 * (t % 4) + i % 2)


# mma.m8n8k4 with f16 operands: four products, each by four lanes of both half warps. The four
# matrices are stacked along the rows.


def _quads(registers: int, elements: int) -> tuple[Any, Any, Any, Any]:
    """Which of the four products, lane within the quad, upper half warp, index of the element."""
    r, t, e = _axes(registers, elements)
    return t % 16 // 4, t % 4, t // 16, r * elements + e


@lru_cache(maxsize=8)
def quad_operand(is_a: bool, row_major: bool) -> Fragment:
    """A (8 x 4) or B (4 x 8)."""
    which, lane, upper, i = _quads(2, 2)
    if row_major == is_a:  # each lane holds a stretch of K
        outer, k = lane + 4 * upper, i
    else:
        outer, k = i + 4 * upper, lane
    if is_a:
        return _fragment(8 * which + outer, k)
    return _fragment(4 * which + k, outer)


@lru_cache(maxsize=2)
def quad_accumulator(elements: int) -> Fragment:
    """C or D (8 x 8): whole rows for f16, 2 x 2 patches for f32."""
    which, lane, upper, i = _quads(8 // elements, elements)
    if elements == 2:
        return _fragment(8 * which + lane + 4 * upper, i)
    row = (lane & 1) + (i & 2) + 4 * upper
    return _fragment(8 * which + row, (i & 4) + (lane & 2) + (i & 1))
