"""Compiling and launching on a real GPU: architectures, shared memory, errors, caches, threads."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpukit import kernels, sources
from gpukit.devices import cuda
from gpukit.errors import CompileError, LaunchError, UnsupportedError
from gpukit.kernels.spec import KernelSpec, Param, Tunable

pytestmark = pytest.mark.gpu

Write = Callable[[str, str], None]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes files of a source tree that stands in for cuda_src."""
    monkeypatch.setattr(sources, "root", lambda: tmp_path)

    def put(name: str, text: str) -> None:
        (tmp_path / name).write_text(text)

    return put


def device() -> cuda.CudaDevice:
    """A device object of its own: nothing compiled yet."""
    return cuda.CudaDevice(0)


def spec(**changes: Any) -> KernelSpec:
    base = KernelSpec(name="test.k", source="k.cu", entry="k", summary="", archs=("sm_75",),
                      tunables=(), params=(Param("out", "pointer", ""),))
    return replace(base, **changes)


def run(kernel: Any, shape: tuple[int, ...] = (1,)) -> Any:
    import cupy

    out = cupy.full(shape, -1, cupy.int32)
    kernel.launch((1,), (32,), (out,))
    return cupy.asnumpy(out)


def test_the_a_suffix_reaches_the_assembler(write: Write) -> None:
    import cupy

    if cupy.cuda.Device().compute_capability != "90":
        pytest.skip("needs sm_90")
    # Never launched: a lone warp may not execute wgmma, and the fault would outlive this test.
    write("k.cu", '__global__ void k(int* out) { asm volatile("wgmma.fence.sync.aligned;"); }')
    assert device().compile(spec(archs=("sm_90a",)), {}).arch == "sm_90a"
    with pytest.raises(CompileError, match="wgmma"):
        device().compile(spec(archs=("sm_90",)), {})


def test_a_missing_architecture_is_named() -> None:
    here = f"sm_{cuda.get(0).properties.arch[3:]}"
    with pytest.raises(UnsupportedError, match=rf"test.k needs sm_999a, this GPU is {here}"):
        device().compile(spec(archs=("sm_999a",)), {})


def test_errors_name_our_file_and_line(write: Write) -> None:
    write("k.cu", "// header\n__global__ void k(int* out) {\n  nonsense();\n}\n")
    with pytest.raises(CompileError, match=r"cuda_src/k\.cu\(3\)"):
        device().compile(spec(), {})


def test_large_dynamic_shared_memory_is_enabled(write: Write) -> None:
    write("k.cu", "extern __shared__ int s[]; __global__ void k(int* out) {"
                  " s[15000 + threadIdx.x] = threadIdx.x; __syncthreads();"
                  " out[0] = s[15031]; }")
    assert run(device().compile(spec(shared_bytes=lambda tunables: 64 * 1024), {}))[0] == 31


def test_too_much_shared_memory_is_refused_before_compiling() -> None:
    with pytest.raises(UnsupportedError, match=r"needs 300 KB shared memory, \d+ available"):
        device().compile(spec(shared_bytes=lambda tunables: 300 * 1024), {})


def test_an_edited_header_is_noticed(write: Write) -> None:
    write("k.cu", '#include "h.cuh"\n__global__ void k(int* out) { out[0] = VALUE; }')
    for value in (3, 4):
        write("h.cuh", f"#define VALUE {value}\n")
        assert run(device().compile(spec(), {}))[0] == value


def test_a_bad_launch_says_what_was_asked() -> None:
    compiled = device().compile(kernels.get("timing.spin"), {})
    with pytest.raises(LaunchError, match=r"timing.spin with grid \(1,\), block \(4096,\)"):
        compiled.launch((1,), (4096,), (1, device().empty((1,), "int64")))


def test_compiling_is_thread_safe(write: Write) -> None:
    write("k.cu", "template <int N> __global__ void k(int* out) { out[0] = N; }")
    many = spec(entry="k<{n}>", tunables=(Tunable("n", tuple(range(8)), 0, ""),))
    target = device()
    with ThreadPoolExecutor(8) as pool:
        compiled = list(pool.map(lambda i: target.compile(many, {"n": i % 8}), range(64)))
    assert len(set(map(id, compiled))) == 8
    assert [int(run(kernel)[0]) for kernel in compiled[:8]] == list(range(8))


def test_launches_from_threads_do_not_mix_arguments() -> None:
    import cupy

    compiled = cuda.get(0).compile(kernels.get("elementwise.scale"), {"dtype": "f32", "vec": 1})

    def work(factor: int) -> bool:
        stream = cupy.cuda.Stream(non_blocking=True)
        with stream:
            x, out = cupy.ones(1000, "f4"), cupy.zeros(1000, "f4")
            for _ in range(200):
                compiled.launch((4,), (256,), (x, out, 1000, float(factor)))
            stream.synchronize()
            return bool((out == factor).all())

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(1, 17)))
