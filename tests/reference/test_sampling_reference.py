"""The sampling oracle against cases worked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from gpukit.reference import sampling as ref
from gpukit.reference.sampling import Settings

P = np.log([0.4, 0.3, 0.2, 0.1])


@pytest.mark.parametrize(("settings", "kept"), [
    (Settings(), 4), (Settings(top_k=2), 2), (Settings(top_p=0.5), 2), (Settings(top_p=0.35), 1),
    (Settings(top_k=2, top_p=0.5), 1), (Settings(top_k=2, top_p=0.5, joint=True), 2),
    (Settings(top_k=2, top_p=0.6), 2), (Settings(top_p=0.0), 1), (Settings(min_p=0.4), 3),
    (Settings(min_p=1.0), 1), (Settings(0.0), 1), (Settings(top_k=9), 4), (Settings(top_k=-1), 4),
])  # fmt: skip
def test_how_many_tokens_stay(settings: Settings, kept: int) -> None:
    got = ref.distribution(P, settings)
    assert list(np.flatnonzero(got)) == list(range(kept))
    np.testing.assert_allclose(got.sum(), 1)


def test_temperature_sharpens() -> None:
    np.testing.assert_allclose(ref.softmax(P, 0.5), np.array([16, 9, 4, 1]) / 30)


def test_ties_stay_together() -> None:
    x = np.array([1.0, 2.0, 1.0, 1.0, 0.0])
    assert list(ref.distribution(x, Settings(top_k=2)) > 0) == [True, True, True, True, False]
    assert list(ref.distribution(x, Settings(top_p=0.6)) > 0) == [True, True, True, True, False]


def test_rows_with_nothing_or_infinity() -> None:
    assert not ref.distribution(np.full(3, -np.inf), Settings()).any()
    assert ref.draw(np.zeros(3), 1) == {0}
    np.testing.assert_array_equal(ref.distribution(np.array([0, np.inf, np.inf]), Settings()),
                                  [0, 1, 0])


def test_penalties_on_a_dictionary() -> None:
    x = np.array([2.0, -2.0, 1.0, 0.0])
    got = ref.penalize(x, {0: 2, 1: 0, 3: 1, 4: 9}, frequency=0.25, presence=0.5, repetition=2.0)
    np.testing.assert_allclose(got, [2 / 2 - 0.5 - 0.5, -4.0, 1.0, -0.75])


def test_draws_follow_the_probabilities() -> None:
    """Chi-square of 20000 draws, 3 degrees of freedom: a false alarm in about 1e-6."""
    p = ref.distribution(P, Settings())
    tokens = np.array([min(ref.draw(p, seed)) for seed in range(20_000)])
    counts = np.bincount(tokens, minlength=4)
    assert ((counts - 20_000 * p) ** 2 / (20_000 * p)).sum() < 31
