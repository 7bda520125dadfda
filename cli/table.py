"""Tables for a terminal: columns are left out or stacked where room is short, never cut."""

from __future__ import annotations

import sys
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from . import terminal

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

GAP = 3  # what Rich puts between two columns: padding, rule, padding
_STYLES = {
    "ok": "green",
    "wrong": "bold red",
    "error": "bold red",
    "incomplete": "yellow",
    "throttled": "yellow",
    "cache-resident": "yellow",
    "FASTER": "green",
    "SLOWER": "bold red",
    "BROKEN": "bold red",
    "MISSING": "bold red",
    "FIXED": "green",
    "CHANGED": "yellow",
    "AMBIGUOUS": "yellow",
}


@dataclass(frozen=True)
class Field:
    """One column. ``rank`` orders what is left out first when room is short; 0 always stays."""

    header: str
    cells: tuple[str, ...]
    numeric: bool = False
    rank: int = 0

    @property
    def width(self) -> int:
        return max(map(len, (self.header, *self.cells)))


def print_table(fields: Sequence[Field]) -> None:
    """Print columns of cells to standard output."""
    room = terminal.width(sys.stdout)
    fitting = fit(fields, room)
    if fitting is None:
        click.echo(stacked(fields))
        return
    for line in _render(fitting).splitlines():
        click.echo(line.rstrip(), color=terminal.interactive(sys.stdout))
    hidden = [field.header for field in fields if field not in fitting]
    if hidden:
        text = f"no room for {', '.join(hidden)}: widen the terminal, or pipe the table"
        terminal.warn(textwrap.fill(text, room or len(text)))


def fit(fields: Sequence[Field], room: int | None) -> list[Field] | None:
    """Return the fields that fit side by side, least important left out; None if none do."""
    kept = list(fields)
    while room is not None and _total(kept) > room:
        last = max(kept, key=lambda field: field.rank)
        if last.rank == 0:
            return None
        kept.remove(last)
    return kept


def stacked(fields: Sequence[Field]) -> str:
    """Return the table as blocks of ``header value`` lines, for very little room."""
    names = max(len(field.header) for field in fields)
    headers = [f"{field.header:<{names}}" for field in fields]
    blocks = (
        "\n".join(f"{header}  {cell}" for header, cell in zip(headers, row, strict=True))
        for row in _rows(fields)
    )
    return "\n\n".join(blocks)


def _rows(fields: Sequence[Field]) -> Iterable[tuple[str, ...]]:
    return zip(*(field.cells for field in fields), strict=True)


def _total(fields: Sequence[Field]) -> int:
    return sum(field.width for field in fields) + GAP * (len(fields) - 1)


def _render(fields: Sequence[Field]) -> str:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1))
    for field in fields:
        table.add_column(field.header, justify="right" if field.numeric else "left", no_wrap=True)
    for row in _rows(fields):
        table.add_row(*(Text(cell, style=_STYLES.get(cell, "")) for cell in row))
    console = terminal.console(sys.stdout, _total(fields))
    with console.capture() as captured:
        console.print(table)
    return captured.get()
