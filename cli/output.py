"""Rows on standard output, in the format that was asked for."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from gpukit.bench.columns import columns_for, constants, notes

from .table import Field, print_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpukit.bench.columns import Column
    from gpukit.bench.model import Row
    from gpukit.bench.published import Published

FORMATS = ("table", "csv", "json", "markdown")
#: Columns of the summary that are numbers alone.
_NUMERIC = ("rows", "geomean", "below 0.95")
#: Name of a sort to the row field, and whether the largest comes first.
SORTS = {
    "time": ("time_us", False),
    "gbs": ("gbs", True),
    "tflops": ("tflops", True),
    "peak": ("pct_peak", True),
    "kernel": ("kernel", False),
}


def print_rows(rows: Sequence[Row], how: str, beside: Sequence[Column] = ()) -> None:
    """Print rows as a table for people, with more columns ``beside``, or in full as CSV, JSON or
    Markdown."""
    if how == "table":
        _print_table(rows, beside)
    elif how == "json":
        click.echo(json.dumps([row.to_dict() for row in rows], indent=1))
    else:
        from gpukit.bench.formats import to_csv, to_markdown

        click.echo(to_csv(rows) if how == "csv" else to_markdown(rows), nl=False)


def ordered(rows: Sequence[Row], sort: str | None) -> list[Row]:
    """Return the rows sorted best first; rows without the value come last."""
    if sort is None:
        return list(rows)
    field, descending = SORTS[sort]
    having = [row for row in rows if getattr(row, field) is not None]
    rest = [row for row in rows if getattr(row, field) is None]
    return sorted(having, key=lambda row: getattr(row, field), reverse=descending) + rest


def _print_table(rows: Sequence[Row], beside: Sequence[Column]) -> None:
    if not rows:
        return
    devices = ", ".join(dict.fromkeys(f"{row.device} ({row.arch})" for row in rows))
    families = ", ".join(dict.fromkeys(row.family for row in rows))
    common = "".join(f", {name} {value}" for name, value in constants(rows).items())
    click.echo(f"{families} on {devices}{common}")
    print_columns(rows, [*columns_for(rows), *beside])
    for note in notes(rows):
        click.echo(note)
    _print_summary(rows)


def _print_summary(rows: Sequence[Row]) -> None:
    """Print how each kernel stands against its peers over all rows."""
    from gpukit.bench.summary import HEADER, summary_cells

    lines = summary_cells(rows)
    if lines:
        click.echo()
        columns = zip(HEADER, zip(*lines, strict=True), strict=True)
        print_table([Field(header, cells, header in _NUMERIC) for header, cells in columns])


def print_columns(rows: Sequence[Row], columns: Sequence[Column]) -> None:
    """Print some columns of rows as a table."""
    print_table(
        [
            Field(column.header, tuple(map(column.cell, rows)), column.numeric, column.rank)
            for column in columns
        ]
    )


def print_published(figures: Sequence[Published]) -> None:
    """Print figures of others as a table."""
    click.echo("\npublished by others, on the machine named")
    print_table(
        [
            Field("what", tuple(figure.row for figure in figures)),
            Field("GPU", tuple(figure.gpu for figure in figures)),
            Field("value", tuple(f"{figure.value:g}" for figure in figures), numeric=True),
            Field("unit", tuple(figure.unit for figure in figures)),
            Field("problem", tuple(figure.problem for figure in figures), rank=1),
            Field("source", tuple(figure.source for figure in figures), rank=2),
        ]
    )
