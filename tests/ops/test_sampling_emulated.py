"""The sampling kernels on the emulator against the float64 oracle, and against themselves.

What is defined, and where it is tested, here unless said otherwise:

- temperature 0 (and below, and NaN) is greedy: `temperatures_that_mean_greedy`; infinite: uniform
- k = 0, -1, V, beyond V: `top_k_that_is_off`; k of thousands: `test_sampling_long_emulated`
- p = 1 and above, 0, tiny, almost 1: `top_p_at_its_ends`; p and k joint or in turn: `FILTERS`
- min_p 0, 1 and between: `FILTERS`, `settings_per_row`
- rows of -infinity or NaN, some of them, +infinity, a single logit, all equal:
  `rows_without_logits`, `argmax_takes_the_first_of_equals`, `softmax`; many ties:
  `many_ties_leave_the_list`
- V = 1, V no multiple of the vector: `tiny_vocabularies`; B = 0: `nothing_is_no_work`;
  misaligned and strided rows: `strides_and_odd_addresses`
- bitmask, penalties and their order: `bitmask_and_penalties_come_before_everything`, and alone in
  `test_sampling_more_emulated`, with top-k lists, Gumbel, drafts, beams, counts, scatters
- the same bits on every schedule, in every batch, on any number of CTAs: `every_schedule`,
  `the_token_does_not_depend`, `wherever_it_sits`
- frequencies by chi-square, V of models, V beyond 2^23, graphs: `test_sampling_gpu`
- refusals: `test_sampling_refusals`; the short way of a call: `test_sampling_warm`
"""

from __future__ import annotations

from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from gpukit import emulator, sampling
from gpukit.emulator.policies import POLICIES
from gpukit.reference import sampling as ref
from gpukit.reference.sampling import Settings

SMALL = {"threads": 256, "cluster": 2}
RESIDENT = {"threads": 128, "cluster": 2, "stage": 16}  # rows kept in shared memory
SLACK = 1e-6  # of thresholds and borders of the draw: what f32 rounding may decide


def random(count: int, width: int, seed: int = 0, scale: float = 2.0) -> Any:
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((count, width)) * scale).astype(np.float32)


def draw(x: Any, settings: Settings, **options: Any) -> tuple[Any, Any, Any]:
    """Tokens, distribution and status of rows that share their settings."""
    distribution = np.empty(x.shape, np.float32)
    status = np.full(len(x), 0xDB, np.uint8)
    ids = sampling.sample(x, temperature=settings.temperature, top_k=settings.top_k,
                          top_p=settings.top_p, min_p=settings.min_p, joint=settings.joint,
                          distribution=distribution, status=status,
                          **{"tunables": SMALL, "seed": 7, **options})
    return ids, distribution, status


def judge(ids: Any, distribution: Any, x: Any, settings: Settings, seed: int = 7) -> None:
    """Exact sets but for the rounding border, probabilities to 1e-6, tokens where they belong."""
    for token, got, row in zip(ids, distribution, x, strict=True):
        want = ref.distribution(row, settings)
        surely, perhaps = (ref.distribution(row, settings, s) > 0 for s in (SLACK, -SLACK))
        kept = got > 0
        assert not (kept & ~perhaps).any()
        assert kept[surely & (want > 1e-12)].all()
        if (kept == (want > 0)).all():
            np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-12)
        assert int(token) in ref.draw(want, seed, 0, 10 * SLACK)


FILTERS = [Settings(), Settings(top_k=5), Settings(0.7, 20, 0.8),
           Settings(1.3, 20, 0.8, joint=True), Settings(1.0, 0, 0.7),
           Settings(1.0, 0, 0.7, 0.01), Settings(0.8, 0, 1.0, 0.1),
           Settings(1.0, 400, 0.9), Settings(1.0, 400, 0.9, joint=True), Settings(0.0)]


@pytest.mark.parametrize("tunables", [SMALL, RESIDENT], ids=["streamed", "resident"])
@pytest.mark.parametrize("settings", FILTERS, ids=str)
def test_sets_probabilities_and_tokens(settings: Settings, tunables: dict[str, int]) -> None:
    x = random(2, 1003)
    x[1] = np.round(x[1])  # ties
    ids, distribution, status = draw(x, settings, tunables=tunables)
    judge(ids, distribution, x, settings)
    assert (status == 1).all()


@pytest.mark.parametrize("settings", [
    Settings(), Settings(1.0, 40, 0.9), Settings(1.0, 1100, 0.95), Settings(1.0, 0, 0.97),
    Settings(1.0, 1100, 0.95, 0.001, True)], ids=str)
@pytest.mark.parametrize("width", [3004, 2051])
def test_rows_longer_than_the_list(settings: Settings, width: int) -> None:
    """Every way through the streaming kernel, with and without bulk copies."""
    x = random(2, width, 20)
    x[1] = np.round(x[1])
    ids, distribution, _ = draw(x, settings)
    judge(ids, distribution, x, settings)


@pytest.mark.parametrize("top_p", [0.01, 0.1])
def test_few_of_a_flat_row(top_p: float) -> None:
    """More is dropped than samples say that there is."""
    x = random(1, 4099, 9, 1.0)
    settings = Settings(1.0, 0, top_p)
    ids, distribution, _ = draw(x, settings)
    judge(ids, distribution, x, settings)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_more_infinities_than_the_list_holds(dtype: Any) -> None:
    x = np.full((1, 2100), np.inf, dtype)
    assert sampling.sample(x, top_p=0.9, tunables=SMALL)[0] == 0
    assert sampling.sample(x, temperature=0.0, tunables=SMALL)[0] == 0


def test_weights_that_round_to_the_largest() -> None:
    x = np.sort(random(1, 2051, 1, 1.0))
    _, distribution, _ = draw(x, Settings(1e30, 1500, 1.0, 1.0))
    assert (distribution > 0).sum() == 1500
    assert distribution.sum() == pytest.approx(1, rel=1e-5)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_narrow_logits(dtype: Any) -> None:
    x = random(2, 512).astype(dtype)
    settings = Settings(0.9, 30, 0.9)
    ids, distribution, _ = draw(x, settings)
    judge(ids, distribution, x, settings)


@pytest.mark.parametrize("width", [1, 3, 31, 33])
def test_tiny_vocabularies(width: int) -> None:
    x = random(2, width)
    for settings in (Settings(0.9, 2, 0.9), Settings(1.0, 0, 0.5)):
        ids, distribution, _ = draw(x, settings)
        judge(ids, distribution, x, settings)


def test_the_token_does_not_depend_on_how_the_row_is_shared_out() -> None:
    x = random(1, 2000, 3)
    for settings in ({"top_k": 40, "top_p": 0.9}, {"top_p": 0.95}, {"top_k": 300, "min_p": 0.01}):
        ids = {int(sampling.sample(x, seed=11, tunables=tunables, **settings)[0])
               for tunables in (SMALL, {"threads": 512, "cluster": 1}, RESIDENT,
                                {"threads": 256, "cluster": 8, "most": 256},
                                {"threads": 128, "cluster": 8, "stage": 16, "candidates": 2048})}
        assert len(ids) == 1


def test_a_row_draws_the_same_wherever_it_sits_and_another_with_another_seed() -> None:
    x = np.repeat(random(1, 200, 4, 0.1), 8, axis=0)
    seeds = np.array([1, 2, 3, 1, 2, 3, 1, 4], np.uint64)
    positions = np.array([0, 0, 0, 0, 0, 0, 1, 0], np.int64)
    ids = sampling.sample(x, seed=seeds, position=positions, tunables=SMALL)
    assert list(ids[:3]) == list(ids[3:6])
    assert len(set(ids.tolist())) == 5
    for token, seed, position in zip(ids, seeds, positions, strict=True):
        want = ref.distribution(x[0], Settings())
        assert int(token) in ref.draw(want, int(seed), int(position), 1e-5)


def test_settings_per_row() -> None:
    x = random(4, 300, 5)
    settings = [Settings(0.5, 3, 0.9), Settings(0.0), Settings(1.5, 0, 0.6),
                Settings(1.0, 300, 1.0, 1.0)]
    arrays = {name: np.array([getattr(s, name) for s in settings], dtype) for name, dtype in (
        ("temperature", "f4"), ("top_k", "i4"), ("top_p", "f4"), ("min_p", "f4"))}
    distribution = np.empty(x.shape, np.float32)
    ids = sampling.sample(x, seed=9, distribution=distribution, tunables=SMALL, **arrays)
    for row, each in enumerate(settings):
        judge(ids[row:row + 1], distribution[row:row + 1], x[row:row + 1], each, 9)


def test_rows_without_logits_and_with_odd_ones() -> None:
    x = random(6, 100, 6)
    x[0] = -np.inf
    x[1] = np.nan
    x[2, ::3] = np.nan
    x[3, [40, 20]] = np.inf
    x[4] = 1.0
    x[5, 1:] = -np.inf
    ids, distribution, status = draw(x, Settings(1.0, 10, 0.9))
    assert list(status) == [0, 2, 3, 1, 1, 1]
    assert list(ids[:2]) == [0, 0]
    assert not distribution[:2].any()
    assert ids[3] == 20
    assert distribution[3, 20] == 1
    assert ids[5] == 0
    judge(ids[2:], distribution[2:], x[2:], Settings(1.0, 10, 0.9))


@pytest.mark.parametrize("top_p", [0.0, 1e-30, 0.999999, 1.0, 2.0])
def test_top_p_at_its_ends(top_p: float) -> None:
    x = random(1, 200, 8)
    for top_k in (0, 20):
        _, distribution, _ = draw(x, Settings(1.0, top_k, top_p))
        kept = int((distribution > 0).sum())
        want = 1 if top_p < 1e-6 else top_k or 200
        assert kept == want or (top_p == 0.999999 and 0 < want - kept < 5)


@pytest.mark.parametrize("top_k", [-1, 0, 200, 201, 2**31 - 1])
def test_top_k_that_is_off(top_k: int) -> None:
    _, distribution, _ = draw(random(1, 200, 9), Settings(1.0, top_k))
    assert (distribution > 0).all()


@pytest.mark.parametrize("temperature", [0.0, 1e-6, -1.0, float("nan")])
def test_temperatures_that_mean_greedy(temperature: float) -> None:
    x = np.round(random(3, 300, 10))
    ids = sampling.sample(x, temperature=np.full(3, temperature, np.float32), tunables=SMALL)
    assert list(ids) == list(ref.argmax(x))


def test_an_infinite_temperature_is_uniform() -> None:
    _, distribution, _ = draw(random(1, 100, 11), Settings(float("inf")))
    np.testing.assert_allclose(distribution, 0.01, rtol=1e-6)


def test_many_ties_leave_the_list_and_are_all_kept() -> None:
    x = np.zeros((1, 1500), np.float32)
    x[0, 7] = -1.0
    ids, distribution, _ = draw(x, Settings(1.0, 5))
    assert int((distribution > 0).sum()) == 1499
    judge(ids, distribution, x, Settings(1.0, 5))


def test_rows_with_strides_and_odd_addresses() -> None:
    wide = random(3, 307, 12)
    x = wide[:, 1:300]
    settings = Settings(1.0, 12, 0.9)
    ids, distribution, _ = draw(x, settings)
    judge(ids, distribution, x, settings)
    assert list(sampling.argmax(x)) == list(ref.argmax(x))
    np.testing.assert_allclose(sampling.softmax(x), [ref.softmax(row) for row in x], rtol=1e-6)


def test_bitmask_and_penalties_come_before_everything() -> None:
    x = random(2, 100, 13)
    counts: list[dict[int, int]] = [{3: 2, 50: 0, 99: 7, 100: 5, -1: 1}, {}]
    offsets = np.array([0, 5, 5], np.int32)
    penalties = sampling.Penalties(
        offsets, np.array(list(counts[0]), np.int32), np.array(list(counts[0].values()), np.int32),
        frequency=np.array([0.3, 9], np.float32), presence=0.2, repetition=1.5)
    mask = np.full((2, 4), 0xFFFFFFFF, np.uint32)
    mask[0, 1] = 0x0000FFFF
    ids, distribution, _ = draw(x, Settings(0.8, 60, 0.95), bitmask=mask, penalties=penalties)
    want = np.stack([ref.penalize(row, c, 0.3, 0.2, 1.5) for row, c in zip(x, counts, strict=True)])
    want[0, 48:64] = -np.inf
    judge(ids, distribution, want, Settings(0.8, 60, 0.95))


def test_inputs_are_left_alone_and_nothing_is_no_work() -> None:
    x = random(2, 64, 14)
    before = x.copy()
    draw(x, Settings(0.7, 5, 0.9))
    np.testing.assert_array_equal(x, before)
    empty = np.empty((0, 64), np.float32)
    assert sampling.sample(empty).shape == sampling.argmax(empty).shape == (0,)
    assert sampling.softmax(empty).shape == (0, 64)


@pytest.mark.parametrize("width", [1, 5, 129, 2050])
def test_argmax_takes_the_first_of_equals(width: int) -> None:
    x = np.round(random(4, width, width))
    x[1] = -np.inf
    x[2, ::2] = np.nan
    assert list(sampling.argmax(x)) == list(ref.argmax(x))
    for cluster in (1, 4):
        got = sampling.argmax(x, tunables={"cluster": cluster, "threads": 128})
        assert list(got) == list(ref.argmax(x))


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_softmax(dtype: Any) -> None:
    x = random(4, 300, 15).astype(dtype)
    x[3] = -np.inf
    temperature = np.array([1.0, 0.3, 0.0, 1.0], np.float32)
    got = sampling.softmax(x, temperature)
    want = [ref.softmax(row, t) for row, t in zip(x, temperature, strict=True)]
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-12)
    narrow = sampling.softmax(x, temperature, out=np.empty(x.shape, dtype))
    np.testing.assert_allclose(narrow.astype(np.float64), want, rtol=2.0**-8, atol=1e-7)


def test_uniform_is_philox() -> None:
    seeds = np.array([0, 1, 2**63, 2**64 - 1], np.uint64)
    positions = np.array([0, 5, -1, 2**40], np.int64)
    got = sampling.uniform(seeds, positions)
    want = [ref.uniform(int(s), int(p) % 2**64) for s, p in zip(seeds, positions, strict=True)]
    assert got.tolist() == want
    # The published test vectors of Philox4x32-10.
    assert ref.philox(0, 0, 0, 0) == (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)


def test_every_schedule_gives_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    x = random(1, 600, 16)
    listed, searched = Settings(0.9, 12, 0.9), Settings(0.9, 0, 0.8, 0.01)
    want = [draw(x, settings) for settings in (listed, searched)]
    soft, run = sampling.softmax(x), emulator.run
    for policy in POLICIES:
        monkeypatch.setattr(emulator, "run", partial(run, policy=policy, seed=5))
        for settings, (ids, distribution, _) in zip((listed, searched), want, strict=True):
            again, same, _ = draw(x, settings)
            assert again[0] == ids[0]
            np.testing.assert_array_equal(same, distribution)
        np.testing.assert_array_equal(sampling.softmax(x), soft)
        assert sampling.argmax(x)[0] == np.argmax(x)
