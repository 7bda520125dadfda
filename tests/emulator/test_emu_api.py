"""The public entry point: sources, arguments, and one-line errors for bad input."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from emulator_kernels import HEADER, ptx_kernel

from gpukit import emulator
from gpukit.emulator import nvrtc
from gpukit.emulator.errors import CompileError, LaunchError, PtxSyntaxError

SOURCE = """extern "C" __global__ void scale(float* y, float a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] *= a; }
template <class T> __global__ void other(T* y) { y[0] = T(1); }
template __global__ void other<int>(int*);
"""
ARGS = [np.float32(3), np.int32(4)]


def test_sources_may_be_text_or_files(tmp_path):
    ptx = nvrtc.compile_ptx(SOURCE, arch="sm_90a")
    (tmp_path / "scale.cu").write_text(SOURCE)
    (tmp_path / "scale.ptx").write_text(ptx)
    for source in (SOURCE, ptx, tmp_path / "scale.cu", str(tmp_path / "scale.ptx")):
        y = np.arange(4, dtype="f4")
        emulator.run(source, 1, 32, [y, *ARGS], kernel="scale")
        assert y.tolist() == [0, 3, 6, 9]


def test_kernels_of_both_architectures():
    for arch in ("sm_90a", "sm_100a"):
        y = np.ones(4, "f4")
        emulator.run(SOURCE, 1, 32, [y, *ARGS], kernel="scale", arch=arch)
        assert y.tolist() == [3] * 4


def test_multi_dimensional_arrays_and_python_scalars():
    y = np.ones((2, 2), "f4", order="F")
    emulator.run(SOURCE, (1,), [32], [y, 2.0, 4], kernel="scale")
    assert (y == 2).all()


def test_mangled_names_are_found_by_the_plain_one():
    y = np.zeros(1, "i4")
    emulator.run(SOURCE, 1, 1, [y], kernel="other")
    assert y[0] == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"args": [np.zeros(4, "f4")]}, "args: scale takes 3 arguments, 1 were given"),
        ({"args": [np.zeros(4, "f4"), np.float64(3), np.int32(4)]},
         "args[1] of scale: float64 of dtype float64 has 8 bytes, the parameter 4"),
        ({"args": [np.zeros(4, "f4"), "x", np.int32(4)]}, "args[1] of scale: str cannot be passed"),
        ({"args": [np.zeros((4, 4), "f4")[:, ::2], *ARGS]}, "args[0] of scale: the array is not"),
        ({"args": [np.zeros(4, "O"), *ARGS]}, "args[0] of scale: dtype object"),
        ({"args": [np.float32(1), *ARGS]}, "args[0] of scale: float32 of dtype float32 has 4"),
        ({"args": [np.zeros(4, "f4"), ARGS[0], 1 << 40]}, "args[2] of scale: 1099511627776"),
        ({"grid": 0}, "grid: 0 must be one to three positive integers"),
        ({"block": (32, 64)}, "block: (32, 64, 1) must have 1 to 1024 threads"),
        ({"block": (1, 2, 3, 4)}, "block: (1, 2, 3, 4) must be one to three positive integers"),
        ({"cluster": 2}, "grid: (1, 1, 1) is not a multiple of the cluster (2, 1, 1)"),
        ({"grid": 32, "cluster": 32}, "cluster: (32, 1, 1) has 32 CTAs; accepted: up to 8"),
        ({"shared_bytes": 300_000}, "shared_bytes: the CTA needs 300000 bytes of shared memory"),
        ({"policy": "chaos"}, "policy: 'chaos' is unknown; accepted: random, early, late, starved"),
        ({"kernel": "nope"}, "kernel: 'nope' does not name one kernel; the module has"),
        ({"kernel": None}, "kernel: None does not name one kernel; the module has"),
    ],
)  # fmt: skip
def test_bad_input_is_refused_in_one_line(change, message):
    call = {"grid": 1, "block": 32, "args": [np.zeros(4, "f4"), *ARGS], "kernel": "scale"} | change
    with pytest.raises(LaunchError) as caught:
        emulator.run(SOURCE, call.pop("grid"), call.pop("block"), call.pop("args"), **call)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_launch_bounds_of_the_kernel_are_kept():
    source = 'extern "C" __global__ void __launch_bounds__(64) k() {}'
    emulator.run(source, 1, 64, [])
    with pytest.raises(LaunchError, match="more than the kernel's 64 threads"):
        emulator.run(source, 1, 65, [])
    source = 'extern "C" __global__ void __cluster_dims__(2, 1, 1) k() {}'
    emulator.run(source, 2, 32, [])
    with pytest.raises(LaunchError, match=r"compiled for \(2, 1, 1\)"):
        emulator.run(source, 4, 32, [], cluster=4)


def test_ptx_for_another_architecture():
    specific = ptx_kernel("ret;")
    portable = specific.replace("sm_90a", "sm_80")
    emulator.run(specific, 1, 1, [], arch="sm_90a")
    emulator.run(portable, 1, 1, [], arch="sm_90a")
    with pytest.raises(LaunchError, match="the PTX is for sm_90a and does not run on sm_100a"):
        emulator.run(specific, 1, 1, [], arch="sm_100a")
    with pytest.raises(LaunchError, match="the PTX is for sm_80 and does not run on sm_75"):
        emulator.run(portable, 1, 1, [], arch="sm_75")
    with pytest.raises(LaunchError, match="'ampere' is not an architecture"):
        emulator.run(portable, 1, 1, [], arch="ampere")


def test_missing_files_and_missing_nvrtc(monkeypatch):
    with pytest.raises(LaunchError, match=r"nowhere\.cu does not exist"):
        emulator.run("nowhere.cu", 1, 1, [])
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    nvrtc._compile.cache_clear()
    with pytest.raises(CompileError, match=r'pip install "gpukit\[emulator\]"'):
        emulator.run(SOURCE, 1, 1, [])


def test_compile_errors_show_the_log():
    with pytest.raises(CompileError, match=r'identifier "nonsense" is undefined'):
        emulator.run("__global__ void k() { nonsense; }", 1, 1, [])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEADER + ".visible .entry k() { add.s32 %r1, %r2, ; }", "PTX line 4"),
        (HEADER + ".visible .entry k() { bra NOWHERE; }", "k: unknown name 'NOWHERE'"),
        (HEADER + ".visible .entry k() { ret;", "function k is not closed"),
        (HEADER + ".visible .entry k() { .reg .b33 %r; ret; }", "unknown type .b33"),
        (HEADER + "\n\n§", "PTX line 6: unexpected character"),
        (HEADER + "banana", "unexpected 'banana' outside a function"),
        (HEADER + ".visible .entry k() { @5 ret; }", "is not a predicate register"),
    ],
)
def test_syntax_errors_name_the_line(text, message):
    with pytest.raises(PtxSyntaxError) as caught:
        emulator.run(text, 1, 1, [], kernel="k")
    assert message in str(caught.value)


def test_start_up_is_quick():
    code = (
        "import time; t = time.perf_counter(); from gpukit import emulator; import numpy;"
        "print(time.perf_counter() - t)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(run.stdout) < 1.0


@pytest.mark.parametrize("grid", [1.5, None, "4", (2, 1.5), 0, (), (1, 1, 1, 1)])
def test_a_grid_is_one_to_three_positive_integers(grid):
    with pytest.raises(LaunchError, match=r"grid: .* must be one to three positive integers"):
        emulator.run('extern "C" __global__ void k() {}', grid, 1, [])


def test_numpy_integers_make_a_grid():
    emulator.run('extern "C" __global__ void k() {}', np.int64(2), (np.int32(32), 1), [])


def test_an_initialiser_may_point_into_an_array():
    out = np.zeros(1, np.int32)
    emulator.run("__device__ int g[4] = {5, 6, 7, 8}; __device__ int* p = &g[2];"
                 'extern "C" __global__ void k(int* out) { *out = *p; }', 1, 1, [out])
    assert out[0] == 7


@pytest.mark.parametrize("end", [".target", ".target sm_90a\n.visible"])
def test_ptx_that_breaks_off_is_a_syntax_error(end):
    with pytest.raises(PtxSyntaxError, match=r"PTX line \d"):
        emulator.run(f".version 8.0\n{end}", 1, 1, [])
