"""Bad kernel arguments, tensor maps and initialisers: one line, and a process that goes on."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from emulator_kernels import HEADER, ptx_kernel
from refusals import refused, scale

from gpukit import emulator
from gpukit.emulator import EmulatorError, GlobalMemory, LaunchError, TensorMap, Trace
from gpukit.emulator import Uninitialized as Fresh
from gpukit.emulator.errors import PtxSyntaxError


def y():
    return np.ones(4, "f4")


POINTER = "the parameter is no pointer (int, .u32), accepted: a scalar such as np.uint32(5)"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([y(), np.float32(3), np.float32(4)],
         "args[2] of scale: np.float32(4.0) was given; the parameter is int, .u32, accepted: an i"),
        ([y(), np.int32(3), np.int32(4)],
         "args[1] of scale: np.int32(3) was given; the parameter is float, .f32, accepted: a floa"),
        ([np.float64(0), 3.0, 4], "the parameter is float*, .u64, accepted: an integer of 64 bits"),
        ([np.complex64(0), 3.0, 4], "the parameter is float*, .u64, accepted: an integer"),
        ([y(), 3.0, np.str_("a")], "args[2] of scale: np.str_('a') was given"),
        ([y(), 3.0, 4.0], "args[2] of scale: float cannot be passed as int, .u32; pass an integer"),
        ([y(), 3, 4], "args[1] of scale: int cannot be passed as float, .f32; pass a float"),
        ([y(), 1e300, 4], "args[1] of scale: 1e+300 does not fit into .f32"),
        ([y(), 3.0, None], "args[2] of scale: a null pointer (None) has 8 bytes, the parameter 4"),
        ([y(), 3.0, np.array(4, "i4")], POINTER),
        ([y(), 3.0, np.zeros(4, "i4")], POINTER),
        (
            [y(), y(), 4],
            "the parameter is no pointer (float, .f32), accepted: a scalar such as np.float32(5)",
        ),
        ([y(), 3.0, 4j], "args[2] of scale: complex cannot be passed as int, .u32; pass a NumPy"),
        ([y(), 3.0, b"abc"], "args[2] of scale: bytes has 3 bytes, the parameter 4 (int, .u32)"),
        ([[1.0], 3.0, 4], "args[0] of scale: list cannot be passed as float*, .u64"),
        ([np.ones(4), 3.0, 4], "args[0] of scale: an array of float64 was given; the parameter is "
         "float*, accepted: float32 (or the array's bytes, .view(np.uint8))"),
        ([np.ones(4, "i4"), 3.0, 4], "an array of int32 was given; the parameter is float*"),
        ([Fresh(np.ones(4)), 3.0, 4], "an array of float64 was given; the parameter is float*"),
        ([Fresh(None), 3.0, 4], "args[0] of scale: None was given; accepted: a NumPy array"),
        ([Fresh([1]), 3.0, 4], "args[0] of scale: [1] was given; accepted: a NumPy array"),
        ([np.ma.ones(4, "f4"), 3.0, 4], "accepted: a NumPy array, not masked"),
        ([np.array(["a"]), 3.0, 4], "dtype <U1 cannot live in device memory"),
        ([np.ones(4, ">f4"), 3.0, 4], "dtype >f4 cannot live in device memory"),
        ([np.zeros(4, "M8[s]"), 3.0, 4], "dtype datetime64[s] cannot live in device memory"),
        ([y()[::-1], 3.0, 4], "args[0] of scale: the array is not contiguous"),
        ([TensorMap(y().reshape(1, 4), (4, 1)), 3.0, 4], "TensorMap has 128 bytes, the parame"),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, str) else "",
)  # fmt: skip
def test_kernel_arguments(args, message):
    refused(message, lambda: scale(args=args))


def test_bytes_and_subclasses_of_arrays_are_passed_as_they_are():
    array = np.array([1, 2, 3, 4], "f4").view(Subclass)
    scale(args=[array, 3.0, 4])
    assert array.tolist() == [3, 6, 9, 12]
    array = np.ones(4, "f4")
    scale(args=[array.view(np.uint8), np.float32(2).tobytes(), np.uint32(4).tobytes()])
    assert array.tolist() == [2] * 4


class Subclass(np.ndarray):
    """A subclass that adds nothing."""


@pytest.mark.parametrize(
    ("c_type", "good", "bad"),
    [
        ("const double*", "f8", "f4"),
        ("int* __restrict__", "u4", "i8"),
        ("unsigned long long*", "i8", "f8"),
        ("short*", "u2", "f2"),
        ("bool*", "?", "f4"),
        ("float[]", "f4", "f8"),
        ("signed char*", "i1", "i2"),
    ],
)
def test_elements_of_pointers(c_type, good, bad):
    text, brackets = c_type.removesuffix("[]"), "[]" if c_type.endswith("[]") else ""
    for source in (f"__global__ void k({text} p{brackets}) {{}}",
                   f'extern "C" __global__ void k({text} p{brackets}) {{}}'):  # fmt: skip
        for dtype in (good, "u1", "f4,i2"):
            emulator.run(source, 1, 1, [np.zeros(8, dtype)])
        with pytest.raises(LaunchError, match=f"an array of {np.dtype(bad)} was given"):
            emulator.run(source, 1, 1, [np.zeros(8, bad)])


def test_narrow_floats_may_be_carried_by_integers():
    source = """#include <cuda_bf16.h>
    extern "C" __global__ void k(const __nv_bfloat16* p) {}"""
    for dtype in (ml_dtypes.bfloat16, np.uint16, np.int16):
        emulator.run(source, 1, 1, [np.zeros(4, dtype)])
    refused("an array of float16 was given; the parameter is __nv_bfloat16*, accepted: bfloat16",
            lambda: emulator.run(source, 1, 1, [np.zeros(4, "f2")]))  # fmt: skip


@pytest.mark.parametrize("c_type", ["void*", "const char*", "float4*", "thing*", "unsigned char*"])
def test_other_pointers_take_any_array(c_type):
    source = f'struct thing {{}}; extern "C" __global__ void k({c_type} p) {{}}'
    emulator.run(source, 1, 1, [np.zeros(4)])


def test_untyped_parameters_of_ptx_take_any_scalar():
    source = ptx_kernel("ret;", params=".param .b32 a, .param .u64 b")
    for value in (np.int32(1), np.float32(1)):
        emulator.run(source, 1, 1, [value, np.ones(3)])
    refused("np.float64(1.0) was given; the parameter is .u64, accepted: an integer of 64 bits",
            lambda: emulator.run(source, 1, 1, [np.int32(1), np.float64(1)]))  # fmt: skip


def test_arrays_for_long_integers_are_seen_where_the_source_says_so():
    source = 'extern "C" __global__ void k(long long n) {}'
    refused("the parameter is no pointer (long long, .u64)",
            lambda: emulator.run(source, 1, 1, [np.zeros(4, "i8")]))  # fmt: skip


# Tensor maps, memory, traces

A = np.ones((16, 16), "f4")
MAP = ptx_kernel("ret;", params=".param .align 64 .b8 m[128]")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((None, (4, 4)), "TensorMap: None was given; accepted: a NumPy array"),
        (([1], (4,)), "TensorMap: [1] was given; accepted: a NumPy array"),
        ((A, 5), "box_dim: 5 was given; accepted: a list or tuple of integers"),
        ((A, "ab"), "box_dim: 'ab' was given"),
        ((A, (4.5, 4)), "box_dim: (4.5, 4) was given; accepted: integers only"),
        ((A, (4, 4), 5), "data_type: 5 is unknown; accepted: uint8"),
        ((A, (4, 4), ["uint8"]), "data_type: ['uint8'] is unknown"),
        ((A, (4, 4), None, (16.0, 16)), "global_dim: (16.0, 16) was given"),
        ((A, (4, 4), None, None, (64.0,)), "global_strides: (64.0,) was given"),
        ((A, (4, 4), None, None, 5), "global_strides: 5 was given"),
        ((A, (4, 4), None, None, None, (1.5, 1)), "element_strides: (1.5, 1) was given"),
        ((A, (4, 4), None, None, None, None, {}), "interleave: {} is unknown"),
        ((A, (4, 4), None, None, None, None, "none", []), "swizzle: [] is unknown"),
        ((A[:, ::2], (4, 4), None, (8, 16), (64,)), "the array is not contiguous"),
    ],
    ids=lambda value: value[:30] if isinstance(value, str) else "",
)
def test_tensor_maps(arguments, message):
    call = TensorMap(*arguments)
    refused(message, lambda: emulator.run(MAP, 1, 1, [call]))
    refused("args[0] of k: ", lambda: emulator.run(MAP, 1, 1, [call]))


@pytest.mark.parametrize("array", [5, None, [1.0], A[:, ::2], A.astype(object)], ids=type)
def test_what_memory_maps(array):
    refused("x: ", lambda: GlobalMemory().map(array, "x"))


def test_traces():
    refused("limit: 'a' was given", lambda: Trace(limit="a"))
    refused("folders: 'abc' was given", lambda: Trace(folders="abc"))
    refused("folders: 5 was given", lambda: Trace(folders=5))
    Trace(folders=[Path(), "."])


def test_loading_ptx():
    refused("ptx: 5 was given; accepted: the text of PTX", lambda: emulator.load(5))
    refused("kernel: ['k'] was given", lambda: emulator.load(MAP, ["k"]))


# Initialisers

DECLARED = ".extern .func (.param .b32 r) nope (.param .b32 a);\n"


@pytest.mark.parametrize(
    ("declarations", "message"),
    [
        (DECLARED + ".global .u64 t[2] = {0,\n nope};",
         "t: initialiser in PTX line 5: t[2] = {0, nope}: function nope is declared but not def"),
        (".global .u64 t[1] = {nothing};", "t: initialiser in PTX line 4: t[1] = {nothing}: noth"),
        (".global .u64 t[1] = {k};", "t[1] = {k}: function k is a kernel: its address is not supp"),
        (".global .u8 t[8] = {mask(0xff, x)};", "PTX line 4: initialiser mask(0xff, x) is not sup"),
    ],
)  # fmt: skip
def test_initialisers_that_are_not_supported(declarations, message):
    source = f"{HEADER}{declarations}\n.visible .entry k() {{ ret; }}\n"
    refused(message, lambda: emulator.run(source, 1, 1, []), (LaunchError, PtxSyntaxError))


def test_a_failed_launch_leaves_its_memory_usable():
    memory, array = GlobalMemory(), np.ones(4, "f4")
    for bad in (np.float32(4), None, "x"):
        with pytest.raises(EmulatorError):
            scale(args=[array, 3.0, bad], memory=memory)
    scale(args=[array, 3.0, 4], memory=memory)
    assert array.tolist() == [3] * 4
