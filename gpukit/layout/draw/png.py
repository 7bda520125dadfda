"""PNG by matplotlib, an optional requirement (extra "plot")."""

from __future__ import annotations

import io
from typing import Any

from gpukit.layout.draw.colours import filler, ink
from gpukit.layout.draw.svg import cell_width, notes
from gpukit.layout.picture import Picture

_HEIGHT, _MOST_TEXTS = 18.0, 6000  # points; beyond so many cells only the colours are drawn
_TOP, _DPI = 58.0, 120


def png(picture: Picture) -> bytes:
    """A bitmap. Raises ``ImportError`` without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("PNG needs matplotlib: pip install 'gpukit[plot]'; SVG and HTML "
                          "need nothing") from error
    width, lines = cell_width(picture), notes(picture)
    left = 8.0 * (max(map(len, (*picture.rows, picture.down))) + 2)
    across = max(left + width * len(picture.columns) + 12,
                 6.9 * max(map(len, lines)) + 24, 9.5 * len(picture.title))
    down = _TOP + _HEIGHT * len(picture.rows) + 16 * len(lines) + 16
    figure = Figure(figsize=(across / 72, down / 72), dpi=_DPI)
    axes: Any = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(0, across)
    axes.set_ylim(down, 0)
    axes.axis("off")
    _grid(axes, picture, left, width)
    _words(axes, picture, left, width, lines)
    file = io.BytesIO()
    figure.savefig(file, format="png")
    return file.getvalue()


def _grid(axes: Any, picture: Picture, left: float, width: float) -> None:
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Rectangle

    places = [(i, j) for i in range(len(picture.rows)) for j in range(len(picture.columns))]
    boxes = [Rectangle((left + j * width, _TOP + i * _HEIGHT), width, _HEIGHT) for i, j in places]
    fill = filler(picture)
    colours = [fill(picture.cells[i][j]) for i, j in places]
    axes.add_collection(PatchCollection(boxes, facecolors=colours, edgecolors="white",
                                        linewidths=0.8))
    if len(places) > _MOST_TEXTS:
        return
    for i, j in places:
        cell = picture.cells[i][j]
        if cell is not None:
            axes.text(left + (j + 0.5) * width, _TOP + (i + 0.5) * _HEIGHT, cell.text, size=8,
                      ha="center", va="center", family="monospace", color=ink(cell))


def _words(axes: Any, picture: Picture, left: float, width: float, lines: list[str]) -> None:
    faint: dict[str, Any] = {"size": 8, "color": "#868e96", "family": "monospace"}
    axes.text(12, 20, picture.title, size=11, weight="bold", family="monospace")
    axes.text(12, _TOP - 6, picture.down, **faint)
    axes.text(left, _TOP - 22, picture.across, **faint)
    for j, name in enumerate(picture.columns):
        axes.text(left + (j + 0.5) * width, _TOP - 6, name, ha="center", **faint)
    for i, name in enumerate(picture.rows):
        axes.text(left - 6, _TOP + (i + 0.5) * _HEIGHT, name, ha="right", va="center", **faint)
    for i, line in enumerate(lines):
        axes.text(12, _TOP + _HEIGHT * len(picture.rows) + 16 * (i + 1), line, **faint)
