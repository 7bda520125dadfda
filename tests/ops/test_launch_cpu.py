"""How calls become launches: access width, grid rules, index type, without a GPU."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from fake_device import FakeDevice

from gpukit.errors import ArgumentError, UnsupportedError
from gpukit.ops.launch import Launch, Plan, plan, rule, wave_bytes

MAX_GRID = 2**31 - 1


def decide(n: int = 1 << 20, *, op: str = "exp", element: str = "f32", alignment: int = 32,
           device: FakeDevice | None = None, **launch: Any) -> Plan:
    return plan(op, element, n, alignment, Launch(**launch), device or FakeDevice())


@pytest.mark.parametrize(("launch", "message"), [
    ({"block": 100}, "block=100 is not accepted; choose one of 32, 64, 128, 256, 512, 1024"),
    ({"block": 2048}, "block=2048 is not accepted"),
    ({"grid": "gs3"}, "grid='gs3' is not accepted; use gs1, gs2 or a number of CTAs"),
    ({"grid": 0}, f"grid=0 is not accepted; an integer from 1 to {MAX_GRID}"),
    ({"grid": 2**31}, f"grid={2**31} is not accepted"),
    ({"waves": 0}, "waves=0 is not accepted; an integer from 1 to 2147483647"),
    ({"vec": 3}, "vec=3 is not accepted; choose one of 1, 2, 4, 8, 16, 32"),
    ({"unroll": 3}, "unroll=3 is not accepted; choose one of 1, 2, 4, 8"),
    ({"index": "i32"}, "index='i32' is not accepted; choose one of u32, u64"),
    ({"cache": "l2"}, "cache='l2' is not accepted"),
])
def test_refused_overrides(launch: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        decide(**launch)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(("element", "alignment", "vec"), [
    ("f32", 32, 4), ("f32", 16, 4), ("f32", 8, 2), ("f32", 4, 1),
    ("bf16", 32, 8), ("bf16", 2, 1), ("u8", 32, 16), ("u8", 1, 1), ("u64", 32, 2), ("u64", 8, 1),
])
def test_the_widest_aligned_access_is_chosen(element: str, alignment: int, vec: int) -> None:
    op = "copy" if element.startswith("u") else "exp"
    assert decide(op=op, element=element, alignment=alignment).vec == vec


def test_a_wider_access_than_the_alignment_is_refused() -> None:
    with pytest.raises(ArgumentError, match="exp: vec=4 of f32 needs 16-byte alignment; the arrays "
                                            "are aligned to 8"):
        decide(alignment=8, vec=4)
    assert decide(alignment=8, vec=2).vec == 2


def test_32_byte_accesses_need_blackwell() -> None:
    with pytest.raises(UnsupportedError, match="vec=8 of f32 is 32 bytes per access; sm_90 moves "
                                               "at most 16"):
        decide(vec=8)
    assert decide(vec=8, device=FakeDevice((10, 0))).vec == 8
    with pytest.raises(UnsupportedError, match="vec=16 of f32 is 64 bytes per access; sm_100 moves "
                                               "at most 32"):
        decide(vec=16, device=FakeDevice((10, 0)))


def test_gs1_covers_the_array_in_one_pass() -> None:
    shape = {"vec": 4, "unroll": 2, "block": 128}
    per_cta = 4 * 2 * 128
    assert decide(per_cta * 7, **shape).grid == (7,)
    assert decide(per_cta * 7 + 1, **shape).grid == (8,)
    assert decide(1, **shape).grid == (1,)


def test_gs2_caps_at_full_waves() -> None:
    wave = 100 * 2048 // 256
    shape = {"vec": 4, "unroll": 1, "block": 256, "grid": "gs2"}
    assert decide(1 << 30, waves=3, **shape).grid == (3 * wave,)
    assert decide(4 * 256 * 5, waves=3, **shape).grid == (5,), "never more than one pass needs"


def test_an_explicit_grid_is_taken_as_given() -> None:
    assert decide(grid=12345).grid == (12345,)


@pytest.mark.parametrize("grid", ["gs1", "gs2", 1, 255, 256, 257])
@pytest.mark.parametrize("n", [1, 3, 255, 1024, (1 << 18) - 1, 1 << 18, (1 << 18) + 3])
def test_there_is_a_loop_wherever_one_pass_is_not_enough(grid: str | int, n: int) -> None:
    chosen = decide(n, grid=grid, vec=4, unroll=1, block=256, waves=1)
    covered = chosen.grid[0] * 4 * 256
    loops = chosen.kernel.tunables["loop"] == "true"
    assert loops or covered >= n // 4 * 4
    assert not loops or covered < n


def test_the_counter_is_64_bits_where_32_could_wrap() -> None:
    narrow = {"vec": 1, "unroll": 1, "block": 256, "grid": 1024, "alignment": 4}
    step = 1024 * 256
    assert decide(2**32 - step - 1, **narrow).index == "u32"
    assert decide(2**32 - step, **narrow).index == "u64"
    assert decide(2**34, vec=4, block=256, grid=1024).index == "u64"
    assert decide(2**33, vec=4, block=256, grid=1024).index == "u32", "it counts vectors"
    with pytest.raises(ArgumentError, match=r"index='u32' cannot count 4294967296 elements with "
                                            r"vec=1; use u64"):
        decide(2**32, index="u32", **narrow)
    assert decide(100, index="u64").index == "u64"


def test_the_plan_compiles_what_it_says() -> None:
    chosen = decide(op="axpy", element="bf16", vec=2, unroll=8, index="u64", cache="stream")
    assert chosen.kernel.spec.name == "elementwise.axpy"
    assert chosen.kernel.tunables.items() >= {
        "dtype": "bf16", "vec": 2, "unroll": 8, "index": "u64", "cache": "stream"}.items()


@pytest.mark.parametrize("n", [1, 1 << 20, 1 << 24, 1 << 28])
@pytest.mark.parametrize("element", ["f32", "f16", "u8"])
def test_defaults_are_accepted_at_every_size(n: int, element: str) -> None:
    chosen = decide(n, op="copy" if element == "u8" else "exp", element=element)
    assert chosen.block[0] in (32, 64, 128, 256, 512, 1024)
    assert chosen.grid[0] * chosen.block[0] * chosen.vec * chosen.unroll >= n


@pytest.mark.parametrize(("waves", "unroll"), [
    (0.2, 1), (1.0, 1), (1.5, 1), (1.6, 2), (2.0, 2), (2.1, 1), (4.0, 1), (500.0, 1)])
@pytest.mark.parametrize("sm_count", [58, 132])
def test_two_vectors_per_thread_where_that_makes_one_wave_of_two(sm_count: int, waves: float,
                                                                 unroll: int) -> None:
    properties = replace(FakeDevice().properties, sm_count=sm_count)
    picked = rule(round(waves * wave_bytes(properties)), properties)
    assert (picked.block, picked.unroll) == (128, unroll)
