"""What gpukit.matmul may choose compiles without spills: the tiles with the most accumulators, for
every kind of operands, epilogue and store."""

from __future__ import annotations

from typing import Any

import pytest

from gpukit.devices import nvrtc
from gpukit.devices.models import MODELS
from gpukit.kernels import matmul_library as specs
from gpukit.kernels import matmul_sm100_library as sm100
from gpukit.ops.matmul import Gemm, Problem, limits, sm100_limits
from gpukit.ops.matmul.candidates import candidates, tcgen05s

H100, B200 = MODELS["h100"].properties, MODELS["b200"].properties
FEW_ROWS = {"m": 64}  # also swapped tiles
KINDS: list[dict[str, Any]] = [
    FEW_ROWS, {"tma_c": False}, {"extras": True, "act": "gelu", **FEW_ROWS},
    {"extras": True, "act": "silu", "tma_c": False}, {"a": "mn", "b": "mn", **FEW_ROWS},
    {"out": "f32"}, {"out": "f32", "extras": True, "tma_c": False, "act": "gelu"},
    {"dtype": "e4m3", "sums": "promoted", **FEW_ROWS}, {"dtype": "e4m3", "sums": "blocks"},
    {"dtype": "e4m3", "sums": "promoted", "extras": True, "act": "gelu", "tma_c": False},
    {"dtype": "e4m3", "sums": "promoted", "extras": True, "terms": "scales"},
    {"dtype": "e4m3", "extras": True, "terms": "scales", **FEW_ROWS},
    {"dtype": "e4m3", "sums": "blocks", "extras": True, "act": "gelu"},
    {"dtype": "tf32", "out": "f32", "extras": True, "act": "gelu_tanh"}]


def heaviest(problem: Problem) -> list[Gemm]:
    """Two tiles with the most accumulators for each way to share and store them."""
    found = [c for c in candidates(problem, H100) if isinstance(c, Gemm) and c.cm * c.cn == 1]
    found.sort(key=lambda c: -c.rows * c.columns)
    groups: dict[tuple[Any, ...], list[Gemm]] = {}
    for config in found:
        group = groups.setdefault((config.share, config.swap, config.split, config.bm), [])
        if len(group) < 2:
            group.append(config)
    return [config for group in groups.values() for config in group]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_the_heaviest_tiles_do_not_spill(kind: dict[str, Any]) -> None:
    problem = Problem(**{"m": 4096, "n": 4096, "k": 4096, **kind})
    configs = heaviest(problem)
    assert len(configs) > 6
    built = nvrtc.compile_variants(
        specs.GEMM, [limits.tunables(config, problem) for config in configs], "sm_90a")
    spills = {str(config): nvrtc.resources(compiled).spill_bytes
              for config, compiled in zip(configs, built, strict=True)}
    assert not {config: spilt for config, spilt in spills.items() if spilt}


@pytest.mark.slow
@pytest.mark.parametrize("kind", [
    {}, {"extras": True, "act": "gelu", "out": "f32", "a": "mn", "b": "mn"},
    {"dtype": "e4m3", "sums": "blocks32", "extras": True, "act": "silu"},
    {"dtype": "e2m1", "sums": "blocks16"}], ids=str)
def test_the_narrowest_and_widest_tiles_of_blackwell_do_not_spill(kind: dict[str, Any]) -> None:
    """Sums are not in registers: hardly anything depends on the tile."""
    problem = Problem(**{"m": 256, "n": 4096, "k": 4096, **kind})
    found = [c for c in tcgen05s(problem, B200) if c.split == 1 and c.cluster == c.ctas]
    assert {c.bn for c in found} == set(range(16, 257, 16))
    found = [c for c in found if c.bn in (16, 32, 240, 256)]
    built = nvrtc.compile_variants(
        sm100.GEMM, [sm100_limits.tunables(config, problem) for config in found], "sm_100a")
    used = [nvrtc.resources(compiled) for compiled in built]
    assert not any(one.spill_bytes for one in used)
