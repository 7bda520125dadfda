from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from gpukit.errors import ArgumentError
from gpukit.measure.statistics import (
    median,
    median_interval,
    quantile,
    spread,
    standard_error,
)

samples = st.lists(st.floats(1e-3, 1e6), min_size=1, max_size=60)


@given(samples, st.floats(0, 1))
def test_quantiles_are_numpys(values: list[float], share: float) -> None:
    assert quantile(values, share) == pytest.approx(float(np.quantile(values, share)), rel=1e-9)
    assert median(values) == pytest.approx(float(np.median(values)), rel=1e-12)


@given(samples)
def test_spread_is_iqr_over_median(values: list[float]) -> None:
    expected = float(stats.iqr(values)) / float(np.median(values))
    assert spread(values) == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_spread_of_zeros_is_zero() -> None:
    assert spread([0.0, 0.0, 0.0]) == 0.0


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.95, 0.99])
@pytest.mark.parametrize("n", [1, 5, 6, 7, 8, 20, 101, 1000])
def test_interval_ranks_against_scipys_quantile_test(n: int, confidence: float) -> None:
    values = [float(value) for value in range(n)]
    random.Random(n).shuffle(values)
    expected = stats.quantile_test(values, p=0.5).confidence_interval(confidence_level=confidence)
    low, high = median_interval(values, confidence)
    if math.isnan(expected.low) or math.isnan(expected.high):
        assert (low, high) == (-math.inf, math.inf)
    else:
        assert (low, high) == (expected.low, expected.high)


def test_interval_covers_the_true_median_as_often_as_promised() -> None:
    generator = np.random.default_rng(7)
    draws = generator.exponential(size=(4000, 25))  # skewed, true median log 2
    hits = sum(low <= math.log(2) <= high for low, high in map(median_interval, draws.tolist()))
    assert 0.945 < hits / 4000 < 0.985


@pytest.mark.parametrize("draw", ["normal", "exponential"])
def test_standard_error_matches_the_medians_scatter(draw: str) -> None:
    generator = np.random.default_rng(3)
    draws = getattr(generator, draw)(size=(3000, 101)) + 10
    scatter = float(np.std(np.median(draws, axis=1)))
    estimate = float(np.mean([standard_error(row) for row in draws.tolist()]))
    assert estimate == pytest.approx(scatter, rel=0.08)


def test_standard_error_sees_two_modes() -> None:
    # Half the samples in each mode: the median may be either, MAD or no MAD.
    assert standard_error([10.0] * 50 + [20.0] * 50) == pytest.approx(5.0)


def test_one_sample_says_nothing_about_its_error() -> None:
    assert standard_error([1.0]) == math.inf


def test_empty_and_bad_confidence_are_refused() -> None:
    with pytest.raises(ArgumentError, match="samples is empty"):
        median([])
    with pytest.raises(ArgumentError, match=r"confidence=1\.5"):
        median_interval([1.0, 2.0], 1.5)
