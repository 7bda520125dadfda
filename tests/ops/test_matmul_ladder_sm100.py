"""The Blackwell ladder on the emulated B200: results, schedules, and what each rung claims."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import rungs
from rungs import operand

import gpukit
from gpukit import dtypes, emulator, kernels
from gpukit.devices import emulated
from gpukit.devices.emulated import EmulatedDevice
from gpukit.emulator.policies import POLICIES
from gpukit.emulator.trace import Span
from gpukit.errors import ArgumentError, UnsupportedError
from gpukit.kernels.matmul_sm100 import accumulators
from gpukit.ops import matmul_sm100

RUNGS = range(2, 9)
PAIRED = range(5, 9)
SHARED = 227 << 10
check = partial(rungs.check, matmul_sm100.launch)
counted = partial(rungs.counted, matmul_sm100.launch)


@pytest.fixture
def b200() -> EmulatedDevice:
    return emulated.get("b200")


# Results


@pytest.mark.parametrize("rung", RUNGS)
def test_default_tiles(rung: int, b200: EmulatedDevice) -> None:
    check(rung, b200, 256, 256, 128)
    check(rung, b200, 257, 264, 328)


@pytest.mark.parametrize("rung", RUNGS)
@pytest.mark.parametrize("shape", [
    (128, 64, 64),  # full tiles
    (1, 8, 8), (129, 64, 64), (128, 72, 64), (128, 64, 72), (63, 56, 8), (193, 136, 200)], ids=str)
def test_tails(rung: int, shape: tuple[int, int, int], b200: EmulatedDevice) -> None:
    check(rung, b200, *shape, bn=64)


@pytest.mark.parametrize("rung", [2, 3])
@pytest.mark.parametrize("shape", [(1, 1, 1), (65, 67, 13)], ids=str)
def test_rungs_without_tma_stores_take_any_size(rung: int, shape: tuple[int, int, int],
                                                b200: EmulatedDevice) -> None:
    check(rung, b200, *shape, bn=64)


@pytest.mark.parametrize("rung", RUNGS)
@pytest.mark.parametrize(("dtype", "out"), [("bf16", "f32"), ("f16", "f16")])
def test_types(rung: int, dtype: str, out: str, b200: EmulatedDevice) -> None:
    check(rung, b200, 130, 140 if out == "f32" else 136, 72, dtype=dtype, out=out, bn=64)


@pytest.mark.parametrize(("rung", "bn", "out"), [
    *((rung, bn, "bf16") for rung in (2, 3, 7, 8) for bn in (128, 192, 224)),
    *((rung, bn, "bf16") for rung in (4, 5, 6) for bn in (128, 192)),
    *((rung, 192, "f32") for rung in range(2, 9)), (8, 256, "f32")])
def test_widths(rung: int, bn: int, out: str, b200: EmulatedDevice) -> None:
    check(rung, b200, 200, bn + 40, 136, bn=bn, out=out)


@pytest.mark.parametrize("rung", PAIRED)
@pytest.mark.parametrize(("cluster", "tiles"), [
    (2, (1, 1)), (2, (1, 3)), (2, (2, 5)), (2, (3, 2)), (2, (5, 1)), (2, (3, 3)),
    (4, (1, 1)), (4, (2, 3)), (4, (3, 2)), (4, (5, 5))], ids=str)
def test_odd_numbers_of_tiles_in_clusters(rung: int, cluster: int, tiles: tuple[int, int],
                                          b200: EmulatedDevice) -> None:
    check(rung, b200, 128 * tiles[0] - 3, 64 * tiles[1] - 8, 72, bn=64, cluster=cluster)


@pytest.mark.parametrize("rung", PAIRED)
def test_two_pairs_share_the_widest_tiles(rung: int, b200: EmulatedDevice) -> None:
    bn = 224 if rung > 6 else 256
    check(rung, b200, 500, bn + 16, 136, bn=bn, cluster=4)


@pytest.mark.parametrize(("group", "cluster"), [(1, 2), (2, 4), (3, 2), (8, 4)])
def test_rung_8_visits_every_tile(group: int, cluster: int, b200: EmulatedDevice) -> None:
    check(8, b200, 9 * 128, 5 * 64, 64, bn=64, group=group, cluster=cluster)


def test_an_odd_number_of_pieces_per_tile_alternates_buffers_across_tiles(
        b200: EmulatedDevice) -> None:
    check(8, b200, 4 * 256, 224, 64, bn=224)


@pytest.mark.parametrize("rung", range(2, 6))
def test_two_ctas_may_share_an_sm(rung: int, b200: EmulatedDevice) -> None:
    check(rung, b200, 300, 72, 72, bn=64, columns=256)


def test_f32_results_of_rung_6_leave_room_for_three_stages(b200: EmulatedDevice) -> None:
    check(6, b200, 128, 256, 256, out="f32")
    with pytest.raises(UnsupportedError, match=r"matmul\.sm100\.k6 needs .* KB shared memory"):
        check(6, b200, 128, 256, 256, out="f32", stages=4)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("rung", RUNGS)
def test_every_schedule_gives_the_same_bits(rung: int, policy: str, b200: EmulatedDevice,
                                            monkeypatch: pytest.MonkeyPatch) -> None:
    """Several tiles, of an odd number of steps and pieces, through a ring and buffers of two."""
    options = {"bn": 224 if rung > 6 else 64, **({"stages": 2} if rung > 5 else {})}
    shape = (412 if rung == 8 else 264, 232 if rung > 6 else 72, 136)
    run = emulator.run
    results = []
    for seed in (1, 2):
        monkeypatch.setattr(emulator, "run", partial(run, policy=policy, seed=seed))
        results.append(check(rung, b200, *shape, **options).tobytes())
    assert len(set(results)) == 1


# What each rung claims


def test_rung_3_asks_for_an_eighth_of_the_boxes(b200: EmulatedDevice) -> None:
    """Eight rows of 16 bytes that follow each other (rung 2) lie on all banks, as swizzled rows of
    128 bytes do (rung 3): neither layout has conflicts. What rung 2 costs is requests."""
    plain, swizzled = (counted(rung, b200, 128, 256, 128).extra for rung in (2, 3))
    assert plain["tma_boxes"] == 8 * swizzled["tma_boxes"]
    assert plain["tma_load_rows"] == 8 * swizzled["tma_load_rows"]
    assert plain["l2_to_shared_bytes"] == swizzled["l2_to_shared_bytes"]
    for extra in (plain, swizzled):
        assert extra["tcgen05 shared wavefronts"] == extra["tcgen05 shared wavefronts ideal"]


def test_rung_4_stores_whole_rows(b200: EmulatedDevice) -> None:
    direct, staged = (counted(rung, b200, 128, 256, 64) for rung in (3, 4))
    size = 128 * 256 * 2
    assert direct.global_stores.sectors == 4 * size // 32
    assert staged.global_stores.requests == 0
    assert staged.extra["bulk_store_bytes"] == size
    assert staged.shared_stores.conflicts == 0


@pytest.mark.parametrize("rung", range(4, 9))
@pytest.mark.parametrize("out", ["bf16", "f32"])
def test_staging_has_no_bank_conflicts(rung: int, out: str, b200: EmulatedDevice) -> None:
    assert counted(rung, b200, 256, 256, 64, out=out).shared_stores.conflicts == 0


def test_rung_5_draws_less_from_l2(b200: EmulatedDevice) -> None:
    shape, row = (512, 256, 128), 128 * 2
    small = counted(4, b200, *shape).extra
    pair, pairs = (counted(5, b200, *shape, cluster=c).extra for c in (2, 4))
    assert small["l2_to_shared_bytes"] == 8 * (64 + 256) * row
    assert pair["l2_to_shared_bytes"] == 4 * (128 + 128) * row  # 0.4 of it
    assert pairs["l2_to_shared_bytes"] == 4 * (128 + 64) * row
    assert pairs["multicast_saved_bytes"] == 256 * row


def test_rung_5_halves_the_instructions_of_the_tensor_core(b200: EmulatedDevice) -> None:
    """An MMA of 256 rows does the work of four, in two tensor cores at once."""
    one, two = (counted(rung, b200, 256, 256, 64).extra for rung in (4, 5))
    assert one["tcgen05.mma"] == 4 * two["tcgen05.mma"]
    assert one["flops bf16"] == two["flops bf16"] == 2 * 256 * 256 * 64


@pytest.mark.parametrize("stages", [2, 5])
def test_rung_6_loads_as_far_ahead_as_the_ring_is_deep(
        stages: int, b200: EmulatedDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the leader's first MMA is over it has issued the loads of one step, or of a ring."""

    def ahead(rung: int, **options: Any) -> int:
        spans = rungs.traced(monkeypatch, lambda: check(
            rung, b200, 256, 64, 64 * 8, bn=64, **options), policy="late")
        first = min(span.end for span in rungs.of(spans, 0, "MMA"))
        return sum(span.start < first for span in rungs.of(spans, 0, "TMA loads"))

    assert ahead(5) == 2
    assert ahead(6, stages=stages) == 2 * stages


def test_rung_7_stages_c_in_a_quarter_and_the_ring_grows() -> None:
    def c_bytes(rung: int) -> int:
        """Shared memory that is neither ring nor barriers."""
        spec = kernels.get(f"matmul.sm100.k{rung}")
        with_c = spec.shared_bytes(spec.resolve({"stages": 2}))
        return (with_c - 2 * 32 * 1024) // 1024 * 1024

    def most_stages(rung: int, **options: Any) -> int:
        spec = kernels.get(f"matmul.sm100.k{rung}")
        return max(s for s in range(2, 10)
                   if spec.shared_bytes(spec.resolve({**options, "stages": s})) <= SHARED)

    assert [c_bytes(rung) for rung in (6, 7)] == [64 << 10, 16 << 10]
    assert [most_stages(rung) for rung in (6, 7, 8)] == [5, 6, 8]
    assert [most_stages(rung, out="f32") for rung in (6, 7, 8)] == [3, 6, 8]


@pytest.mark.parametrize(("bn", "count"), [(64, 8), (128, 4), (192, 2), (224, 2), (256, 2)])
def test_tensor_memory_holds_a_ring_of_accumulators(bn: int, count: int) -> None:
    assert accumulators(bn) == count


def test_rung_8_multiplies_the_next_tile_during_the_write_out(
        b200: EmulatedDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    steps, bn, tiles = 3, 128, 8

    def first_cta(rung: int) -> tuple[list[Span], list[Span]]:
        """MMAs that it issued, four for a step, and its stores, a piece each."""
        spans = rungs.traced(monkeypatch, lambda: check(
            rung, b200, 256 * tiles, bn, 64 * steps, bn=bn))
        return rungs.of(spans, 0, "MMA"), rungs.of(spans, 0, "TMA stores")

    pieces, mmas = bn // 32, 4 * steps
    multiplied, written = first_cta(7)
    assert (len(multiplied), len(written)) == (mmas, pieces)
    assert multiplied[-1].end <= written[0].start  # one tile, then the CTA is over

    multiplied, written = first_cta(8)
    mine = len(written) // pieces
    assert mine > 2 and len(multiplied) == mine * mmas
    for tile in range(1, mine):
        assert multiplied[mmas * tile].start < written[pieces * tile - 1].start


@pytest.mark.parametrize("cluster", [2, 4])
def test_rung_8_steals_the_tiles_of_clusters_that_have_not_started(
        cluster: int, b200: EmulatedDevice) -> None:
    tiles = 8
    extra = counted(8, b200, 128 * cluster * tiles, 64, 64, bn=64, cluster=cluster).extra
    started = tiles - extra["cancelled_clusters"]
    assert 0 < started < tiles
    assert extra["cancel_requests"] == tiles  # one for each tile: the last of a cluster is in vain
    assert extra["tcgen05.mma"] == 4 * tiles * cluster // 2


# Through the public function


def test_a_number_means_the_ladder_of_the_device() -> None:
    a, b = operand((64, 64), dtypes.F16, 0), operand((64, 64), dtypes.F16, 1).T
    emulated.get("b200").use()
    try:
        got = gpukit.matmul(a, b, kernel=4, out_dtype="f32")
        assert emulated.current().last_counters.extra["tcgen05.mma"] == 4
        for name in ("4", "sm100.k4", "matmul.sm100.k4"):
            assert np.array_equal(gpukit.matmul(a, b, kernel=name, out_dtype="f32"), got)
    finally:
        emulated.get().use()


def test_other_gpus_are_refused() -> None:
    a = np.zeros((64, 64), np.float16)
    with pytest.raises(UnsupportedError, match=r"sm100\.k7 needs sm_100a, this GPU is sm_90"):
        matmul_sm100.launch(7, emulated.get("h100"), a, a.T, a.copy())


@pytest.mark.parametrize("rung", [2, 8])
def test_k_zero_gives_zeros(rung: int, b200: EmulatedDevice) -> None:
    out = np.full((3, 8), np.nan, np.float16)
    matmul_sm100.launch(rung, b200, np.zeros((3, 0), np.float16),
                        np.zeros((8, 0), np.float16).T, out)
    assert not out.any()


def test_what_tma_cannot_address_is_refused_by_name(b200: EmulatedDevice) -> None:
    half = np.float16
    a, w, wide = np.zeros((64, 64), half), np.zeros((64, 64), half), np.zeros((64, 136), half)
    out = np.zeros((64, 64), half)
    shifted = np.zeros(64 * 64 + 1, half)[1:].reshape(64, 64)
    cases: list[tuple[Any, Any, Any, int, str]] = [
        (a.astype("f4"), w.T, out, 7, "a has dtype float32; accepted: bfloat16, f"),
        (a.T, w.T, out, 7, r"a has strides \(2, 128\) bytes; accepted: .* along K"),
        (a, w, out, 7, r"b has strides \(128, 2\) bytes; accepted: .* along K: w.T of a row-m"),
        (wide[:, :62][:, ::2], w[:, :31].T, out, 2, "a has strides"),
        (a, shifted.T, out, 2, "b starts 2 bytes past a multiple of 16"),
        (a, w.T, shifted, 4, "out starts 2 bytes past"),
        (a, w[:60].T, np.zeros((64, 60), half), 4, r"out has strides \(120, 2\) bytes"),
    ]
    for left, right, result, rung, message in cases:
        with pytest.raises(ArgumentError, match=rf"matmul\.sm100\.k{rung}: {message}"):
            matmul_sm100.launch(rung, b200, left, right, result)
