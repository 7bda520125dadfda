"""Figures that others published, to stand beside ours.

They live in ``results/published.csv`` of the repository, which is not part of an installed
package: without it there is simply nothing to show.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

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
