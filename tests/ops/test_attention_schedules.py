"""The attention kernels under every order in which asynchronous work may end, and with few CTAs."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

import gpukit
from gpukit import dtypes, emulator
from gpukit.devices import emulated
from gpukit.emulator.policies import POLICIES
from gpukit.ops.attention import forward, masks, persistent
from gpukit.ops.attention.problem import Lengths, Problem, Terms
from gpukit.ops.attention.run import KERNELS
from gpukit.ops.attention.tiles import Tile
from gpukit.reference import attention as ref
from gpukit.reference import attention_layouts as layouts
from gpukit.reference.attention import Rules

Array = np.ndarray[Any, Any]


def normal(seed: int, *shape: int) -> Array:
    kind = dtypes.parse("bf16").numpy
    return np.random.default_rng(seed).standard_normal(shape).astype(kind)


def problem(batch: int, queries: int, keys: int, heads: int = 2, kv_heads: int = 2, d: int = 64,
            *, mask: str = "null", window: int | None = None, chunk: int | None = None,
            k_lengths: list[int] | None = None) -> Problem:
    q = normal(1, batch, queries, heads, d)
    lengths = None if k_lengths is None else np.array(k_lengths, np.uint32)
    return Problem(
        emulated.get("h100"), "bf16", q, normal(2, batch, keys, kv_heads, d),
        normal(3, batch, keys, kv_heads, d), np.full_like(q, np.nan),
        np.full((batch, heads, queries), np.nan, np.float32), batch, queries, keys,
        masks.named("test", mask, window, chunk, False), Terms(d**-0.5),
        Lengths(k_lengths=lengths))


def check(p: Problem, config: forward.Config, rules: Rules) -> None:
    """A launch with this configuration gives the oracle's result."""
    forward.launch(p, config)
    if p.lengths.k_lengths is None:
        want = ref.oracle(p.q, p.k, p.v, rules)
    else:
        want = layouts.padded(p.q, p.k, p.v, list(p.lengths.k_lengths), rules)
    assert np.abs(p.out.astype(np.float64) - want.out).max() < 0.03
    empty = np.isneginf(want.lse)
    assert (np.isneginf(p.lse) == empty).all()
    assert np.abs(np.where(empty, 0, p.lse) - np.where(empty, 0, want.lse)).max() < 1e-4


@pytest.mark.parametrize("kernel", KERNELS)
def test_every_schedule_gives_the_same_bits(kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    queries, keys = (20, 40) if kernel == "k1" else (70, 140)
    q, k, v = (normal(1, 1, queries, 2, 64), normal(2, 1, keys, 1, 64), normal(3, 1, keys, 1, 64))
    run, results = emulator.run, []
    for seed, chosen in enumerate(("random", *POLICIES)):
        monkeypatch.setattr(emulator, "run", partial(run, policy=chosen, seed=seed))
        results.append(gpukit.attention(q, k, v, mask="causal", kernel=kernel, return_lse=True))
    for result in results[1:]:
        for got, first in zip(result, results[0], strict=True):
            np.testing.assert_array_equal(got.view("u1"), first.view("u1"))


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("turns", [False, True])
def test_tiles_that_follow_each_other(turns: bool, policy: str,
                                      monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emulator, "run", partial(emulator.run, policy=policy))
    config = forward.Config(Tile(32, 2, 2), workers=1, turns=turns)
    check(problem(1, 130, 80, mask="causal"), config, Rules("causal"))


@pytest.mark.parametrize("policy", POLICIES)
def test_warpgroups_that_leave_blocks_to_others(policy: str,
                                                monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emulator, "run", partial(emulator.run, policy=policy))
    p = problem(1, 330, 361, 1, 1, mask="sliding_causal", window=100)
    for tile in (Tile(64, 3, 3), Tile(32, 4, 8)):
        config = forward.Config(tile, workers=1, turns=False)
        check(p, config, Rules("sliding_causal", window=100))
    config = forward.Config(Tile(32, 4, 8), workers=1, turns=False)
    check(problem(1, 330, 361, 1, 1, mask="causal"), config, Rules("causal"))
    check(problem(1, 400, 230, 1, 1, mask="causal"), config, Rules("causal"))


@pytest.mark.parametrize("turns", [False, True])
@pytest.mark.parametrize(("tile", "queries", "keys", "window"), [
    (Tile(32, 3, 2), 300, 330, 20), (Tile(128, 3, 3), 390, 500, 64),
    (Tile(64, 4, 8), 520, 600, 80)])
def test_windows_of_few_blocks(tile: Tile, queries: int, keys: int, window: int,
                               turns: bool) -> None:
    p = problem(1, queries, keys, 1, 1, mask="sliding_causal", window=window)
    config = forward.Config(tile, workers=1, turns=turns)
    check(p, config, Rules("sliding_causal", window=window))


def test_blocks_that_chunks_leave_out() -> None:
    p = problem(1, 600, 600, 1, 1, mask="chunked_causal", chunk=90)
    config = forward.Config(Tile(32, 4, 8), workers=1, turns=False)
    check(p, config, Rules("chunked_causal", chunk=90))


@pytest.mark.parametrize(("workers", "section"), [(1, 3), (2, 1), (3, 3), (7, 1)])
def test_workers_share_tiles(workers: int, section: int, monkeypatch: pytest.MonkeyPatch) -> None:
    tickets = np.zeros(1, np.uint32)
    monkeypatch.setattr(persistent, "counter", lambda device: tickets)
    config = forward.Config(Tile(32, 2, 2), workers=workers, section=section, dynamic=True)
    for _ in range(2):  # the counter is left as it was found
        check(problem(2, 130, 100, 2, 1, mask="causal"), config, Rules("causal"))
        assert tickets[0] == 0
    check(problem(2, 130, 100, 2, 1), replace(config, dynamic=False), Rules())


@pytest.mark.parametrize("workers", [1, 2])
def test_clusters_share_keys(workers: int) -> None:
    config = forward.Config(Tile(32, 2, 2), ctas=2, workers=workers)
    check(problem(1, 500, 70, 2, 1), config, Rules())
    check(problem(1, 300, 70, 1, 1), config, Rules())  # the last CTA has no rows
    check(problem(1, 300, 70, 1, 1, mask="causal"), config, Rules("causal"))


def test_tiles_without_keys_between_others() -> None:
    config = forward.Config(Tile(32, 2, 2), workers=1)
    check(problem(1, 300, 20, mask="causal"), config, Rules("causal"))
    check(problem(3, 100, 64, mask="causal", k_lengths=[0, 33, 64]), config, Rules("causal"))
    check(problem(3, 100, 64, k_lengths=[64, 0, 0]), config, Rules())


@pytest.mark.parametrize(("wgs", "stages"), [(1, 1), (1, 3), (2, 2), (3, 1), (3, 2),
                                               (4, 5)])
def test_warpgroups_and_stages(wgs: int, stages: int) -> None:
    config = forward.Config(Tile(32, wgs, stages), workers=1)
    check(problem(1, 200, 100, 1, 1), config, Rules())
    window = problem(1, 200, 200, 1, 1, mask="sliding_causal", window=40)
    check(window, config, Rules("sliding_causal", window=40))


def test_scores_that_grow_from_block_to_block() -> None:
    p = problem(1, 70, 160, 1, 1)
    k = p.k.astype(np.float32) * np.linspace(60, 1, 160, dtype=np.float32)[:, None, None]
    check(replace(p, k=k.astype(p.k.dtype)), forward.Config(Tile(32, 2, 2)), Rules())


def test_heads_in_one_tile() -> None:
    p = problem(1, 40, 70, 4, 1, mask="causal")
    for group in (2, 4):
        config = forward.Config(Tile(32, 2, 2), group=group, workers=1)
        check(replace(p, out=np.full_like(p.q, np.nan)), config, Rules("causal"))
