"""The Ampere matmul ladder, emulated: its own PTX on NumPy arrays."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from fake_device import FakeDevice
from sm80_problems import Problem

from gpukit import emulator
from gpukit.devices import emulated
from gpukit.devices.emulated import EmulatedDevice
from gpukit.devices.models import Model
from gpukit.devices.protocol import Properties
from gpukit.errors import ArgumentError
from gpukit.ops.matmul_sm80 import CONFIGS, RUNGS, Config, Tile, a1, a2, a3, choose

SMALL = Config(Tile(64, 64, 32, 32, 32), 3)
WIDE = Config(Tile(64, 128, 32, 32, 64), 3)
A100 = Model(Properties("emulated A100", "", (8, 0), 108, 2048, 163 << 10, 40 << 20, 40 << 30),
             "sm_80", "NVIDIA A100 Tensor Core GPU architecture whitepaper")

each_rung = pytest.mark.parametrize("rung", RUNGS)
each_layout = pytest.mark.parametrize("layout", ["nt", "nn", "tn", "tt"])


def small(rung: str) -> Callable[..., None]:
    """The rung with small tiles, of which a small problem has several; split-K in three."""
    if rung == "sm80.a1":
        return partial(a1, tile=SMALL.tile)
    return partial(a2, config=SMALL) if rung == "sm80.a2" else partial(a3, config=SMALL, slices=3)


def run(problem: Problem, launch: Callable[..., None], device: EmulatedDevice | None = None) -> Any:
    """Launch, verify, and return the device's counters."""
    device = device or emulated.get("h100")
    a, b = problem.operands()
    out, words = problem.guarded(np)
    launch(device, a, b, out)
    problem.verify(a, b, out, words)
    return device.last_counters


@each_rung
@each_layout
def test_layouts_with_tails(rung: str, layout: str) -> None:
    run(Problem(124, 62, 104, layout), small(rung))


@each_rung
@pytest.mark.parametrize(("dtype", "out"), [
    ("bf16", "f32"), ("bf16", "f16"), ("f16", "f16"), ("f16", "f32"), ("f16", "bf16")])
def test_types(rung: str, dtype: str, out: str) -> None:
    run(Problem(62, 56, 40, dtype=dtype, out=out), small(rung))


@each_rung
@pytest.mark.parametrize("k", [0, 1, 8, 31, 32, 33, 72, 200])
def test_any_k(rung: str, k: int) -> None:
    run(Problem(61, 64, k), small(rung))


@each_rung
@pytest.mark.parametrize(("m", "n"), [(1, 1), (1, 120), (123, 1), (65, 63)])
def test_any_m_and_n(rung: str, m: int, n: int) -> None:
    run(Problem(m, n, 24), small(rung))


@each_rung
@pytest.mark.parametrize(("layout", "offset", "pad"), [
    ("nt", 4, 4), ("tn", 4, 0), ("nn", 2, 0), ("tt", 0, 2), ("nt", 1, 0), ("tn", 0, 3)])
def test_alignments(rung: str, layout: str, offset: int, pad: int) -> None:
    run(Problem(60, 56, 40, layout, offsets=(offset,) * 3, pads=(pad,) * 2), small(rung))


@pytest.mark.parametrize("offsets", [(0, 1, 2), (2, 4, 0), (4, 0, 1)])
def test_each_operand_has_its_own_alignment(offsets: tuple[int, int, int]) -> None:
    run(Problem(56, 64, 40, offsets=offsets), small("sm80.a2"))


def test_rows_that_end_within_a_piece() -> None:
    """K = 13 in rows of 16: 16-byte copies would read what is no part of the operand."""
    run(Problem(20, 20, 13, pads=(3, 3)), small("sm80.a2"))
    run(Problem(13, 21, 16, "tn", pads=(3, 3)), small("sm80.a2"))


@pytest.mark.parametrize("config", [*(config for config, _ in CONFIGS), Config(Tile(128, 128), 5),
                                    Config(Tile(128, 128, 64), 2), WIDE], ids=str)
def test_configurations(config: Config) -> None:
    run(Problem(config.tile.bm - 2, config.tile.bn + 64, 136), partial(a2, config=config))


@each_rung
def test_default_configurations(rung: str) -> None:
    run(Problem(64, 124, 280), RUNGS[rung])


@pytest.mark.parametrize("group", [1, 4, 16])
def test_every_tile_is_computed_in_any_order(group: int) -> None:
    """Nine rows of tiles: whole groups and a rest; poison would show a tile left out."""
    run(Problem(64 * 9 - 3, 128, 8), partial(a2, config=SMALL, group=group))


@each_rung
@pytest.mark.parametrize("out", ["bf16", "f32"])
def test_as_an_a100_would_run_it(rung: str, out: str) -> None:
    """Without Hopper's stmatrix."""
    run(Problem(62, 72, 40, out=out), small(rung), EmulatedDevice("a100", A100))


def test_on_blackwell() -> None:
    run(Problem(62, 72, 40), small("sm80.a2"), emulated.get("b200"))


@pytest.mark.parametrize("rung", ["sm80.a2", "sm80.a3"])
@pytest.mark.parametrize(("policy", "seed"), [
    ("late", 0), ("late", 1), ("early", 0), ("starved", 0), ("random", 1), ("random", 2)])
def test_any_schedule(rung: str, policy: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emulator, "run", partial(emulator.run, policy=policy, seed=seed))
    run(Problem(62, 64, 330), small(rung))


@pytest.mark.parametrize("stages", [2, 3, 4, 5])
@pytest.mark.parametrize("steps", [1, 2, 3, 5, 7])
def test_rings_longer_and_shorter_than_k(stages: int, steps: int,
                                         monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emulator, "run", partial(emulator.run, policy="late", seed=steps))
    run(Problem(64, 64, 32 * steps), partial(a2, config=Config(SMALL.tile, stages)))


def shared_conflicts(counters: Any) -> int:
    return int(counters.shared_loads.conflicts + counters.shared_stores.conflicts)


@each_layout
@pytest.mark.parametrize("config", [*(config for config, _ in CONFIGS), WIDE], ids=str)
def test_the_swizzle_leaves_no_bank_conflicts(layout: str, config: Config) -> None:
    out = "f32" if layout in ("nt", "tn") else "bf16"
    problem = Problem(config.tile.bm, config.tile.bn, 128, layout, out=out)
    assert shared_conflicts(run(problem, partial(a2, config=config))) == 0


@each_layout
@pytest.mark.parametrize("elements", [4, 2, 1])
def test_nor_do_narrow_copies(layout: str, elements: int) -> None:
    """64 columns of C at an offset that leaves 8, 4 or 2 bytes of alignment."""
    problem = Problem(64, 64, 64, layout, offsets=(elements,) * 3)
    assert shared_conflicts(run(problem, partial(a2, config=SMALL))) == 0


@each_layout
def test_plain_rows_have_conflicts(layout: str) -> None:
    """What the swizzle is for: rung 1 takes 4 to 8 wavefronts where one would do."""
    loads = run(Problem(128, 128, 64, layout), a1).shared_loads
    assert 4 * loads.ideal <= loads.wavefronts <= 8 * loads.ideal


def test_without_the_swizzle_only_loads_conflict() -> None:
    counters = run(Problem(128, 128, 64), a1)
    assert counters.shared_stores.conflicts == 0


def test_operands_cross_from_l2_once_per_tile() -> None:
    """64 x 64 tiles, 3 x 2 of them: each row of A is copied for 2 tiles, each column of B for 3."""
    m, n, k = 192, 128, 96
    counters = run(Problem(m, n, k), partial(a2, config=SMALL))
    assert counters.extra["cp_async_bytes"] == 2 * (2 * m * k + 3 * n * k)
    assert counters.extra["flops bf16"] == 2 * m * n * k


@pytest.mark.parametrize(("out", "size"), [("bf16", 2), ("f32", 4)])
def test_c_is_written_in_whole_sectors(out: str, size: int) -> None:
    stores = run(Problem(128, 128, 32, out=out), partial(a2, config=SMALL)).global_stores
    assert stores.bytes == 128 * 128 * size
    assert stores.sectors == stores.bytes // 32
    assert stores.requests == stores.bytes // 512  # 16 bytes from each lane


def test_split_k_is_deterministic(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = Problem(64, 64, 512)
    a, b = problem.operands()
    results = []
    for seed in range(3):
        monkeypatch.setattr(emulator, "run", partial(emulator.run, seed=seed))
        out, _ = problem.guarded(np)
        a3(emulated.get("h100"), a, b, out, config=SMALL, slices=5)
        results.append(out.tobytes())
    assert len(set(results)) == 1


@pytest.mark.parametrize(("slices", "n"), [(2, 64), (3, 33), (7, 62), (100, 1)])
def test_any_number_of_slices(slices: int, n: int) -> None:
    run(Problem(60, n, 230), partial(a3, config=SMALL, slices=slices))


def test_split_k_uses_the_workspace_it_is_given() -> None:
    workspace = np.full(4 * 60 * 60 + 9, np.nan, np.float32)
    run(Problem(60, 60, 128), partial(a3, config=SMALL, slices=4, workspace=workspace))
    assert np.isfinite(workspace[:-9]).all() and np.isnan(workspace[-9:]).all()


# What is launched, on a device that only records


def recorded(device: FakeDevice, shape: tuple[int, int, int], launch: Callable[..., None],
             dtype: str = "float16") -> list[Any]:
    m, n, k = shape
    b = device.array((n, k), dtype).T
    launch(device, device.array((m, k), dtype), b, device.array((m, n), dtype))
    return device.launches


def test_split_k_fills_the_gpu(fake: FakeDevice) -> None:
    """24 tiles of 64 x 128 on 100 SMs: four slices each, 12 steps of 64 in a slice."""
    split, reduce = recorded(fake, (64, 3072, 3072), a3)
    assert (split.name, split.grid, split.block) == ("matmul.sm80.a3", (24, 4), (128,))
    assert split.args[-1] == 3072 // 4
    assert (reduce.name, reduce.args[-2:]) == ("matmul.sm80.a3_reduce", (64 * 3072, 4))
    assert reduce.grid == (64 * 3072 // (4 * 256),)


@pytest.mark.parametrize("shape", [(4096, 4096, 4096), (64, 3072, 100)])
def test_split_k_is_rung_2_where_it_would_not_pay(fake: FakeDevice, shape: Any) -> None:
    (launch,) = recorded(fake, shape, a3)
    assert launch.name == "matmul.sm80.a2"


def test_small_results_get_small_tiles() -> None:
    h100, ada = FakeDevice(), FakeDevice((8, 9))
    object.__setattr__(ada.properties, "shared_per_cta", 99 << 10)
    assert choose(4096, 4096, h100) == Config(Tile(128, 256, 64), 3)
    assert choose(4096, 4096, ada) == Config(Tile(128, 256, 32), 4)
    assert choose(512, 512, h100).tile == Tile(64, 64, 64, 32, 32)


@pytest.mark.parametrize(("elements", "align"), [(0, 16), (8, 16), (4, 8), (2, 4), (3, 2)])
def test_alignment_is_that_of_base_stride_and_length(fake: FakeDevice, elements: int,
                                                     align: int) -> None:
    bases = fake.array((64, 64), "float16", offset=2 * elements)
    strides = fake.array((64, 64 + elements), "float16")[:, :64]
    lengths = fake.array((64, 128), "float16")[:, :64 + elements]
    for a in (bases, strides, lengths):
        a2(fake, a, fake.array((a.shape[1], 64), "float16"), fake.array((64, 64), "float16"))
        launch = fake.launches[-1]
        assert (launch.tunables["align_a"], launch.tunables["align_b"]) == (align, 16)
        assert launch.args[6] == a.strides[0] // 2


def test_what_the_ladder_does_not_take(fake: FakeDevice) -> None:
    def half(m: int, n: int) -> Any:
        return fake.array((m, n), "float16")

    good, out = half(64, 64), half(64, 64)
    with pytest.raises(ArgumentError, match="a has dtype float32; the sm80 kernels take float16"):
        a2(fake, fake.array((64, 64)), fake.array((64, 64)), fake.array((64, 64)))
    with pytest.raises(ArgumentError, match=r"b has strides \(256, 4\) bytes; .* stride 2"):
        a2(fake, good, half(64, 128)[:, ::2], out)
    for slices in (0, 65536):
        with pytest.raises(ArgumentError, match=f"slices={slices} is not accepted; 1 to 65535"):
            a3(fake, good, good, out, slices=slices)
    with pytest.raises(ArgumentError, match=r"workspace is float16 .*at least 8192 elements"):
        a3(fake, good, good, out, config=SMALL, slices=2, workspace=half(128, 64))
    huge = np.lib.stride_tricks.as_strided(half(1, 1), (64, 2**31), (0, 2))
    with pytest.raises(ArgumentError, match="K is 2147483648; the sm80 kernels take at most"):
        a2(fake, fake.own(huge), fake.own(huge.T), out)
    assert not fake.launches


def test_a_negative_stride_walks_backwards() -> None:
    a, b = Problem(60, 60, 48).operands()
    plain, flipped = np.empty((60, 60), a.dtype), np.empty((60, 30), a.dtype)
    a2(emulated.get("h100"), a, b, plain)
    a2(emulated.get("h100"), a[::-1], b[:, ::-2], flipped)
    assert (flipped == plain[::-1, ::-2]).all()
