"""CuPy appends the GPU's plain `-arch` after ours: an `a` given earlier must stick."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("cuda.bindings.nvrtc")

from cuda.bindings import nvrtc

# wgmma assembles for sm_90a only: the cubin proves the target that ptxas saw.
SOURCE = b'extern "C" __global__ void k() { asm volatile("wgmma.fence.sync.aligned;"); }'


def compile_with(*options: str) -> tuple[bool, str]:
    """Whether ptxas accepted the source, and the PTX target."""
    _, program = nvrtc.nvrtcCreateProgram(SOURCE, b"k.cu", 0, [], [])
    status = nvrtc.nvrtcCompileProgram(program, len(options), [o.encode() for o in options])[0]
    _, size = nvrtc.nvrtcGetPTXSize(program)
    ptx = bytes(size)
    nvrtc.nvrtcGetPTX(program, ptx)
    nvrtc.nvrtcDestroyProgram(program)
    target = re.search(rb"\.target (\w+)", ptx)
    assert target is not None
    return status == nvrtc.nvrtcResult.NVRTC_SUCCESS, target[1].decode()


def test_an_a_sticks_when_the_plain_arch_follows() -> None:
    assert compile_with("-arch=sm_90a", "-arch=sm_90") == (True, "sm_90a")


def test_a_plain_arch_alone_has_no_wgmma() -> None:
    assert compile_with("-arch=sm_90", "-arch=sm_90") == (False, "sm_90")


def test_it_holds_for_blackwell_too() -> None:
    assert compile_with("-arch=sm_100a", "-arch=sm_100")[1] == "sm_100a"
