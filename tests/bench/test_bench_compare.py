"""Verdicts from intervals: what counts as a change, and what fails a gate."""

from __future__ import annotations

import random

import pytest

from gpukit.bench.compare import (
    AMBIGUOUS,
    BROKEN,
    CHANGED,
    FASTER,
    FIXED,
    MISSING,
    SAME,
    SLOWER,
    UNMEASURED,
    compare,
    environment_changes,
    ratio_interval,
    verdict,
)
from gpukit.bench.model import Case, Row


def make_row(time_us: float | None, *, n=1, spread=0.001, samples=41, status="ok", device="GPU"):
    row = Row.of(Case("f", "k", "f32", {"n": n}), device, "sm_90", "")
    row.status, row.time_us = status, time_us
    if time_us is not None:
        half = samples // 2
        row.samples_us = [
            time_us * (1 + spread * (i - half) / max(half, 1)) for i in range(samples)
        ]
    return row


def judge(old: Row, new: Row, **options) -> str:
    (change,) = compare([old], [new], **options).changes
    return change.verdict


@pytest.mark.parametrize(
    ("new_us", "expected"),
    [(100, SAME), (100.5, SAME), (99.5, SAME), (103, SLOWER), (97, FASTER), (101, AMBIGUOUS)],
)
def test_a_verdict_needs_the_whole_interval_beyond_the_noise(new_us, expected):
    assert judge(make_row(100), make_row(new_us)) == expected


def test_wide_samples_are_ambiguous_even_when_medians_agree():
    assert judge(make_row(100, spread=0.2), make_row(100, spread=0.2)) == AMBIGUOUS


def test_the_noise_threshold_decides():
    assert judge(make_row(100), make_row(103), noise=0.05) == SAME
    assert judge(make_row(100), make_row(103), noise=0.0) == SLOWER


@pytest.mark.parametrize("samples", [0, 1, 5])
def test_too_few_samples_say_nothing(samples):
    old, new = make_row(100, samples=41), make_row(200, samples=samples)
    new.samples_us = new.samples_us[:samples]
    assert judge(old, new) == AMBIGUOUS
    assert judge(new, old) == AMBIGUOUS


def test_two_runs_of_one_binary_are_hardly_ever_called_different():
    rng = random.Random(1)
    called = 0
    for _ in range(200):
        rows = [make_row(100.0), make_row(100.0)]
        for row in rows:
            row.samples_us = [rng.gauss(100, 2) for _ in range(100)]
        called += judge(*rows) in (FASTER, SLOWER)
    assert called <= 2


def test_the_interval_of_the_ratio_holds_the_ratio():
    low, high = ratio_interval(make_row(100), make_row(150))
    assert low < 1.5 < high
    assert high - low < 0.01


def test_verdict_edges():
    assert verdict(0.99, 1.01, 0.01) == SAME
    assert verdict(1.0101, 1.2, 0.01) == SLOWER
    assert verdict(0.5, 0.9899, 0.01) == FASTER
    assert verdict(0.0, float("inf"), 0.01) == AMBIGUOUS


def test_a_gate_of_five_percent_lets_three_pass():
    result = compare([make_row(100)], [make_row(103)])
    assert [change.verdict for change in result.regressions()] == [SLOWER]
    assert result.regressions(0.05) == []
    assert len(compare([make_row(100)], [make_row(106)]).regressions(0.05)) == 1


def test_ambiguous_and_faster_never_fail_a_gate():
    wide = make_row(200, spread=2)
    assert compare([make_row(100, spread=2)], [wide]).regressions() == []
    assert compare([make_row(100)], [make_row(50)]).regressions() == []


@pytest.mark.parametrize("status", ["wrong", "error", "incomplete", "unsupported"])
def test_losing_the_speed_fails_every_gate(status):
    result = compare([make_row(100)], [make_row(None, status=status)])
    assert [change.verdict for change in result.changes] == [BROKEN]
    assert len(result.regressions(0.99)) == 1


@pytest.mark.parametrize(("status", "expected"), [("ok", FIXED), ("wrong", UNMEASURED)])
def test_a_case_that_had_not_passed_cannot_regress(status, expected):
    old, new = make_row(None, status="error"), make_row(None, status=status)
    result = compare([old], [new])
    assert [change.verdict for change in result.changes] == [expected]
    assert result.regressions() == []
    assert result.failed() == (expected == UNMEASURED)  # nothing was compared


def test_unmatched_keys_are_listed():
    old = [make_row(1, n=1), make_row(1, n=2), make_row(None, n=4, status="wrong")]
    result = compare(old, [make_row(1, n=2), make_row(1, n=3)])
    assert {change.key: change.verdict for change in result.changes} == {
        make_row(1, n=1).key: MISSING,
        make_row(1, n=2).key: SAME,
    }
    assert result.only_old == (make_row(1, n=4).key,)
    assert result.only_new == (make_row(1, n=3).key,)


def test_a_case_that_went_missing_fails_every_gate():
    result = compare([make_row(1, n=1), make_row(1, n=2)], [make_row(1, n=2)])
    assert [change.verdict for change in result.regressions(0.99)] == [MISSING]


@pytest.mark.parametrize("rows", [[], [make_row(1, n=7)]])
def test_nothing_in_common_fails(rows):
    assert compare([make_row(1, n=1)], rows).failed()
    assert compare(rows, [make_row(1, n=1)]).failed()
    assert compare([], []).failed()


@pytest.mark.parametrize(
    ("counters", "status", "expected"),
    [({"x": 1}, "ok", SAME), ({"x": 2}, "ok", CHANGED), ({"x": 1}, "wrong", BROKEN)],
)
def test_untimed_rows_compare_by_status_and_counters(counters, status, expected):
    old, new = make_row(None), make_row(None, status=status)
    old.counters, new.counters = {"x": 1}, counters
    result = compare([old], [new])
    assert [change.verdict for change in result.changes] == [expected]
    assert result.failed() == (expected == BROKEN)


def test_devices_match_only_when_asked():
    old, new = make_row(100, device="A"), make_row(50, device="B")
    assert compare([old], [new]).empty
    (change,) = compare([old], [new], across_devices=True).changes
    assert change.verdict == FASTER


def test_of_several_rows_of_one_case_the_last_counts():
    assert judge(make_row(100), make_row(100)) == SAME
    (change,) = compare([make_row(50), make_row(100)], [make_row(100)]).changes
    assert change.verdict == SAME


def test_environments_differ_by_name():
    old = {"x": {"gpu": "A", "driver": "1", "max": {"sm": 1}, "argv": ["how it was started"]}}
    new = {"y": {"gpu": "A", "driver": "2", "max": {"sm": 2}, "new": True}}
    assert environment_changes(old, new) == {
        "driver": ("1", "2"),
        "max.sm": (1, 2),
        "new": (None, True),
    }
    assert environment_changes({}, {}) == {}
