"""SVG, and HTML around it. Every cell tells its facts when pointed at."""

from __future__ import annotations

from html import escape

from gpukit.layout.draw.colours import filler, ink
from gpukit.layout.picture import Cell, Picture

_HEIGHT, _CHARACTER, _FONT = 18, 6.7, 11
_MARGIN, _TOP = 12, 58
_STYLE = (f"text{{font:{_FONT}px ui-monospace,Menlo,Consolas,monospace;fill:#212529}}"
          ".title{font-size:14px;font-weight:bold}.faint{fill:#868e96}"
          "rect{stroke:#ffffff;stroke-width:1}")


def svg(picture: Picture) -> bytes:
    """A standalone SVG."""
    return _svg(picture).encode()


def html(picture: Picture) -> bytes:
    """A page with the picture in it."""
    title = escape(picture.title)
    return (f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
            "<style>body{margin:1em;font-family:system-ui,sans-serif}</style></head>\n"
            f"<body>{_svg(picture)}</body></html>\n").encode()


def _svg(picture: Picture) -> str:
    left = _MARGIN + _CHARACTER * (max(map(len, (*picture.rows, picture.down))) + 2)
    width = cell_width(picture)
    right = left + width * len(picture.columns) + _MARGIN
    below = _TOP + _HEIGHT * len(picture.rows)
    lines = notes(picture)
    right = max(right, _MARGIN * 2 + max(8.6 * len(picture.title),
                                         _CHARACTER * max(map(len, lines))))
    height = below + 16 * len(lines) + _MARGIN
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{right:.0f}" height="{height:.0f}" '
             f'viewBox="0 0 {right:.0f} {height:.0f}"><style>{_STYLE}</style>',
             '<rect width="100%" height="100%" fill="#ffffff"/>',
             _text(_MARGIN, 20, picture.title, "title"), *_headers(picture, left, width)]
    fill = filler(picture)
    for i, line in enumerate(picture.cells):
        parts += [_cell(cell, fill(cell), left + j * width, _TOP + i * _HEIGHT, width)
                  for j, cell in enumerate(line)]
    parts += [_text(_MARGIN, below + 16 * (i + 1), line, "faint") for i, line in enumerate(lines)]
    return "\n".join([*parts, "</svg>"])


def cell_width(picture: Picture) -> float:
    """Room for the longest text."""
    texts = [cell.text for line in picture.cells for cell in line if cell]
    return _CHARACTER * (max(map(len, (*texts, *picture.columns))) + 1.5)


def notes(picture: Picture) -> list[str]:
    """The lines below the grid."""
    worst = picture.conflicts
    found = [f"colour: {picture.colours}", *picture.notes]
    if any(note.startswith("conflicts") for note in found) or worst:
        found.append(f"red: a bank conflict, up to {worst}-way" if worst else "no bank conflicts")
    return found


def _headers(picture: Picture, left: float, width: float) -> list[str]:
    corner = _text(_MARGIN, _TOP - 6, picture.down, "faint")
    across = _text(left, _TOP - 22, picture.across, "faint")
    columns = [_text(left + (j + 0.5) * width, _TOP - 6, name, "faint", "middle")
               for j, name in enumerate(picture.columns)]
    rows = [_text(left - 6, _TOP + i * _HEIGHT + 13, name, "faint", "end")
            for i, name in enumerate(picture.rows)]
    return [corner, across, *columns, *rows]


def _cell(cell: Cell | None, colour: str, x: float, y: float, width: float) -> str:
    box = f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{_HEIGHT}" fill="{colour}"'
    if cell is None:
        return f"{box}/>"
    facts = ", ".join(f"{name} {value}" for name, value in cell.facts.items())
    facts += f", {cell.ways}-way conflict" if cell.ways > 1 else ""
    text = (f'<text x="{x + width / 2:.1f}" y="{y + 13}" text-anchor="middle" '
            f'style="fill:{ink(cell)}">{escape(cell.text)}</text>')
    return f"<g><title>{escape(facts)}</title>{box}/>{text}</g>"


def _text(x: float, y: float, text: str, style: str, anchor: str = "start") -> str:
    return (f'<text x="{x:.1f}" y="{y:.1f}" class="{style}" text-anchor="{anchor}">'
            f"{escape(text)}</text>")
