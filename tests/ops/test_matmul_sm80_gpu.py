"""The Ampere matmul ladder on a GPU: drawn shapes, layouts, types and alignments."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sm80_problems import Problem

import gpukit
from gpukit import devices
from gpukit.ops.matmul_sm80 import CONFIGS, RUNGS, Config, Tile, a2, a3

pytestmark = pytest.mark.gpu

drawn = settings(max_examples=25, deadline=None, derandomize=True,
                 suppress_health_check=[HealthCheck.too_slow])
each_rung = pytest.mark.parametrize("rung", RUNGS)

sizes = st.one_of(st.integers(1, 700), st.sampled_from([1, 63, 64, 65, 128, 256, 257, 512]))
depths = st.one_of(st.integers(0, 900), st.sampled_from([8, 32, 64, 96, 512, 2048]))
#: One element past a 16-byte boundary, two, four or none: a kernel for each.
shifts = st.sampled_from([0, 0, 4, 2, 1])

problems = st.builds(
    Problem, m=sizes, n=sizes, k=depths, layout=st.sampled_from(["nt", "nn", "tn", "tt"]),
    dtype=st.sampled_from(["bf16", "f16"]), out=st.sampled_from(["bf16", "f16", "f32"]),
    offsets=st.tuples(shifts, shifts, shifts), pads=st.tuples(shifts, shifts))


def run(problem: Problem, launch: Callable[..., None]) -> bytes:
    """Launch, verify, and return C's bytes."""
    import cupy

    device = devices.get("cuda:0")
    a, b = problem.operands(cupy)
    out, words = problem.guarded(cupy)
    launch(device, a, b, out)
    host = cupy.asnumpy(out)
    problem.verify(*problem.operands(), host, cupy.asnumpy(words))
    return bytes(host.tobytes())


@each_rung
@drawn
@given(problem=problems)
def test_drawn_problems(rung: str, problem: Problem) -> None:
    run(problem, RUNGS[rung])


@each_rung
@pytest.mark.parametrize("layout", ["nt", "nn", "tn", "tt"])
@pytest.mark.parametrize("out", ["bf16", "f32"])
def test_many_tiles(rung: str, layout: str, out: str) -> None:
    run(Problem(1111, 2056, 777, layout, out=out), RUNGS[rung])


@pytest.mark.parametrize("config", [*(config for config, _ in CONFIGS), Config(Tile(128, 128), 2),
                                    Config(Tile(128, 128, 64), 3), Config(Tile(128, 128), 5)],
                         ids=str)
@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_configurations(config: Config, dtype: str) -> None:
    run(Problem(1000, 1032, 520, dtype=dtype), partial(a2, config=config))


@pytest.mark.parametrize(("slices", "shape"), [
    (None, (64, 3072, 3072)), (None, (64, 3071, 3073)), (2, (300, 200, 1000)), (31, (5, 9, 7000))])
def test_split_k(slices: int | None, shape: tuple[int, int, int]) -> None:
    run(Problem(*shape), partial(a3, slices=slices))


@pytest.mark.parametrize("launch", [a2, partial(a3, slices=4)], ids=["a2", "a3"])
def test_the_same_bits_every_time(launch: Any) -> None:
    """Copies that overtake the barriers would show, now and then."""
    problem = Problem(1024, 1024, 4096, out="f32")
    assert len({run(problem, launch) for _ in range(8)}) == 1


def test_by_name() -> None:
    import cupy

    a, b = Problem(100, 120, 64).operands(cupy)
    results = [cupy.asnumpy(gpukit.matmul(a, b, kernel=rung)).tobytes() for rung in RUNGS]
    assert len(set(results)) == 1
