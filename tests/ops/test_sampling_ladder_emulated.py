"""The sampling ladder on the emulator: the float64 oracle's sets, one token from all rungs."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from gpukit import sampling
from gpukit.errors import ArgumentError, UnsupportedError
from gpukit.ops.sampling.ladder import RUNGS, run_rung, workspace_words
from gpukit.reference import sampling as ref
from gpukit.reference.sampling import Settings

SMALL = {"threads": 128}
SLACK = 1e-6  # of thresholds: what f32 rounding may decide
FILTERS = [Settings(0.8, 20, 0.9), Settings(1.3, 0, 0.7), Settings(1.0, 20), Settings(),
           Settings(0.8, 30, 0.8, joint=True), Settings(0.0)]


def rows(count: int, width: int, seed: int = 0) -> Any:
    """Random logits, the second row with many ties."""
    x = (np.random.default_rng(seed).standard_normal((count, width)) * 2).astype(np.float32)
    if count > 1:
        x[1] = np.round(x[1])
    return x


def has(rung: str, s: Settings) -> bool:
    both = s.top_k > 0 and s.top_p < 1
    if rung == "s2":
        return (s.top_k > 0 or s.temperature == 0) and not s.joint
    return rung != "s4" or s.joint or not both


def run(rung: str, x: Any, s: Settings, **options: Any) -> Any:
    return run_rung(rung, x, temperature=s.temperature, top_k=s.top_k, top_p=s.top_p,
                    joint=s.joint, **{"seed": 7, "tunables": SMALL, **options})


@pytest.mark.parametrize("settings", FILTERS, ids=str)
def test_rungs_keep_what_the_oracle_keeps_and_draw_one_token(settings: Settings) -> None:
    x = rows(2, 900)
    tokens = {}
    for rung in (r for r in RUNGS if r != "s4" and has(r, settings)):
        limits = np.empty(2, np.float32)
        tokens[rung] = run(rung, x, settings, limits=limits).tolist()
        for row, token, limit in zip(x, tokens[rung], limits, strict=True):
            if settings.temperature:
                judge_set(row >= limit, row, settings)
            exact = ref.distribution(row, settings)
            assert token in ref.draw(exact, 7, 0, 10 * SLACK)
    assert len(tokens) >= 3
    assert len({str(t) for t in tokens.values()}) == 1, tokens


def judge_set(kept: Any, row: Any, settings: Settings) -> None:
    surely, perhaps = (ref.distribution(row, settings, s) > 0 for s in (SLACK, -SLACK))
    assert not (kept & ~perhaps).any()
    assert kept[surely].all()


def test_filtered_rows_draw_the_token_of_sample() -> None:
    x = rows(2, 1003, 3)
    want = sampling.sample(x, temperature=0.8, top_k=40, top_p=0.9, seed=5,
                           tunables={"threads": 256, "cluster": 2})
    for rung in ("s1", "s2", "s3", "s5"):
        assert run(rung, x, Settings(0.8, 40, 0.9), seed=5).tolist() == want.tolist()


@pytest.mark.parametrize("settings", [Settings(0.8, 20, 0.9, joint=True), Settings(1.0, 0, 0.5),
                                      Settings(1.0, 3), Settings(0.0)], ids=str)
def test_rejection_draws_what_is_kept_and_the_same_again(settings: Settings) -> None:
    x = np.repeat(rows(2, 300, 4), 3, axis=0)
    for seed in (1, 2):
        ids = run("s4", x, settings, seed=seed)
        for row, token in zip(x, ids, strict=True):
            assert ref.distribution(row, settings, -SLACK)[token] > 0
        assert len(set(ids[:3].tolist())) == len(set(ids[3:].tolist())) == 1


def test_rejection_draws_as_often_as_the_distribution_says() -> None:
    """Chi-square of 120 draws over 6 tokens, seeds fixed: false alarm below 1e-6."""
    x = np.array([[0, 1, 0.5, -1, 0.2, 0.7, -0.4, 0.1]], np.float32)
    settings = Settings(1.0, 6)
    ids = [int(run("s4", x, settings, seed=seed)[0]) for seed in range(120)]
    want = 120 * ref.distribution(x[0], settings)
    counts = np.bincount(ids, minlength=8)
    live = want > 0
    assert live.sum() == 6
    assert counts[~live].sum() == 0
    assert ((counts - want)[live] ** 2 / want[live]).sum() < 36  # 5 degrees of freedom


@pytest.mark.parametrize("rung", RUNGS)
def test_odd_rows(rung: str) -> None:
    x = rows(6, 100, 6)
    x[0] = -np.inf
    x[1] = np.nan
    x[2, ::3] = np.nan
    x[3, [40, 20]] = np.inf
    x[4] = 1.0
    x[5, 1:] = -np.inf
    settings = Settings(1.0, 10, 0.9, joint=rung == "s4")
    ids = run(rung, x, settings)
    assert list(ids[:2]) == [0, 0]
    assert ids[3] == 20
    assert ids[5] == 0
    for row, token in zip(x[2:], ids[2:], strict=True):
        assert ref.distribution(row, settings, -SLACK)[token] > 0


@pytest.mark.parametrize("rung", RUNGS)
def test_narrow_logits_strides_and_tiny_vocabularies(rung: str) -> None:
    wide = rows(2, 61, 8).astype(ml_dtypes.bfloat16)
    settings = Settings(0.9, 4)
    got = run(rung, wide[:, 1:34], settings)
    for row, token in zip(wide[:, 1:34], got, strict=True):
        assert ref.distribution(row, settings, -SLACK)[token] > 0
    assert run(rung, rows(3, 1), Settings(0.9, 1)).tolist() == [0, 0, 0]
    assert run(rung, np.empty((0, 9), np.float32), Settings(0.9, 1)).shape == (0,)


def test_lists_of_several_parts_and_of_many_ties() -> None:
    """s2 with more parts than one, lists that are cut, and more ties than the lists hold."""
    x = rows(1, 4100, 9)
    x[0, 5::3] = 3.0
    tunables = {"threads": 128, "size": 512}
    for settings in (Settings(1.0, 200), Settings(1.0, 60, 0.3), Settings(1.0, 200, 0.99)):
        limits = np.empty(1, np.float32)
        token = run("s2", x, settings, limits=limits, tunables=tunables)[0]
        judge_set(x[0] >= limits[0], x[0], settings)
        assert token == run("s5", x, settings)[0]


def test_workspace() -> None:
    x = rows(2, 100)
    words = workspace_words("s1", x)
    assert words == 2 * 2 * 100
    assert workspace_words("s2", x, top_k=7) == 2 * 8
    assert workspace_words("s3", x) == workspace_words("s4", x) == 0
    space = np.empty(words, np.uint64)
    assert run("s1", x, FILTERS[0], workspace=space).tolist() == run("s5", x, FILTERS[0]).tolist()
    with pytest.raises(ArgumentError, match="s1: workspace has 399 words; accepted: 400 or more"):
        run("s1", x, FILTERS[0], workspace=space[:-1])


@pytest.mark.parametrize(("rung", "settings", "message"), [
    ("s2", Settings(), "s2: top_k=0; accepted: 1 to 1023"),
    ("s2", Settings(1.0, 1500), "s2: top_k=1500; accepted: 1 to 1023"),
    ("s2", Settings(1.0, 5, 0.9, joint=True), "s2: it has no joint top-p"),
    ("s4", Settings(1.0, 5, 0.9), "s4: top-k and top-p together need joint=True"),
])
def test_what_a_rung_does_not_have(rung: str, settings: Settings, message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        run(rung, rows(1, 2000), settings)


def test_arguments() -> None:
    with pytest.raises(ArgumentError, match="rung='s9' is not accepted; one of s1, s2, s3, s4, s5"):
        run("s9", rows(1, 10), Settings())
    with pytest.raises(UnsupportedError, match="s4: it has no limits"):
        run("s4", rows(1, 10), Settings(), limits=np.empty(1, np.float32))
