"""What the Blackwell attention kernel does, counted on the emulator, against arithmetic."""

from __future__ import annotations

from dataclasses import replace

import pytest
import rungs
from attention_sm100 import SMALL, check, problem

from gpukit.devices import emulated
from gpukit.emulator.counters import Counters
from gpukit.reference.attention import Rules

ROWS, TILES = 128, 2
D, N = 64, SMALL.n
QUERIES, KEYS = TILES * ROWS, 3 * N
STEPS = KEYS // N
PRODUCTS = D // 16 + N // 16  # of a tile and a block: scores, sums


def counted(slack: int = 8) -> Counters:
    """Of one job."""
    check(problem(QUERIES, KEYS), replace(SMALL, slack=slack))
    counters = emulated.get("b200").last_counters
    assert counters is not None
    return counters


def test_tensor_core() -> None:
    extra = counted().extra
    assert extra["tcgen05.mma"] == TILES * STEPS * PRODUCTS
    assert extra["flops bf16"] == 4 * QUERIES * KEYS * D
    assert extra["tcgen05 shared wavefronts"] == extra["tcgen05 shared wavefronts ideal"]


def test_a_tile_skips_what_only_the_other_sees() -> None:
    """All but one block if it has no rows; what of a window lies to its side if it has."""
    device = emulated.get("b200")
    check(problem(ROWS, KEYS), SMALL)
    assert device.last_counters is not None
    assert device.last_counters.extra["tcgen05.mma"] == PRODUCTS * (STEPS + 1)
    p = problem(QUERIES, QUERIES, mask="sliding_causal", window=N + 1)
    check(p, SMALL, Rules("sliding_causal", window=N + 1))
    assert device.last_counters is not None
    assert device.last_counters.extra["tcgen05.mma"] == PRODUCTS * (4 + 5)


def test_memory() -> None:
    """Everything is read once and written once; nothing but the LSE by plain stores."""
    counters = counted()
    extra = counters.extra
    assert extra["l2_to_shared_bytes"] == 2 * D * (QUERIES + 2 * KEYS)
    assert extra["bulk_store_bytes"] == 2 * D * QUERIES
    assert counters.global_loads.requests == 0
    assert counters.global_stores.sectors == 4 * QUERIES // 32
    assert counters.shared_stores.conflicts == counters.shared_loads.conflicts == 0


def test_tensor_memory() -> None:
    """Scores out, weights in, sums out at the end: nothing more while no weight passes 2^8."""
    extra = counted().extra
    scores, weights, sums = 4 * QUERIES * KEYS, 2 * QUERIES * KEYS, 4 * QUERIES * D
    assert extra["tmem_load_bytes"] == scores + sums
    assert extra["tmem_store_bytes"] == weights


def test_rescaling_whenever_a_maximum_grows() -> None:
    """Without slack: a warp's rows of O, out and in, for most blocks behind the first."""
    lazy, eager = counted().extra, counted(slack=0).extra
    out, back = (eager[name] - lazy[name] for name in ("tmem_load_bytes", "tmem_store_bytes"))
    warp = 4 * 32 * D
    most = TILES * 4 * (STEPS - 1) * warp
    assert out == back
    assert most / 2 < out <= most and out % warp == 0


def test_jobs_run_into_each_other_longest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first CTA begins with the last queries, and with the next job under this one's output."""
    spans = rungs.traced(monkeypatch, lambda: check(
        problem(2 * QUERIES, 2 * QUERIES, mask="causal"), SMALL, Rules("causal")))
    multiplied, written = rungs.of(spans, 0, "MMA"), rungs.of(spans, 0, "TMA stores")
    blocks = ROWS // N  # that a tile sees more than the one before it
    longest = PRODUCTS * (4 + 3) * blocks
    assert len(multiplied) == PRODUCTS * (4 + 3 + 2 + 1) * blocks  # of two jobs, two tiles each
    last = written[len(written) // 2 - 1].start  # of the first job
    assert multiplied[longest - 1].end <= last
    assert multiplied[longest].start < last
    extra = emulated.get("b200").last_counters.extra  # type: ignore[union-attr]
    assert (extra["cancel_requests"], extra["cancelled_clusters"]) == (2, 1)
