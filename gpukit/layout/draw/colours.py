"""Colours of cells: as many light hues as there are groups, and red for conflicts."""

from __future__ import annotations

import colorsys
from collections.abc import Callable

from gpukit.layout.picture import Cell, Picture

CONFLICT = "#e03131"
EMPTY = "#f1f3f5"


def filler(picture: Picture) -> Callable[[Cell | None], str]:
    """What gives each cell of a picture its colour, "#rrggbb"."""
    count = groups(picture)

    def fill(cell: Cell | None) -> str:
        if cell is None:
            return EMPTY
        return CONFLICT if cell.ways > 1 else hue(cell.group, count)

    return fill


def groups(picture: Picture) -> int:
    """How many hues a picture needs."""
    return max((cell.group for line in picture.cells for cell in line if cell), default=0) + 1


def hue(group: int, count: int) -> str:
    """A light colour; neighbouring groups differ in lightness as well as in hue."""
    light = (0.86, 0.78)[group % 2]
    red, green, blue = colorsys.hls_to_rgb(group / max(count, 1), light, 0.75)
    return f"#{round(255 * red):02x}{round(255 * green):02x}{round(255 * blue):02x}"


def ink(cell: Cell | None) -> str:
    """What is readable on the cell's colour."""
    return "#ffffff" if cell is not None and cell.ways > 1 else "#212529"
