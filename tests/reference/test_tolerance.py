"""The comparison that every correctness claim rests on: what it accepts and what it must not."""

from __future__ import annotations

import numpy as np
import pytest

from gpukit.reference.tolerance import Bound, scaled_error

INF, NAN = float("inf"), float("nan")


def error(got: list[float], want: list[float], atol: float = 0.0, rtol: float = 0.0) -> float:
    return scaled_error(np.array(got), np.array(want), Bound(atol, rtol))


def test_it_is_the_worst_ratio_to_the_allowed_error() -> None:
    assert error([1.0, 10.0], [1.0, 10.0]) == 0
    assert error([1.5, 10.0], [1.0, 10.0], atol=1.0) == 0.5
    assert error([1.0, 12.0], [1.0, 10.0], atol=1.0, rtol=0.1) == 1.0
    assert error([1.0, 13.0], [1.0, 10.0], atol=1.0, rtol=0.1) == 1.5
    assert error([-12.0], [-10.0], rtol=0.1) == 2.0


def test_a_bound_of_zero_means_equal() -> None:
    assert error([1.0, -0.0], [1.0, 0.0]) == 0
    assert error([1.0 + 2**-52], [1.0]) == INF


@pytest.mark.parametrize(("got", "want"), [
    (NAN, 1.0), (1.0, NAN), (NAN, INF), (INF, NAN), (INF, 1e308), (1e308, INF), (INF, -INF),
    (-INF, INF), (0.0, NAN), (NAN, 0.0),
])
def test_special_values_must_match(got: float, want: float) -> None:
    assert error([1.0, got], [1.0, want], atol=1e300, rtol=1.0) == INF


@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_matching_special_values_are_right(value: float) -> None:
    assert error([value, 1.0], [value, 1.0]) == 0
    assert error([value, 1.5], [value, 1.0], atol=1.0) == 0.5, "and hide nothing beside them"


def test_one_wrong_element_among_many_is_seen() -> None:
    want = np.ones(100_000)
    got = want.copy()
    got[77_777] = 1.1
    assert scaled_error(got, want, Bound(0.0, 0.01)) == pytest.approx(10)


def test_atol_may_differ_by_element() -> None:
    got, want = np.array([1.5, 2.0]), np.array([1.0, 1.0])
    assert scaled_error(got, want, Bound(np.array([1.0, 4.0]), 0.0)) == 0.5


def test_shapes_must_match() -> None:
    with pytest.raises(ValueError, match=r"got has shape \(2,\), want \(1, 2\)"):
        scaled_error(np.zeros(2), np.zeros((1, 2)), Bound(1.0, 0.0))


def test_nothing_has_no_error() -> None:
    assert error([], []) == 0


def test_bounds_print_themselves() -> None:
    assert str(Bound(0.0, 0.0)) == "exact"
    assert str(Bound(np.array([1e-3, 2e-3]), 0.5)) == "atol=0.002 rtol=0.5"
    assert str(Bound(np.array([]), 0.5)) == "atol=0 rtol=0.5"
