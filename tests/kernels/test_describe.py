"""What `gpukit show` is told about a kernel, with and without NVRTC, with a GPU and a stand-in."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpukit import kernels
from gpukit.devices import nvrtc
from gpukit.errors import (
    ArgumentError,
    CompileError,
    UnknownKernelError,
    UnsupportedError,
    missing,
)
from gpukit.kernels import describe as module
from gpukit.kernels.describe import Build, describe
from gpukit.kernels.spec import KernelSpec, Tunables

NUMBERS = ("registers", "spill_bytes", "stack_bytes", "static_shared_bytes", "compile_ms", "cached")


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_gpu", lambda: None)


@pytest.fixture
def fake_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """A stand-in for a compute capability 9.0 GPU that caches as CuPy does."""
    monkeypatch.setenv("CUPY_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("CUPY_CACHE_IN_MEMORY", raising=False)
    function = SimpleNamespace(num_regs=40, local_size_bytes=0, shared_size_bytes=16)

    def compile_(spec: KernelSpec, tunables: Tunables) -> Any:
        (tmp_path / f"{abs(hash(spec.expression(tunables)))}.cubin").touch()
        return SimpleNamespace(function=function)

    device = SimpleNamespace(name="cuda:0", compile=compile_, function=function,
                             properties=SimpleNamespace(capability=(9, 0)))
    monkeypatch.setattr(module, "_gpu", lambda: device)
    return device


@pytest.mark.usefixtures("no_gpu")
def test_offline_it_builds_for_every_target() -> None:
    found = describe("elementwise.sin", {"dtype": "bf16", "vec": 8})
    assert found.spec is kernels.get("elementwise.sin")
    assert found.tunables == found.spec.defaults | {"dtype": "bf16", "vec": 8}
    assert found.expression.startswith("unary<ops::Sin, bf16, 8, ")
    assert found.header.startswith("y[i] = op(x[i])")
    assert [build.arch for build in found.builds] == list(found.spec.archs)
    for build in found.builds:
        assert build.where == "offline" and build.cached is False and build.note == ""
        assert build.registers and build.compile_ms and build.compile_ms > 1
        assert build.spill_bytes == 0
        assert build.stack_bytes == 32, "the out-of-line reduction's buffer"


@pytest.mark.usefixtures("no_gpu")
def test_numbers_are_those_of_the_compiler() -> None:
    (build,) = describe("matmul.k1", {"tile": 16}, "sm_90").builds
    used = nvrtc.resources(nvrtc.compile_kernel(kernels.get("matmul.k1"), {"tile": 16}, "sm_90"))
    assert (build.registers, build.stack_bytes) == (used.registers, used.stack_bytes)


@pytest.mark.usefixtures("no_gpu")
def test_text_is_read_as_the_choice_it_spells() -> None:
    assert describe("matmul.k1", {"tile": "8"}, "sm_80").tunables["tile"] == 8
    with pytest.raises(ArgumentError, match="tile='7' is not accepted; choose one of 8, 16, 32"):
        describe("matmul.k1", {"tile": "7"})
    with pytest.raises(ArgumentError, match="k1 has no tunable 'tiles'"):
        describe("matmul.k1", {"tiles": "8"})


@pytest.mark.usefixtures("no_gpu")
def test_a_target_that_a_variant_lacks_is_a_note_unless_asked_for() -> None:
    wide = {"dtype": "f32", "vec": 8}
    narrow, newest = describe("elementwise.exp", wide).builds[-2:]
    assert newest.arch == "sm_100" and newest.registers
    assert narrow.registers is None
    assert narrow.note.startswith("cuda_src/common/vec.cuh(")
    assert "32-byte accesses need sm_100" in narrow.note
    with pytest.raises(CompileError, match="32-byte accesses need sm_100"):
        describe("elementwise.exp", wide, "sm_90")


@pytest.mark.usefixtures("no_gpu")
def test_what_cannot_be_described() -> None:
    with pytest.raises(UnknownKernelError, match="known kernels"):
        describe("elementwise.cos")
    with pytest.raises(UnsupportedError, match=r"needs .*sm_75.* this GPU is sm_70"):
        describe("matmul.k1", arch="sm_70")
    with pytest.raises(ArgumentError, match="arch 'compute_90' is virtual; give a GPU's, sm_90"):
        describe("matmul.k1", arch="compute_90")
    with pytest.raises(ArgumentError, match="arch 'hopper' is not of the form"):
        describe("matmul.k1", arch="hopper")


@pytest.mark.usefixtures("no_gpu")
def test_without_nvrtc_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent() -> str:
        raise missing("cuda-bindings", "emulator", "compiling kernels without a GPU")

    monkeypatch.setattr(nvrtc, "version", absent)
    found = describe("matmul.k1")
    assert found.header and found.expression == "k1_naive<bf16, bf16, 32>"
    for build in found.builds:
        assert all(getattr(build, name) is None for name in NUMBERS)
        assert "gpukit[emulator]" in build.note


def test_the_gpu_comes_first_and_other_targets_are_offline(fake_gpu: Any) -> None:
    builds = describe("matmul.k1").builds
    assert [(b.arch, b.where) for b in builds] == [
        ("sm_90", "cuda:0"), ("sm_75", "offline"), ("sm_80", "offline"), ("sm_100", "offline")]
    own = builds[0]
    assert (own.registers, own.spill_bytes, own.static_shared_bytes) == (40, 0, 16)


def test_a_new_file_in_the_cache_means_compiled(fake_gpu: Any) -> None:
    def cached(tile: int) -> bool | None:
        return describe("matmul.k1", {"tile": tile}, "sm_90").builds[0].cached

    assert [cached(8), cached(8), cached(16), cached(8)] == [False, True, False, True]


def test_an_in_memory_cache_keeps_nothing(fake_gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUPY_CACHE_IN_MEMORY", "1")
    fake_gpu.compile = lambda spec, tunables: SimpleNamespace(function=fake_gpu.function)
    assert describe("matmul.k1", arch="sm_90").builds[0].cached is False


def test_a_gpu_cannot_tell_spills_from_stack(fake_gpu: Any) -> None:
    fake_gpu.function.local_size_bytes = 24
    (build,) = describe("matmul.k1", arch="sm_90").builds
    assert build == Build("sm_90", "cuda:0", 40, None, 24, 16, build.compile_ms, False)


def test_a_gpu_too_old_for_the_kernel_is_passed_over(fake_gpu: Any) -> None:
    fake_gpu.properties.capability = (7, 0)
    assert {build.where for build in describe("matmul.k1").builds} == {"offline"}


@pytest.mark.gpu
def test_on_a_real_gpu_the_second_process_finds_the_cache(tmp_path: Path) -> None:
    code = ("import dataclasses, json; from gpukit.kernels.describe import describe;"
            "print(json.dumps(dataclasses.asdict(describe('elementwise.exp').builds[0])))")

    def first_build() -> dict[str, Any]:
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                              check=True, env=os.environ | {"CUPY_CACHE_DIR": str(tmp_path)})
        build: dict[str, Any] = json.loads(done.stdout)
        return build

    cold, warm = first_build(), first_build()
    assert cold["where"] == warm["where"] == "cuda:0"
    assert (cold["cached"], warm["cached"]) == (False, True)
    assert 0 < cold["registers"] == warm["registers"] <= 255
    assert warm["compile_ms"] < cold["compile_ms"]
