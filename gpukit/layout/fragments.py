"""Which thread holds which element in which register: mma.sync, wgmma, ldmatrix.

A fragment is two arrays [thread, value], row and column (or K) of the element. Values count
through the registers: value v of 16-bit elements is half v % 2 of register v / 2. Everything
follows from thread-value layouts, which number the elements of a matrix column by column.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from gpukit.layout.algebra import Array, Layout

Fragment: TypeAlias = "tuple[Array, Array]"


def thread_value(threads: Layout, values: Layout, rows: int) -> Fragment:
    """(row, column) [thread, value] of a thread-value layout over a column-major matrix."""
    index = threads(np.arange(threads.size))[:, None] + values(np.arange(values.size))
    return index % rows, index // rows


def accumulator(rows: int, columns: int) -> Fragment:
    """C and D of a warp (16 rows) or a warpgroup (64 rows): (row, column)."""
    threads = Layout((4, 8, rows // 16), (2 * rows, 1, 16))
    values = Layout((2, 2, columns // 8), (rows, 8, 8 * rows))
    return thread_value(threads, values, rows)


def operand_a(rows: int, k: int, per: int) -> Fragment:
    """A of a warp (16 rows) or a warpgroup (64 rows), ``per`` elements a register: (row, k)."""
    threads = Layout((4, 8, rows // 16), (per * rows, 1, 16))
    values = Layout((per, 2, k // (4 * per)), (rows, 8, 4 * per * rows))
    return thread_value(threads, values, rows)


def operand_b(k: int, per: int) -> Fragment:
    """B of mma.sync, 8 columns, ``per`` elements a register: (column, k)."""
    threads = Layout((4, 8), (per * 8, 1))
    values = Layout((per, k // (4 * per)), (8, 4 * per * 8))
    return thread_value(threads, values, 8)


def ldmatrix(count: int, transposed: bool) -> tuple[Array, Array, Array]:
    """(matrix, row, column) [thread, value] of ldmatrix with ``count`` 8 x 8 matrices.

    Lane l gives the address of row l % 8 of matrix l / 8; value v is half v % 2 of register v / 2,
    and register r belongs to matrix r.
    """
    lane, value = np.ogrid[:32, : 2 * count]
    matrix = np.broadcast_to(value // 2, (32, 2 * count))
    row = np.broadcast_to(lane // 4, (32, 2 * count))
    column = np.broadcast_to(2 * (lane % 4) + value % 2, (32, 2 * count))
    return (matrix, column, row) if transposed else (matrix, row, column)
