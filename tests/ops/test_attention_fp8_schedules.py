"""The e4m3 kernel under every order in which asynchronous work may end, and with few CTAs."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from gpukit import dtypes, emulator, kernels
from gpukit.devices import emulated, nvrtc
from gpukit.emulator.policies import POLICIES
from gpukit.ops.attention import fp8, masks, persistent
from gpukit.ops.attention.fp8 import Config
from gpukit.ops.attention.problem import Lengths, Problem, Terms
from gpukit.ops.attention.tiles import Tile
from gpukit.reference import attention as ref
from gpukit.reference.attention import Rules

Array = np.ndarray[Any, Any]
E4M3 = dtypes.parse("e4m3").value_dtype


def normal(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32).astype(E4M3)


def launched(config: Config, queries: int, keys: int, mask: str = "null", *,
             window: int | None = None, heads: int = 2, d: int = 64) -> tuple[Array, Array]:
    """Checked results of a launch with this configuration."""
    q, k, v = normal(1, 1, queries, heads, d), normal(2, 1, keys, 1, d), normal(3, 1, keys, 1, d)
    out = np.full(q.shape, np.nan, dtypes.parse("bf16").numpy)
    lse = np.full((1, heads, queries), np.nan, np.float32)
    fp8.launch(Problem(emulated.get("h100"), "e4m3", *(x.view(np.uint8) for x in (q, k, v)), out,
                       lse, 1, queries, keys, masks.named("test", mask, window, None, False),
                       Terms(d**-0.5), Lengths()), config)
    want = ref.oracle(q, k, v, Rules(mask, window=window or 0))
    error = out.astype(np.float64) - want.out
    assert np.abs(error).max() < 0.2
    assert (error**2).mean() < 0.05**2 * (want.out**2).mean()
    empty = np.isneginf(want.lse)
    assert (np.isneginf(lse) == empty).all()
    assert np.abs(np.where(empty, 0, lse) - np.where(empty, 0, want.lse)).max() < 1e-3
    return out, lse


@pytest.mark.parametrize("policy", POLICIES)
def test_every_schedule_gives_the_same_bits(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run, config, results = emulator.run, Config(Tile(32, 2, 2), workers=1), []
    for seed, chosen in ((0, "random"), (1, policy)):
        monkeypatch.setattr(emulator, "run", partial(run, policy=chosen, seed=seed))
        results.append(launched(config, 130, 140, "causal"))
    for got, first in zip(*results, strict=True):
        np.testing.assert_array_equal(got.view("u1"), first.view("u1"))


@pytest.mark.parametrize(("wgs", "stages"), [(1, 1), (3, 2)])
def test_warpgroups_and_stages(wgs: int, stages: int) -> None:
    config = Config(Tile(32, wgs, stages), workers=1)
    launched(config, 200, 120, "sliding_causal", window=40, heads=1)


def test_sums_are_put_aside() -> None:
    """Every 1024 keys; the second tile begins with nothing put aside."""
    launched(Config(Tile(256, 1, 1), workers=1), 70, 2100, heads=1)


@pytest.mark.parametrize("turns", [False, True])
def test_turns(turns: bool) -> None:
    launched(Config(Tile(32, 2, 2), workers=1, turns=turns), 130, 140, "causal")


def test_tiles_are_taken_from_a_counter(monkeypatch: pytest.MonkeyPatch) -> None:
    tickets = np.zeros(1, np.uint32)
    monkeypatch.setattr(persistent, "counter", lambda device: tickets)
    for workers in (1, 3):
        launched(Config(Tile(32, 2, 2), workers=workers, dynamic=True), 300, 20, "causal")
        assert tickets[0] == 0  # left as it was found


def test_heads_in_one_tile() -> None:
    launched(Config(Tile(32, 2, 2), group=2, workers=1), 40, 70, "causal")
    launched(Config(Tile(32, 2, 2), group=4, workers=1), 40, 70, "causal", heads=4)


@pytest.mark.parametrize("tunables", [
    {}, pytest.param({"mask": "window", "keys": "spans"}, marks=pytest.mark.slow),
    pytest.param({"d": 64, "dv": 64, "n": 128, "stages": 4}, marks=pytest.mark.slow)], ids=str)
def test_products_run_on_behind_the_softmax(tunables: dict[str, int | str]) -> None:
    spec = kernels.get("attention.sm90.k6")
    compiled = nvrtc.compile_kernel(spec, spec.resolve(tunables), "sm_90a")
    assert "serialized" not in compiled.log
    assert nvrtc.resources(compiled).spill_bytes == 0
