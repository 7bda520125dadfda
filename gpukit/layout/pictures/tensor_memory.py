"""Pictures of tensor memory: what a warp loads, and where an accumulator lies."""

from __future__ import annotations

import numpy as np

from gpukit.layout import tmem
from gpukit.layout.picture import Cell, Picture, filled, names, whole

_MOST_REGISTERS = 128
_ROWS = {(1, False): (64, 128), (1, True): (32, 64, 128), (2, False): (128, 256)}


def loaded(shape: str = "32x32b", repeat: int = 1, split: int = 16) -> Picture:
    """The cells that one warp's tcgen05.ld reads, by thread and register."""
    if shape == "16x32bx2" and split < repeat:
        raise ValueError(f"split={split}: its halves overlap, {repeat} columns each")
    lane, column = tmem.loaded(shape, repeat, split)
    if repeat & repeat - 1 or lane.shape[1] > _MOST_REGISTERS:
        raise ValueError(f"repeat={repeat}: .{shape} takes powers of two of up to "
                         f"{_MOST_REGISTERS} registers")
    thread, register = np.indices(lane.shape)
    placed = {(i, j): Cell(f"T{t} r{r}", t, {"lane": i, "column": j, "thread": t, "register": r})
              for i, j, t, r in whole(lane, column, thread, register)}
    grid = int(lane.max()) + 1, int(column.max()) + 1
    return Picture(f"tcgen05.ld .{shape}.x{repeat}: one warp", "lane", "column", names(grid[0]),
                   names(grid[1]), filled(grid, placed), "lane of the warp",
                   ("cells: thread and register; lanes and columns count from the address",))


def accumulator(m: int = 128, n: int = 64, group: int = 1, ws: bool = False) -> Picture:
    """D of tcgen05.mma: the row and column of D in every cell; of a pair, in the first CTA."""
    allowed = _ROWS.get((group, ws), ())
    if m not in allowed:
        raise ValueError(f"m={m}: cta_group::{group}{' with .ws' if ws else ''} has "
                         f"{', '.join(map(str, allowed)) or 'no shapes'}")
    if (ws and n not in (64, 128, 256)) or n % (8 * group):
        raise ValueError(f"n={n}: cta_group::{group} has " + (
            "64, 128, 256 with .ws" if ws else f"multiples of {8 * group}"))
    at = tmem.accumulator(m, n, group, ws).table()
    row, column = np.indices(at.shape)
    placed = {(i, j): Cell(f"{r},{c}", r // 16, {"lane": i, "column": j, "row": r, "col": c})
              for i, j, r, c in whole(at % tmem.LANES, at // tmem.LANES, row, column)}
    grid = tmem.LANES, int(at.max()) // tmem.LANES + 1
    kind = f"cta_group::{group}" + (", .ws" if ws else "")
    return Picture(f"D of tcgen05.mma M={m} N={n}, {kind}, in tensor memory", "lane", "column",
                   names(grid[0]), names(grid[1]), filled(grid, placed), "16 rows of D",
                   ("cells: row and column of D",))
