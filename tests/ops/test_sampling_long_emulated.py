"""Long rows on the emulator: nuclei and ks of more tokens than the list holds, whatever the logits.

Here the first reading's sketch says where a nucleus ends, the second one lists that neighbourhood
and proves it, and further readings narrow a range down where there is no sketch or it misled.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from gpukit import emulator, sampling
from gpukit.emulator.policies import POLICIES
from gpukit.ops.sampling import choose
from gpukit.reference import sampling as ref
from gpukit.reference.sampling import Settings

V = 4700  # more than twice the list
SHARED = {"threads": 256, "cluster": 2}
SLACK = 1e-6
ROUND = 1024  # tokens of a block, 32 per lane


def rows_of(kind: str, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    values = {
        "flat": lambda: rng.standard_normal(V) * 0.5,
        "wide": lambda: rng.standard_normal(V) * 4,
        "ties": lambda: np.round(rng.standard_normal(V) * 0.7),
        "equal": lambda: np.full(V, -3.0),
        "two": lambda: np.where(np.arange(V) % 3 == 0, 2.0, 1.0),
        "zipf": lambda: rng.permutation(-1.2 * np.log(np.arange(1, V + 1))),
        "huge": lambda: rng.standard_normal(V) * 1e30,
        "cliff": lambda: np.where(np.arange(V) < V // 2, 5.0, -40.0) + rng.random(V),
    }[kind]()
    return values.astype(np.float32)[None]


def draw(x: Any, settings: Settings, **options: Any) -> tuple[Any, Any]:
    distribution = np.empty(x.shape, np.float32)
    ids = sampling.sample(x, temperature=settings.temperature, top_k=settings.top_k,
                          top_p=settings.top_p, min_p=settings.min_p, joint=settings.joint, seed=7,
                          distribution=distribution, **{"tunables": SHARED, **options})
    return ids, distribution


def judge(ids: Any, distribution: Any, x: Any, settings: Settings) -> None:
    """As in `test_sampling_emulated`."""
    for token, got, row in zip(ids, distribution, x, strict=True):
        want, kept = ref.distribution(row, settings), got > 0
        surely, perhaps = (ref.distribution(row, settings, s) > 0 for s in (SLACK, -SLACK))
        assert not (kept & ~perhaps).any()
        assert kept[surely & (want > 1e-12)].all()
        if (kept == (want > 0)).all():
            np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-12)
        assert int(token) in ref.draw(want, 7, 0, 10 * SLACK)


@pytest.mark.parametrize("settings", [
    Settings(1.0, 0, 0.9), Settings(0.6, 0, 0.999), Settings(1.0, 3000, 0.9),
    Settings(1.0, 3000, 0.9, 0.01, True)], ids=str)
@pytest.mark.parametrize("kind", ["flat", "wide", "ties", "two", "zipf", "cliff"])
def test_sets_probabilities_and_tokens(kind: str, settings: Settings) -> None:
    x = rows_of(kind)
    judge(*draw(x, settings), x, settings)


@pytest.mark.parametrize("settings", [Settings(1.0, 0, 0.5), Settings(1e30, 0, 0.9)], ids=str)
@pytest.mark.parametrize("kind", ["equal", "huge"])
def test_rows_whose_values_tell_nothing_apart(kind: str, settings: Settings) -> None:
    x = rows_of(kind)
    judge(*draw(x, settings), x, settings)


def counted_first() -> Any:
    """Where the tokens are that a sketch counts: of a lane's 32 every ninth."""
    token = np.arange(V)
    return np.isin(token % ROUND // 128 * 4 + token % 4, range(0, 32, 9))


@pytest.mark.parametrize("misled", [-0.3, 0.3, -2.0])
def test_a_sketch_that_misleads_costs_readings_alone(misled: float) -> None:
    """What it counts is below all others, or above: the nucleus ends beside where it says."""
    x, settings = rows_of("flat"), Settings(1.0, 0, 0.9)
    x[0, counted_first()] += np.float32(misled)
    judge(*draw(x, settings), x, settings)


@pytest.mark.parametrize("misled", [0.0, -2.0])
def test_a_large_k_is_bounded_by_a_sketch_or_not_at_all(misled: float) -> None:
    x, settings = rows_of("wide"), Settings(1.0, 1100, 0.95)
    x[0, counted_first()] += np.float32(misled)
    judge(*draw(x, settings), x, settings)


def test_a_forbidden_half_does_not_count() -> None:
    x, settings = rows_of("flat"), Settings(1.0, 0, 0.9)
    mask = np.zeros((1, -(-V // 32)), np.uint32)
    mask[0, ::2] = 0xFFFFFFFF
    ids, distribution = draw(x, settings, bitmask=mask)
    allowed = np.repeat(mask[0] != 0, 32)[:V]
    judge(ids, distribution, np.where(allowed, x, -np.inf).astype(np.float32), settings)


def test_every_schedule_gives_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    x, settings, run = rows_of("flat", 3), Settings(0.9, 0, 0.9), emulator.run
    ids, distribution = draw(x, settings)
    for policy in POLICIES:
        monkeypatch.setattr(emulator, "run", partial(run, policy=policy, seed=5))
        again, same = draw(x, settings)
        assert again[0] == ids[0]
        np.testing.assert_array_equal(same, distribution)


def test_penalised_rows_too_long_for_shared_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choose, "MOST_RESIDENT", 100)
    x = np.random.default_rng(1).standard_normal((2, 300)).astype(np.float32)
    counts: dict[int, int] = {3: 2, 50: 0, 299: 7}
    offsets = np.array([0, 3, 3], np.int32)
    penalties = sampling.Penalties(
        offsets, np.array(list(counts), np.int32), np.array(list(counts.values()), np.int32),
        frequency=0.3, presence=0.2, repetition=1.5)
    settings, before = Settings(0.8, 60, 0.95), x.copy()
    ids, distribution = draw(x, settings, penalties=penalties)
    np.testing.assert_array_equal(x, before)
    want = x.copy()
    want[0] = ref.penalize(x[0], counts, 0.3, 0.2, 1.5)
    judge(ids, distribution, want, settings)
