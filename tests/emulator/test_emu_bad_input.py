"""Bad input of ``run``: one line that names the argument, and a process that goes on."""

from __future__ import annotations

import re

import numpy as np
import pytest
from emulator_kernels import ptx_kernel
from refusals import SOURCE, refused, scale

from gpukit import emulator
from gpukit.emulator import GlobalMemory, LaunchError, Listener, Trace, nvrtc
from gpukit.emulator.errors import CompileError

NOTHING = ptx_kernel("ret;")
RECURSIVE = """extern "C" __device__ int f(int n) { return n < 2 ? n : f(n - 1) + f(n - 2); }
extern "C" __global__ void k(int* y) { *y = f(5); }"""
INTEGER = "was given; accepted: an integer from"
LIST = "was given; accepted: a list or tuple of"
FLAG = "was given; accepted: True or False"
SIZE = "must be one to three positive integers"


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        *(("grid", v, SIZE) for v in ("x", None, 1.5, (2, 1.5), -1, True, b"1", {1: 1}, ())),
        *(("block", v, SIZE) for v in ("x", None, 2.0, 0, (1, 1, 1, 1), [[1]])),
        *(("cluster", v, SIZE) for v in ("a", 1.5, 0, -2, (1, None))),
        ("grid", 1 << 31, "grid: (2147483648, 1, 1) is too large; accepted: up to 2147483647 x 65"),
        ("grid", (1, 65536), "grid: (1, 65536, 1) is too large"),
        ("grid", (1, 1, 65536), "grid: (1, 1, 65536) is too large"),
        ("block", 1025, "block: (1025, 1, 1) is too large; accepted: up to 1024 x 1024 x 64 th"),
        ("block", (1, 1, 65), "block: (1, 1, 65) is too large"),
        ("block", (32, 33), "block: (32, 33, 1) must have 1 to 1024 threads"),
        ("cluster", 9, "cluster: (9, 1, 1) has 9 CTAs; accepted: up to 8, or up to 16 with nonp"),
        ("cluster", 2, "grid: (1, 1, 1) is not a multiple of the cluster (2, 1, 1)"),
        *(("shared_bytes", v, f"shared_bytes: {v!r} {INTEGER} 0") for v in (1.5, -1, None, "1")),
        ("shared_bytes", 1 << 40, "1099511627776 bytes of shared memory, 232448 exist"),
        *(("stack_bytes", v, f"{INTEGER} 0 to 524288") for v in (1.5, -5, None, 1 << 50)),
        *(("seed", v, f"seed: {v!r} {INTEGER} 0") for v in (1.5, "x", None, [1], -1, True)),
        *(("budget", v, f"budget: {v!r} {INTEGER} 1") for v in (0, 1.5, "9", None, np.inf)),
        *(("policy", v, "is unknown; accepted: random, early, late, starved")
          for v in (None, 5, ["random"], "all")),
        *(("checks", v, f"checks: {v!r} {FLAG}") for v in (None, "no", 1, [])),
        *(("cooperative", v, f"cooperative: {v!r} {FLAG}") for v in (None, "no", 0)),
        *(("nonportable_cluster", v, FLAG) for v in (None, 1)),
        *(("kernel", v, "was given; accepted: the name of a kernel or None")
          for v in (5, b"scale", ["scale"], np.zeros(3))),
        *(("arch", v, "is not an architecture such as 'sm_90a'")
          for v in (5, 90, b"sm_90a", "", "sm_90a ", ["sm_90a"], "sm_²")),
        *(("options", v, f"options: {v!r} {LIST} text such as '-DN=4'") for v in (None, "-DA", 5)),
        ("options", [5], "options[0]: 5 was given; accepted: text such as '-DN=4'"),
        *(("include_dirs", v, LIST) for v in (None, "/tmp", 5)),
        ("include_dirs", [5], "include_dirs[0]: 5 was given"),
        ("include_dirs", ["/nowhere"], "include_dirs: /nowhere is no folder"),
        *(("listeners", v, LIST) for v in (None, 5, Trace())),
        ("listeners", [5], "listeners[0]: 5 was given; accepted: objects of Listener's subclasses"),
        ("listeners", [Listener, Trace], "listeners[0]: class Listener was given"),
        *(("memory", v, "was given; accepted: a GlobalMemory or None")
          for v in (5, {}, GlobalMemory)),
        *(("args", v, f"{LIST} arguments, one for each parameter")
          for v in (5, "abc", b"abc", {1: 2}, {1}, np.zeros(3), iter([1]))),
        *(("source", v, "was given; accepted: the text or the path of CUDA C++ or PTX")
          for v in (None, 5, SOURCE.encode(), [SOURCE])),
        ("source", "banana", "ptx_or_cu: banana does not exist"),
        ("source", "a" * 5000, "cannot be read: File name too long"),
        ("source", "a\0b.cu", "'a\\x00b.cu'"),
        ("source", " \n", "ptx_or_cu: the text is empty; accepted: CUDA C++ or PTX"),
        ("source", "int x;", "kernel: the source has none; accepted: a __global__ function"),
    ],
    ids=lambda value: str(value).split(" at 0x")[0][:40].encode("ascii", "replace").decode(),
)  # fmt: skip
def test_arguments_of_run(name, value, message):
    refused(message, lambda: scale(**{name: value}))


def test_numbers_too_long_to_print():
    refused("grid: an object of type tuple is too large", lambda: scale(grid=(1, 10**5000)))
    refused("seed: an object of type int was given", lambda: scale(seed=-(10**5000)))


def test_none_are_no_arguments():
    with pytest.raises(LaunchError, match="args: None was given; accepted: a list or tuple"):
        emulator.run(SOURCE, 1, 32, None)


def test_clusters_of_more_than_eight_need_consent():
    emulator.run(NOTHING, 16, 32, [], cluster=16, nonportable_cluster=True)
    refused("has 16 CTAs", lambda: emulator.run(NOTHING, 16, 32, [], cluster=16))
    refused("has 17 CTAs", lambda: emulator.run(NOTHING, 17, 32, [], cluster=17,
                                                nonportable_cluster=True))  # fmt: skip


def test_clusters_keep_the_limit_of_the_kernel():
    source = 'extern "C" __global__ void __launch_bounds__(32, 1, 2) k() {}'
    emulator.run(source, 2, 32, [], cluster=2)
    refused("more than the kernel's 2 CTAs", lambda: emulator.run(source, 4, 32, [], cluster=4))


def test_the_largest_sizes_are_accepted():
    emulator.run(NOTHING, 1, (1, 16, 64), [])
    emulator.run(NOTHING, (1, 65535), 1, [], checks=False)


def test_stacks_of_recursive_kernels():
    refused("stack_bytes: -100", lambda: emulator.run(RECURSIVE, 1, 1, [np.zeros(1, "i4")],
                                                      stack_bytes=-100))  # fmt: skip


# Sources


@pytest.mark.parametrize("name", ["b.ptx", "b.cu", "d.cu"])
def test_files_that_are_no_text(tmp_path, name):
    (tmp_path / "b.ptx").write_bytes(b"\x7fELF\x00\xff\xfe\x80")
    (tmp_path / "b.cu").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "d.cu").mkdir()
    message = "cannot be read: Is a directory" if name == "d.cu" else "is no UTF-8 text (a binary?)"
    refused(f"{name} {message}", lambda: scale(tmp_path / name))
    refused(f"{name} {message}", lambda: scale(str(tmp_path / name)))


def test_empty_files_and_trailing_zeros(tmp_path):
    (tmp_path / "empty.cu").touch()
    refused("empty.cu: the text is empty", lambda: scale(tmp_path / "empty.cu"))
    emulator.run(f"{NOTHING}\0", 1, 1, [])
    (tmp_path / "bom.ptx").write_text(NOTHING, encoding="utf-8-sig")
    emulator.run(tmp_path / "bom.ptx", 1, 1, [])


def test_options_are_for_cuda_sources():
    refused("options: ('-DN=1',) are for NVRTC, but the source is PTX",
            lambda: emulator.run(NOTHING, 1, 1, [], options=["-DN=1"]))  # fmt: skip


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"options": ["--nope"]}, "options: ['--nope'] is refused by NVRTC: error: unrecognized"),
        ({"options": ["-D"]}, "options: ['-D'] is refused by NVRTC: invalid macro definition"),
        ({"options": ["-D\udc80"]}, "options: '-D\\udc80' is no valid text"),
        ({"arch": "sm_10"}, "arch: this NVRTC does not compile for sm_10; accepted: sm_"),
        ({"arch": "sm_75a"}, "arch: sm_75a is refused by NVRTC"),
        ({"source": "__global__ void k() {}  // \udc80"}, "is no valid text"),
    ],
)
def test_what_nvrtc_refuses(change, message):
    refused(message, lambda: scale(**change), CompileError)


def test_compile_errors_begin_with_a_summary():
    with pytest.raises(CompileError) as caught:
        emulator.run("__global__ void k() { x = 1; y = 2; }", 1, 1, [])
    first = str(caught.value).splitlines()[0]
    assert first == ('kernel.cu: NVRTC rejected the source: kernel.cu(1): error: identifier "x" is '
                     "undefined (and 1 more)")  # fmt: skip


def test_missing_headers_name_the_extra(monkeypatch):
    monkeypatch.setattr(nvrtc, "_toolkit_includes", lambda: ())
    source = "#include <cuda_fp16.h>\n__global__ void k() {}  // without headers"
    with pytest.raises(CompileError, match=r'headers come with: pip install "gpukit\[emulator\]"'):
        emulator.run(source, 1, 1, [])


@pytest.mark.parametrize(
    "header, hint",
    [
        ("cstdio", "printf, assert, malloc and math need no header"),
        ("assert.h", "printf, assert, malloc and math need no header"),
        ("stdint.h", "take <cuda/std/cstdint>$"),
        ("type_traits", "take <cuda/std/type_traits>$"),
        ("mine.h", 'open source file "mine.h"$'),
    ],
)
def test_headers_of_the_host_name_what_there_is_instead(header, hint):
    with pytest.raises(CompileError) as caught:
        emulator.run(f"#include <{header}>\n__global__ void k() {{}}", 1, 1, [])
    assert re.search(hint, str(caught.value).splitlines()[0])


def test_what_needs_no_header_compiles():
    y = np.zeros(2, "f4")
    result = emulator.run(
        """extern "C" __global__ void k(float* y) {
          y[0] = sqrtf(4); memset(y + 1, 0, 4); assert(y[1] == 0); printf("%g", y[0]); }""",
        1, 1, [y],
    )  # fmt: skip
    assert y.tolist() == [2, 0] and "".join(result.output) == "2"


def test_a_missing_library_is_one_line(monkeypatch):
    def broken():
        raise RuntimeError("Failure finding libnvrtc:\n" + "  searched /usr/lib\n" * 50)

    monkeypatch.setattr("cuda.bindings.nvrtc.nvrtcVersion", broken)
    nvrtc._compile.cache_clear()
    with pytest.raises(CompileError) as caught:
        emulator.run(SOURCE, 1, 1, [])
    assert str(caught.value).endswith('install it with: pip install "gpukit[emulator]"')
    assert len(str(caught.value).splitlines()) == 1
    assert len(str(caught.value)) < 200
