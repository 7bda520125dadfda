"""What of the CUDA backend can be checked without a device."""

from __future__ import annotations

import pytest

from gpukit.measure.cuda import SOURCE, format_uuid

nvrtc = pytest.importorskip("cuda.bindings.nvrtc")


def to_ptx(arch: str, source: str = SOURCE) -> str:
    _, program = nvrtc.nvrtcCreateProgram(source.encode(), b"measure.cu", 0, [], [])
    (result,) = nvrtc.nvrtcCompileProgram(program, 2, [f"-arch={arch}".encode(), b"-std=c++17"])
    _, size = nvrtc.nvrtcGetProgramLogSize(program)
    log = bytes(size)
    nvrtc.nvrtcGetProgramLog(program, log)
    assert result == nvrtc.nvrtcResult.NVRTC_SUCCESS, log.decode()
    _, size = nvrtc.nvrtcGetPTXSize(program)
    ptx = bytes(size)
    nvrtc.nvrtcGetPTX(program, ptx)
    return ptx.decode()


@pytest.mark.parametrize("arch", ["compute_75", "compute_80", "compute_90a", "compute_100a"])
def test_the_kernels_compile_and_keep_their_memory_accesses(arch: str) -> None:
    ptx = to_ptx(arch)
    bodies = dict(zip(("hold", "sweep", "empty"), ptx.split(".entry ")[1:], strict=True))
    assert all(body.startswith(name) for name, body in bodies.items())
    assert "ld.global.cg" in bodies["sweep"]  # the reads were not optimised away
    assert bodies["sweep"].count("st.global") == 1  # the store that zeros never reach
    assert bodies["hold"].count("%globaltimer") >= 2
    assert "ld.volatile" in bodies["hold"] and "st.volatile" in bodies["hold"]


def test_uuids_are_spelt_as_nvml_does() -> None:
    octets = bytes.fromhex("5fbb0000a1b2c3d4e5f60718293a4b5c")
    assert format_uuid(octets) == "GPU-5fbb0000-a1b2-c3d4-e5f6-0718293a4b5c"
