"""The rows of a study, found by problem and launch, and what two of them say of each other.

Two rows are compared by the interval of the ratio of their medians, from ranks of the samples
(`gpukit.bench.compare`), against a noise threshold that the study measures itself: the library's
own launch and the same launch spelt out are timed as two cases, and should not differ.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from gpukit.bench.compare import AMBIGUOUS, FASTER, SAME, SLOWER, ratio_interval, verdict
from gpukit.bench.model import TIMED_STATUSES, Row
from gpukit.measure import quantile
from gpukit.study.design import Params, traffic_of

#: No difference below this is one, whatever twins say.
LEAST_NOISE = 0.005
_TWINS = 0.95  # quantile of the differences between twins
_LAUNCH = ("grid", "block", "vec", "unroll", "index", "cache")

Key = tuple[str, str, int, str]


@dataclass(frozen=True)
class Ratio:
    """Time of one row over that of another, with the interval it lies in, and the verdict on the
    first: FASTER, SLOWER, SAME (within the noise), or AMBIGUOUS (the samples cannot tell)."""

    value: float
    low: float
    high: float
    verdict: str

    @property
    def told_apart(self) -> bool:
        """Whether the two differ beyond interval and noise."""
        return self.verdict in (FASTER, SLOWER)

    def __str__(self) -> str:
        mark = "" if self.told_apart else " ="
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]{mark}"


class Table:
    """Timed rows of one device."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._rows: dict[Key, dict[frozenset[Any], Row]] = {}
        for row in rows:
            if row.status in TIMED_STATUSES and _timed(row):
                self._rows.setdefault(_key(row), {})[frozenset(row.params.items())] = row

    def __bool__(self) -> bool:
        return bool(self._rows)

    def get(self, op: str, dtype: str, n: int, l2: str, params: Params) -> Row | None:
        """The row of a case; None where it was not timed."""
        return self._rows.get((op, dtype, n, l2), {}).get(frozenset(params.items()))

    def contest(self, op: str, dtype: str, n: int, l2: str) -> list[Row]:
        """All rows of a problem in an L2 state."""
        return list(self._rows.get((op, dtype, n, l2), {}).values())

    def problems(self) -> list[Key]:
        """Every (op, dtype, n, l2), by size."""
        return sorted(self._rows, key=lambda key: (key[2], key))

    def sizes(self, op: str, dtype: str, l2: str) -> list[int]:
        """Elements of the problems of an op, ascending."""
        return [n for o, d, n, state in self.problems() if (o, d, state) == (op, dtype, l2)]

    def rows(self) -> list[Row]:
        """All of them."""
        return [row for rows in self._rows.values() for row in rows.values()]

    def ratio(self, ours: Row, theirs: Row) -> Ratio:
        """Time of ``ours`` over that of ``theirs``."""
        assert ours.time_us and theirs.time_us
        low, high = ratio_interval(theirs, ours)
        noise = self.noise(traffic(ours))
        return Ratio(ours.time_us / theirs.time_us, low, high, verdict(low, high, noise))

    def noise(self, size: int) -> float:
        """By how much equal launches differ at about this traffic in bytes, a share."""
        near = [gap for at, gap in self.twins if size / 4 <= at <= size * 4]
        return max(LEAST_NOISE, quantile(near, _TWINS)) if near else 2 * LEAST_NOISE

    @cached_property
    def twins(self) -> list[tuple[int, float]]:
        """Traffic, and the difference as a share, of pairs of rows with one and the same launch."""
        return [(traffic(one), abs(one.time_us / other.time_us - 1))
                for rows in self._rows.values() for one, other in _pairs(list(rows.values()))
                if one.time_us and other.time_us]


def _timed(row: Row) -> bool:
    """Whether there is anything to compare: samples, a median and a rate, all of them numbers."""
    found = (row.time_us, row.gbs, *(row.samples_us or ()))
    return len(found) > 2 and all(one is not None and 0 < one < math.inf for one in found)


def _key(row: Row) -> Key:
    return op_of(row), row.dtype, row.shape["n"], row.l2


def _pairs(rows: Sequence[Row]) -> list[tuple[Row, Row]]:
    """The library's own launch beside the case that spells it out."""
    own = [row for row in rows if not row.params]
    return [(one, other) for one in own for other in rows
            if other.params and all(one.launch[n] == other.launch[n] for n in _LAUNCH)]


def op_of(row: Row) -> str:
    """The op of a row: ``copy``."""
    return row.kernel.partition(".")[2]


def traffic(row: Row) -> int:
    """Bytes that a launch reads and writes."""
    return traffic_of(op_of(row), row.dtype, row.shape["n"])


def rate(row: Row) -> float:
    """GB/s."""
    return row.gbs or 0.0


def fastest(rows: Iterable[Row]) -> Row | None:
    """The row with the smallest median; None of none."""
    return min(rows, key=lambda row: row.time_us or 0.0, default=None)


__all__ = ["AMBIGUOUS", "FASTER", "SAME", "SLOWER", "Key", "Ratio", "Table", "fastest", "op_of",
           "rate", "traffic"]
