"""A picture of a layout in a terminal: as many columns as fit, colours where they can be shown."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from . import terminal

if TYPE_CHECKING:
    from rich.text import Text

    from gpukit.layout.picture import Cell, Picture

_STYLES = ("black on cyan", "black on green", "black on yellow", "black on magenta",
           "black on blue", "black on white", "black on bright_cyan", "black on bright_green")
_CONFLICT = "bold white on red"
_LEAST = 4  # cells of a line that are worth a picture


def print_picture(picture: Picture) -> None:
    """Print the grid to standard output, what did not fit and the notes."""
    room = terminal.width(sys.stdout)
    left = max(len(picture.down), *map(len, picture.rows)) + 1
    cell = _width(picture)
    shown = len(picture.columns)
    if room is not None:
        shown = min(shown, max(_LEAST, (room - left) // cell))
    _lines(picture, left, cell, shown)
    if shown < len(picture.columns):
        terminal.warn(f"columns 0 to {shown - 1} of {len(picture.columns)}: --columns {shown}: "
                      "shows more, --out draws all")


def _lines(picture: Picture, left: int, cell: int, shown: int) -> None:
    from rich.text import Text

    click.echo(picture.title)
    click.echo(f"{'':{left}}{picture.across}")
    lines = [Text(f"{picture.down:<{left}}" + "".join(
        f"{name:^{cell}}" for name in picture.columns[:shown]))]
    for name, cells in zip(picture.rows, picture.cells, strict=True):
        line = Text(f"{name:>{left - 1}} ")
        for one in cells[:shown]:
            line.append_text(_cell(one, cell))
        lines.append(line)
    _echo(lines, left + cell * shown)
    from gpukit.layout.draw.svg import notes

    for note in notes(picture):
        click.echo(note)


def _echo(lines: list[Text], columns: int) -> None:
    """Print styled lines; plain ones where colours are not wanted."""
    console = terminal.console(sys.stdout, columns)
    with console.capture() as captured:
        for line in lines:
            console.print(line, no_wrap=True, overflow="ignore", crop=False)
    for text in captured.get().splitlines():
        click.echo(text.rstrip(), color=terminal.interactive(sys.stdout))


def _cell(cell: Cell | None, width: int) -> Text:
    """One cell; a conflict says so in words too."""
    from rich.text import Text

    if cell is None:
        return Text(" " * width)
    style = _CONFLICT if cell.ways > 1 else _STYLES[cell.group % len(_STYLES)]
    return Text(f"{_words(cell):^{width}}", style=style)


def _words(cell: Cell) -> str:
    return f"{cell.text} x{cell.ways}" if cell.ways > 1 else cell.text


def _width(picture: Picture) -> int:
    texts = [_words(cell) for line in picture.cells for cell in line if cell]
    return max(map(len, (*texts, *picture.columns))) + 2
