"""Tensor memory: 128 lanes of 512 columns of 4 bytes. Where matrices lie, and who loads what.

Layouts map [row, column] to lane + 128 * column.
"""

from __future__ import annotations

import numpy as np

from gpukit.layout.algebra import Array, Layout

LANES = 128
#: Shapes of tcgen05.ld and st: lanes of a warp, layout of (thread, register) to lane and column.
SHAPES = ("32x32b", "16x64b", "16x128b", "16x256b", "16x32bx2")


def accumulator(m: int, n: int, group: int = 1, ws: bool = False) -> Layout:
    """D of tcgen05.mma: of its M rows those that one CTA has."""
    rows = m // group
    if rows == 64 and group == 1 and not ws:
        return Layout(((16, 4), n), ((1, 32), LANES))
    parts = LANES // rows
    return Layout((rows, (n // parts, parts)), (1, (LANES, rows)))


def scale_factors(rows: int) -> Layout:
    """[row, copy] of scale factors: 32 rows a column, a copy in every quarter of the lanes."""
    return Layout(((32, -(-rows // 32)), 4), ((1, LANES), 32))


def split_scale_factors(rows: int) -> Layout:
    """[row, copy] of B's where lanes 64 to 127 compute the second half of the columns."""
    half = rows // 2
    assert half % 32 == 0
    return Layout(((32, half // 32, 2), 2), ((1, LANES, 64), 32))


def loaded(shape: str, repeat: int, split: int = 0) -> tuple[Array, Array]:
    """(lane, column) [thread, register] that one warp's tcgen05.ld reads, from its address.

    ``split`` is the second column of 16x32bx2.
    """
    threads, registers = _thread_registers(shape, repeat, split)
    at = threads(np.arange(32))[:, None] + registers(np.arange(registers.size))
    return at % LANES, at // LANES


def _thread_registers(shape: str, repeat: int, split: int) -> tuple[Layout, Layout]:
    """Cells lane + 128 * column of the 32 threads, and of their registers."""
    if shape == "32x32b":
        return Layout(32, 1), Layout(repeat, LANES)
    if shape == "16x64b":
        return Layout((2, 2, 8), (8, LANES, 1)), Layout(repeat, 2 * LANES)
    if shape == "16x128b":
        return Layout((4, 8), (LANES, 1)), Layout((2, repeat), (8, 4 * LANES))
    if shape == "16x256b":
        return (Layout((4, 8), (2 * LANES, 1)),
                Layout((2, 2, repeat), (LANES, 8, 8 * LANES)))
    return Layout((16, 2), (1, split * LANES)), Layout(repeat, LANES)
