"""What gpukit.attention runs by default keeps everything in registers."""

from __future__ import annotations

import pytest

pytest.importorskip("cuda.bindings.nvrtc")

from gpukit import kernels
from gpukit.devices import nvrtc


# Of Ampere, some numbers that do not change from step to step are in memory.
@pytest.mark.parametrize(("arch", "spilled"), [("sm_80", 72), ("sm_90", 0)])
@pytest.mark.parametrize("mask", ["full", "causal"])
def test_32_queries_a_warp_fit(mask: str, arch: str, spilled: int) -> None:
    spec = kernels.get("attention.k2")
    compiled = nvrtc.compile_kernel(spec, spec.resolve({"repeat": 2, "mask": mask}), arch)
    assert nvrtc.resources(compiled).spill_bytes <= spilled


@pytest.mark.parametrize("tunables", [
    {"n": 176, "ctas": 2}, {"mask": "causal", "turns": 0},
    {"d": 64, "dv": 64, "wgs": 3, "mask": "causal"},
    {"d": 64, "dv": 64, "wgs": 3, "stages": 3, "mask": "window", "turns": 0},
    {"n": 64, "wgs": 3, "stages": 5, "mask": "window", "turns": 0},
    {"d": 64, "dv": 64, "n": 64, "wgs": 4, "stages": 8, "mask": "window", "turns": 0},
    {"d": 64, "dv": 64, "n": 64, "wgs": 4, "stages": 8, "mask": "causal", "turns": 0},
    {"n": 80, "wgs": 3, "stages": 4, "keys": "paged", "terms": 3},
    {"n": 80, "wgs": 3, "stages": 4, "mask": "causal", "turns": 0},
    {"d": 64, "dv": 64, "n": 64, "wgs": 4, "stages": 8, "keys": "paged", "terms": 3},
    {"mask": "window", "turns": 0},
    {"d": 256, "dv": 256, "n": 80, "mask": "causal"}], ids=str)
def test_products_run_on_behind_the_softmax(tunables: dict[str, int | str]) -> None:
    spec = kernels.get("attention.sm90.k5")
    compiled = nvrtc.compile_kernel(spec, spec.resolve(tunables), "sm_90a")
    assert "serialized" not in compiled.log
    assert nvrtc.resources(compiled).spill_bytes == 0
