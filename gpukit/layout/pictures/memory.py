"""Pictures of shared memory in chunks of 16 bytes: addresses, banks and conflicts.

A chunk is what a tensor core, ldmatrix or TMA moves as a piece; eight of them side by side are all
32 banks. Whether an access is free of conflicts is a matter of which of the eight each chunk hits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gpukit.layout import banks, tma
from gpukit.layout.algebra import Array
from gpukit.layout.picture import Cell, Picture, cells_of, names
from gpukit.layout.pictures.registers import BITS, check_columns, k_of
from gpukit.layout.shared import SharedTile, swizzled

CHUNK, LINE = 16, 128
#: What is looked at for conflicts: 8 chunks below each other, or 8 beside each other.
ACCESSES = {"rows": "8 rows of 16 bytes, as ldmatrix and tensor cores read them",
            "row": "8 chunks of a row, as lanes write them that walk along it"}
#: Row and place in the row of each lane: an accumulator's registers, a row, a column.
PATTERNS: dict[str, Callable[[Array], tuple[Array, Array]]] = {
    "fragment": lambda lane: (lane // 4, lane % 4),
    "row": lambda lane: (0 * lane, lane),
    "column": lambda lane: (lane, 0 * lane)}
_COLOURS = "chunk of the 128 bytes that all banks hold: 4 banks each"


def operand(which: str, rows: int, dtype: str = "bf16", mode: str = "128", major: str = "k",
            access: str = "rows") -> Picture:
    """A or B of wgmma or tcgen05 in shared memory, as wide as the swizzle's pattern."""
    check_columns(rows, dtype)
    itemsize = BITS[dtype] // 8
    if major == "mn" and itemsize != 2:
        raise ValueError(f"major=mn: only 16-bit types may run along M or N, not {dtype}")
    k = k_of(dtype)
    wide = k if mode == "none" or major == "mn" else max(k, int(mode) // itemsize)
    tile = SharedTile(mode, major == "k", rows, wide, 8 * itemsize, 0)
    at = tile.places()[0]
    at = at if major == "k" else at.T
    lbo, sbo = tile.steps()
    notes = (f"descriptor: LBO {lbo} bytes, SBO {sbo} bytes; layout {tile.layout} in elements",
             f"one instruction takes {k} columns of K")
    outer, inner = ("mn", "k") if major == "k" else ("k", "mn")
    title = f"{which} in shared memory: {rows} x {wide} {dtype}, {_swizzle(mode)}, {major}-major"
    return chunks(title, at[:, :: CHUNK // itemsize], (outer, inner), CHUNK // itemsize, access,
                  notes)


def box(inner: int = 64, outer: int = 8, dtype: str = "bf16", mode: str = "128",
        access: str = "rows") -> Picture:
    """What TMA makes of a box of two dimensions."""
    itemsize = BITS[dtype] // 8
    if inner * itemsize % CHUNK:
        raise ValueError(f"inner={inner}: a row of a box is a multiple of 16 bytes")
    at = tma.box(inner, outer, itemsize, mode)
    title = f"TMA box of {outer} rows x {inner} {dtype}, {_swizzle(mode)}"
    return chunks(title, at[:, :: CHUNK // itemsize], ("row", "column"), CHUNK // itemsize, access)


def swizzle(mode: str = "128") -> Picture:
    """One period of the pattern, as memory sees it: which chunk of which row lies there."""
    span = LINE if mode in ("none", "128/32") else int(mode)
    lines = 8 if mode in ("none", "128", "128/32") else 8 * span // LINE
    source = swizzled(mode, np.arange(lines * 8) * CHUNK)  # its own inverse
    row, chunk = np.divmod(source.reshape(lines, 8) // CHUNK, span // CHUNK)
    ways = _ways_of_rows(swizzled(mode, np.arange(lines * LINE // span)[:, None] * span
                                  + np.arange(span // CHUNK) * CHUNK))

    def cell(i: int, j: int) -> Cell:
        r, c = int(row[i, j]), int(chunk[i, j])
        facts = {"address": i * LINE + j * CHUNK, "bank": 4 * j, "row": r, "chunk": c}
        return Cell(f"r{r} c{c}", c, facts, int(ways[r, c]))

    return Picture(f"{_swizzle(mode)}: rows of {span} bytes in lines of {LINE}", "line", "bank",
                   names(lines), tuple(str(4 * j) for j in range(8)), cells_of((lines, 8), cell),
                   "chunk of the row", (f"conflicts: {ACCESSES['rows']}",))


def warp_access(pattern: str = "fragment", width: int = 4, row_bytes: int = 128,
                mode: str = "none") -> Picture:
    """One load or store of a warp, ``width`` bytes per lane, on a tile with these rows."""
    lane = np.arange(32)
    row, column = PATTERNS[pattern](lane)
    if row_bytes % width or (int(column.max()) + 1) * width > row_bytes:
        raise ValueError(f"row_bytes={row_bytes}: a row holds {int(column.max()) + 1} accesses of "
                         f"{width} bytes and whole ones only")
    at = swizzled(mode, row * row_bytes + column * width)
    cost = banks.access(at, width)

    def cell(i: int, j: int) -> Cell:
        k = 4 * i + j
        facts = {"lane": k, "row": int(row[k]), "address": int(at[k]), "bank": _bank(at[k]),
                 "pass": int(cost.passes[k])}
        return Cell(f"T{k} {int(at[k]):#x}", _group(at[k]), facts, int(cost.ways[k]))

    title = f"a warp's {pattern}: {width} bytes per lane, rows {row_bytes} bytes apart, "
    return Picture(title + _swizzle(mode), "lane / 4", "lane % 4", names(8), names(4),
                   cells_of((8, 4), cell), _COLOURS,
                   (f"{cost.wavefronts} passes, {cost.ideal} at best",))


def ldmatrix(row_bytes: int = 128, mode: str = "none", count: int = 4) -> Picture:
    """The rows that ldmatrix reads from a row-major tile, 8 of a chunk's column per matrix."""
    if row_bytes % CHUNK:
        raise ValueError(f"row_bytes={row_bytes}: rows start at multiples of 16 bytes")
    lane = np.arange(8 * count)
    at = swizzled(mode, lane % 8 * row_bytes + lane // 8 * CHUNK)
    if int(lane[-1] // 8) * CHUNK >= row_bytes:
        raise ValueError(f"row_bytes={row_bytes}: {count} matrices side by side need "
                         f"{count * CHUNK} bytes")
    ways = banks.access(at, CHUNK).ways

    def cell(i: int, j: int) -> Cell:
        k = 8 * j + i
        facts = {"lane": k, "matrix": j, "row": i, "address": int(at[k]), "bank": _bank(at[k])}
        return Cell(f"{int(at[k]):#x}", _group(at[k]), facts, int(ways[k]))

    cost = banks.access(at, CHUNK)
    notes = (f"{cost.wavefronts} passes, {cost.ideal} at best",)
    title = f"addresses of ldmatrix.x{count}: rows {row_bytes} bytes apart, {_swizzle(mode)}"
    return Picture(title, "row", "matrix", names(8), names(count), cells_of((8, count), cell),
                   _COLOURS, notes)


def chunks(title: str, at: Array, axes: tuple[str, str], per: int, access: str = "rows",
           notes: tuple[str, ...] = ()) -> Picture:
    """Addresses [row, chunk] with the conflicts of an access."""
    ways = _ways_of_rows(at) if access == "rows" else _ways_of_rows(at.T).T

    def cell(i: int, j: int) -> Cell:
        facts = {axes[0]: i, axes[1]: j * per, "address": int(at[i, j]), "bank": _bank(at[i, j])}
        return Cell(f"{int(at[i, j]):#x}", _group(at[i, j]), facts, int(ways[i, j]))

    notes = (f"cells: address of 16 bytes, {per} elements", *notes,
             f"conflicts: {ACCESSES[access]}")
    return Picture(title, axes[0], axes[1], names(at.shape[0]),
                   tuple(str(j * per) for j in range(at.shape[1])), cells_of(at.shape, cell),
                   _COLOURS, notes)


def _ways_of_rows(at: Array) -> Any:
    """Ways of the conflict that each chunk has with the other 7 below or above it."""
    found = np.ones_like(at)
    for first in range(0, len(at), 8):
        for j in range(at.shape[1]):
            found[first : first + 8, j] = banks.access(at[first : first + 8, j], CHUNK).ways
    return found


def _bank(address: Any) -> int:
    return int(banks.bank(address))


def _group(address: Any) -> int:
    return int(address) // CHUNK % 8


def _swizzle(mode: str) -> str:
    return "no swizzle" if mode == "none" else f"{mode}-byte swizzle"
