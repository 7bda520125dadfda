"""Figures that others published, to stand beside ours.

They live in ``results/published.csv`` of the repository, which is not part of an installed
package: without it there is simply nothing to show.
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gpukit.bench.columns import NOTHING, Column
from gpukit.bench.ladder import rung

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gpukit.bench.rows import Row

_HALVES = ("bf16", "f16")
#: Three folders up from here is the repository when gpukit runs from a checkout.
PATH = Path(__file__).resolve().parents[2] / "results" / "published.csv"


@dataclass(frozen=True)
class Published:
    """One published figure, ``value`` in ``unit``, as the source states it."""

    family: str
    row: str
    gpu: str
    problem: str
    value: float
    unit: str
    source: str


def published(family: str | None = None, path: Path = PATH) -> list[Published] | None:
    """Return the published figures, of one family or all; None when the file is not there."""
    if not path.is_file():
        return None
    with path.open(encoding="utf-8", newline="") as file:
        figures = [_figure(record) for record in csv.DictReader(file)]
    return [figure for figure in figures if family in (None, figure.family)]


def _figure(record: dict[str, str]) -> Published:
    return Published(**{**record, "value": float(record["value"])})  # type: ignore[arg-type]


def of_rung(figures: Iterable[Published], number: int) -> list[Published]:
    """Return the figures of one rung of a ladder, whatever their GPU and problem."""
    return [figure for figure in figures if re.match(rf"kernel {number}\b", figure.row)]


def published_column(rows: Sequence[Row], figures: Iterable[Published]) -> Column | None:
    """Return the figures of ladder rungs as a column beside the rows of the same rung, problem and
    dtype; None where no row has one. The GPU is the publisher's and stands in the cell."""
    cells = {row.key: _cell(row, figures) for row in rows}
    if set(cells.values()) <= {NOTHING}:
        return None
    return Column("published", lambda row: cells.get(row.key, NOTHING), rank=3)


def _cell(row: Row, figures: Iterable[Published]) -> str:
    found = [f"{figure.value:g} on {figure.gpu}" for figure in figures if _same(figure, row)]
    return " ".join(found) or NOTHING


def _same(figure: Published, row: Row) -> bool:
    return _named(figure, row) or _same_rung(figure, row)


def _named(figure: Published, row: Row) -> bool:
    """Whether a problem given as ``name=value`` words is the row's, of a 16-bit type."""
    words = dict(re.findall(r"(\w+)=(\w+)", figure.problem))
    facts = {**row.shape, **row.params}
    return figure.family == row.family and row.dtype in _HALVES and bool(words) and all(
        str(facts.get(name)) == value for name, value in words.items())


def _same_rung(figure: Published, row: Row) -> bool:
    place = rung(row.kernel)
    if place is None or not of_rung([figure], place[1]):
        return False
    problem = f"{'x'.join(map(str, row.shape.values()))} {row.dtype}"
    layout = ", B transposed" if row.params.get("layout") == "nt" else ""
    return place[0] == f"{figure.family}.k" and figure.problem == problem + layout
