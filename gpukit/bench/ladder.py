"""Rows of a ladder: kernels of one family that are numbered, each a step beyond the one before."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, Any

from gpukit.bench.model import TIMED_STATUSES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpukit.bench.rows import Row

# matmul.k7, matmul.sm90.k7 and matmul.sm80.a2: a family, maybe an architecture, then the rung.
_RUNG = re.compile(r"(\w+)\.(?:sm\d+\.)?([a-z]+)(\d+)")


def rung(kernel: str) -> tuple[str, int] | None:
    """The ladder that a kernel is on and its number there; None for any other name."""
    match = _RUNG.fullmatch(kernel)
    return (f"{match[1]}.{match[2]}", int(match[3])) if match else None


def gains(rows: Sequence[Row]) -> dict[str, float]:
    """Row key to the time of the rung before it over its own, for the same problem.

    The rung before is the next lower one that has a time among ``rows``.
    """
    problems: dict[Any, dict[int, Row]] = {}
    for row in rows:
        place = rung(row.kernel)
        if place is not None and row.time_us and row.status in TIMED_STATUSES:
            problems.setdefault((place[0], *_problem(row)), {})[place[1]] = row
    return {key: gain for steps in problems.values() for key, gain in _steps(steps).items()}


def _problem(row: Row) -> tuple[Any, ...]:
    """All that two rows must share to differ by their kernel alone."""
    shape, params = (tuple(sorted(values.items())) for values in (row.shape, row.params))
    return (row.device, row.dtype, shape, params, row.l2, row.method, row.load)


def _steps(steps: dict[int, Row]) -> dict[str, float]:
    ordered = [steps[number] for number in sorted(steps)]
    return {
        row.key: before.time_us / row.time_us
        for before, row in itertools.pairwise(ordered)
        if before.time_us and row.time_us
    }
