"""The Hopper ladder on the emulated H100: results, schedules, and what each rung claims to save."""

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
from gpukit.errors import ArgumentError, UnknownKernelError, UnsupportedError
from gpukit.ops import matmul_sm90

RUNGS = range(2, 9)
check = partial(rungs.check, matmul_sm90.launch)
counted = partial(rungs.counted, matmul_sm90.launch)


@pytest.fixture
def h100() -> EmulatedDevice:
    return emulated.get("h100")


# Results


@pytest.mark.parametrize("rung", RUNGS)
def test_default_tiles(rung: int, h100: EmulatedDevice) -> None:
    check(rung, h100, 128, 256, 128)
    check(rung, h100, 257, 264, 328)


@pytest.mark.parametrize("rung", RUNGS)
@pytest.mark.parametrize("shape", [
    (128, 64, 64),  # full tiles
    (1, 8, 8), (129, 64, 64), (128, 72, 64), (128, 64, 72), (63, 56, 8), (193, 136, 200)], ids=str)
def test_tails(rung: int, shape: tuple[int, int, int], h100: EmulatedDevice) -> None:
    check(rung, h100, *shape, bn=64)


@pytest.mark.parametrize("rung", [2, 3])
@pytest.mark.parametrize("shape", [(1, 1, 1), (65, 67, 13)], ids=str)
def test_rungs_without_tma_stores_take_any_size(rung: int, shape: tuple[int, int, int],
                                                h100: EmulatedDevice) -> None:
    check(rung, h100, *shape, bn=64)


@pytest.mark.parametrize("rung", RUNGS)
@pytest.mark.parametrize(("dtype", "out"), [("bf16", "f32"), ("f16", "f16")])
def test_types(rung: int, dtype: str, out: str, h100: EmulatedDevice) -> None:
    check(rung, h100, 130, 140 if out == "f32" else 136, 72, dtype=dtype, out=out, bn=64)


@pytest.mark.parametrize("rung", [5, 6, 7, 8])
@pytest.mark.parametrize("tiles", [(1, 1), (1, 3), (2, 5), (3, 2), (5, 1), (3, 3), (5, 5)], ids=str)
def test_odd_numbers_of_tiles_in_clusters(rung: int, tiles: tuple[int, int],
                                          h100: EmulatedDevice) -> None:
    check(rung, h100, 128 * tiles[0] - 3, 64 * tiles[1] - 8, 72, bn=64)


@pytest.mark.parametrize("rung", [5, 6, 7, 8])
def test_without_clusters(rung: int, h100: EmulatedDevice) -> None:
    check(rung, h100, 300, 72, 136, bn=64, cluster=1)


@pytest.mark.parametrize(("ctas", "group"), [(2, 1), (2, 2), (4, 8), (6, 3)])
def test_the_persistent_rung_visits_every_tile(ctas: int, group: int,
                                               h100: EmulatedDevice) -> None:
    check(8, h100, 5 * 128, 5 * 64, 64, bn=64, ctas=ctas, group=group)


def test_an_odd_number_of_pieces_per_tile_alternates_buffers_across_tiles(
        h100: EmulatedDevice) -> None:
    check(8, h100, 512, 192, 64, bn=192, ctas=2)


def test_f32_results_of_rung_6_leave_room_for_two_stages(h100: EmulatedDevice) -> None:
    check(6, h100, 128, 256, 256, out="f32")
    with pytest.raises(UnsupportedError, match=r"matmul\.sm90\.k6 needs .* KB shared memory"):
        check(6, h100, 128, 256, 256, out="f32", stages=3)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("rung", RUNGS)
def test_every_schedule_gives_the_same_bits(rung: int, policy: str, h100: EmulatedDevice,
                                            monkeypatch: pytest.MonkeyPatch) -> None:
    """Several tiles, of an odd number of steps and pieces, through a ring and buffers of two."""
    options = {"bn": 192 if rung > 6 else 64, **({"stages": 2} if rung > 5 else {}),
               **({"ctas": 2} if rung == 8 else {})}
    run = emulator.run
    results = []
    for seed in (1, 2):
        monkeypatch.setattr(emulator, "run", partial(run, policy=policy, seed=seed))
        results.append(check(rung, h100, 136, 200 if rung > 6 else 72, 136, **options).tobytes())
    assert len(set(results)) == 1


# What each rung claims


def test_rung_3_asks_for_an_eighth_of_the_boxes(h100: EmulatedDevice) -> None:
    """The core-matrix layout of rung 2 has no bank conflicts either: what it costs is requests."""
    plain, swizzled = (counted(rung, h100, 128, 256, 128).extra for rung in (2, 3))
    assert plain["tma_boxes"] == 8 * swizzled["tma_boxes"]
    assert plain["l2_to_shared_bytes"] == swizzled["l2_to_shared_bytes"]
    for extra in (plain, swizzled):
        assert extra["wgmma shared wavefronts"] == extra["wgmma shared wavefronts ideal"]


def test_rung_4_stores_whole_rows(h100: EmulatedDevice) -> None:
    direct, staged = (counted(rung, h100, 128, 256, 64) for rung in (3, 4))
    size = 128 * 256 * 2
    assert direct.global_stores.sectors == 4 * size // 32
    assert staged.global_stores.requests == 0
    assert staged.extra["bulk_store_bytes"] == size
    assert staged.instructions["store"] * 8 == direct.instructions["store"]
    assert staged.shared_stores.conflicts == 0


def test_rung_5_draws_less_from_l2(h100: EmulatedDevice) -> None:
    shape, row = (256, 256, 128), 128 * 2
    small = counted(4, h100, *shape).extra
    alone, shared = (counted(5, h100, *shape, cluster=c).extra for c in (1, 2))
    assert small["l2_to_shared_bytes"] == 4 * (64 + 256) * row
    assert alone["l2_to_shared_bytes"] == 2 * (128 + 256) * row
    assert shared["l2_to_shared_bytes"] == 2 * (128 + 128) * row
    assert shared["multicast_saved_bytes"] == 256 * row


def test_rung_6_has_no_barrier_of_all_threads_in_its_loop(h100: EmulatedDevice) -> None:
    def per_step(rung: int) -> tuple[int, int]:
        """Barrier and mbarrier instructions that one more step of K adds."""
        less, more = (counted(rung, h100, 256, 64, k, bn=64).instructions for k in (64, 128))
        return more["barrier"] - less["barrier"], more["mbarrier"] - less["mbarrier"]

    assert per_step(5)[0] > 0
    assert per_step(6)[0] == 0 and per_step(6)[1] > 0


def test_rung_7_has_room_for_one_more_stage() -> None:
    def most_stages(rung: int) -> int:
        spec = kernels.get(f"matmul.sm90.k{rung}")
        return max(s for s in (2, 3, 4, 5)
                   if spec.shared_bytes(spec.resolve({"stages": s})) <= 227 << 10)

    assert [most_stages(rung) for rung in (6, 7, 8)] == [3, 4, 4]


def test_rung_8_loads_the_next_tile_during_the_write_out(
        h100: EmulatedDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    steps, tiles, stores = 3, 4, 2 * 2  # two consumers, two pieces of 64 columns

    def first_cta(rung: int, **options: Any) -> tuple[list[Span], list[Span]]:
        """Its loads and stores, in order of issue."""
        spans = rungs.traced(monkeypatch, lambda: check(
            rung, h100, 128 * tiles, 128, 64 * steps, bn=128, cluster=1, **options))
        return rungs.of(spans, 0, "TMA loads"), rungs.of(spans, 0, "TMA stores")

    loads, written = first_cta(7)
    assert (len(loads), len(written)) == (2 * steps, stores)
    assert loads[-1].end <= written[0].start  # one tile, then the CTA is over

    loads, written = first_cta(8, ctas=1)
    assert (len(loads), len(written)) == (2 * steps * tiles, stores * tiles)
    for tile in range(1, tiles):
        assert loads[2 * steps * tile].start < written[stores * tile - 1].start


# Through the public function


def test_a_number_means_the_ladder_of_the_device() -> None:
    a, b = operand((64, 64), dtypes.F16, 0), operand((64, 64), dtypes.F16, 1).T
    got = gpukit.matmul(a, b, kernel=4, out_dtype="f32")
    assert emulated.current().last_counters.extra["wgmma"] == 4
    for name in ("4", "sm90.k4", "matmul.sm90.k4"):
        assert np.array_equal(gpukit.matmul(a, b, kernel=name, out_dtype="f32"), got)
    with pytest.raises(UnknownKernelError, match="unknown kernel"):
        gpukit.matmul(a, b, kernel="elementwise.exp")


def test_other_gpus_are_refused() -> None:
    a = np.zeros((64, 64), np.float16)
    with pytest.raises(UnsupportedError, match=r"k7 needs sm_90a, this GPU is sm_100"):
        matmul_sm90.launch(7, emulated.get("b200"), a, a.T, a.copy())


@pytest.mark.parametrize("rung", [2, 8])
def test_k_zero_gives_zeros(rung: int) -> None:
    got = gpukit.matmul(np.zeros((3, 0), np.float16), np.zeros((8, 0), np.float16).T, kernel=rung)
    assert got.shape == (3, 8) and not got.any()


def test_what_tma_cannot_address_is_refused_by_name() -> None:
    half = np.float16
    a, w, wide = np.zeros((64, 64), half), np.zeros((64, 64), half), np.zeros((64, 136), half)
    shifted = np.zeros(64 * 64 + 1, half)[1:].reshape(64, 64)
    cases: list[tuple[Any, Any, Any, int, str]] = [
        (a.astype("f4"), w.T.astype("f4"), None, 7, "a has dtype float32; accepted: bfloat16, f"),
        (a.T, w.T, None, 7, r"a has strides \(2, 128\) bytes; accepted: .* along K"),
        (a, w, None, 7, r"b has strides \(128, 2\) bytes; accepted: .* along K: w.T of a row-m"),
        (wide[:, :62][:, ::2], w[:, :31].T, None, 2, "a has strides"),
        (np.zeros((64, 60), half), wide[:, :60].T, None, 2, r"a has strides \(120, 2\) .*of 16"),
        (wide[:, :60], np.zeros((64, 60), half).T, None, 2, r"b has strides \(2, 120\) .*columns"),
        (a[::-1], w.T, None, 2, "a has strides .* a positive multiple of 16"),
        (shifted, w.T, None, 2, "a starts 2 bytes past a multiple of 16"),
        (a, shifted.T, None, 2, "b starts 2 bytes past a multiple of 16"),
        (a, w.T, shifted.copy(), 3, ""),
        (a, w.T, np.zeros(64 * 64 + 1, half)[1:].reshape(64, 64), 4, "out starts 2 bytes past"),
        (a, w[:60].T, None, 4, r"out has strides \(120, 2\) bytes; accepted: rows"),
    ]
    for left, right, out, rung, message in cases:
        if message:
            with pytest.raises(ArgumentError, match=rf"matmul\.sm90\.k{rung}: {message}"):
                gpukit.matmul(left, right, out=out, kernel=rung)
        else:
            gpukit.matmul(left, right, out=out, kernel=rung)


@pytest.mark.parametrize("ctas", [0, 1, 3, -2])
def test_ctas_are_whole_clusters(ctas: int, h100: EmulatedDevice) -> None:
    with pytest.raises(ArgumentError, match=f"ctas is {ctas}; accepted: positive multi"):
        check(8, h100, 64, 64, 64, bn=64, ctas=ctas)
