"""Order statistics of timing samples.

Timings are skewed, quantised by the timer and sometimes bimodal, so nothing here assumes a
distribution: medians, quartiles, and intervals of the median from ranks alone. All of it
assumes independent samples; slow drift (temperature, clocks) makes the true uncertainty of a
number larger than what these functions see within one run.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gpukit.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Sequence


def median(samples: Sequence[float]) -> float:
    """The middle sample, or the mean of the two middle ones."""
    return quantile(samples, 0.5)


def quantile(samples: Sequence[float], share: float) -> float:
    """The sample at ``share`` (0 to 1) of the sorted order, interpolated between neighbours."""
    return _at_rank(_sorted(samples), share * (len(samples) - 1))


def spread(samples: Sequence[float]) -> float:
    """Interquartile range over the median, a share; 0.0 when the median is 0."""
    ordered = _sorted(samples)
    low, middle, high = (_at_rank(ordered, q * (len(ordered) - 1)) for q in (0.25, 0.5, 0.75))
    return (high - low) / middle if middle else 0.0


def standard_error(samples: Sequence[float]) -> float:
    """Standard error of the median, from the ranks one binomial deviation around the middle.

    The number of samples below the true median is binomial(n, 1/2) with deviation sqrt(n)/2, so
    half the distance between the samples at ranks middle -/+ sqrt(n)/2 plays the part of one
    standard error. The MAD-based estimate (1.25 x 1.48 x MAD / sqrt(n)) was not taken: it holds
    for normal samples only and reports a bimodal run as precise. One sample gives infinity.
    """
    ordered = _sorted(samples)
    if len(ordered) < 2:
        return math.inf
    middle, deviation = (len(ordered) - 1) / 2, math.sqrt(len(ordered)) / 2
    return (_at_rank(ordered, middle + deviation) - _at_rank(ordered, middle - deviation)) / 2


def median_interval(samples: Sequence[float], confidence: float = 0.95) -> tuple[float, float]:
    """The narrowest symmetric pair of samples that holds the true median with ``confidence``.

    Exact binomial ranks, any continuous distribution. Too few samples for the confidence (fewer
    than 6 at 0.95) give (-inf, inf): nothing is known, and a comparison must say so.
    """
    if not 0 < confidence < 1:
        raise ArgumentError(f"confidence={confidence!r}: must lie strictly between 0 and 1")
    ordered = _sorted(samples)
    skipped = _outer_ranks(len(ordered), (1 - confidence) / 2)
    if skipped == 0:
        return -math.inf, math.inf
    return ordered[skipped - 1], ordered[-skipped]


def _outer_ranks(n: int, tail: float) -> int:
    """The largest r with P[binomial(n, 1/2) < r] <= tail; in exact integers."""
    below, rank = 1, 0
    while below <= tail * 2**n:
        rank += 1
        below += math.comb(n, rank)
    return rank


def _at_rank(ordered: Sequence[float], rank: float) -> float:
    rank = min(max(rank, 0.0), len(ordered) - 1.0)
    left = math.floor(rank)
    right = min(left + 1, len(ordered) - 1)
    return ordered[left] + (ordered[right] - ordered[left]) * (rank - left)


def _sorted(samples: Sequence[float]) -> list[float]:
    if not samples:
        raise ArgumentError("samples is empty: at least one is needed")
    return sorted(samples)
