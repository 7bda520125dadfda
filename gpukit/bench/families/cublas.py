"""libcublas through ctypes: just enough for one product with the library's own heuristic.

CuPy's binding would refuse to run within a CUDA graph capture and hides which workspace is used.
Enumerator values are those of cublas_api.h and library_types.h.
"""

from __future__ import annotations

import ctypes
from ctypes import c_size_t, c_void_p
from dataclasses import dataclass
from functools import cache
from typing import Any

from gpukit.errors import LaunchError, UnsupportedError

#: cudaDataType_t by gpukit's dtype names; tf32 is a way to multiply f32.
DATA_TYPES = {"f32": 0, "tf32": 0, "f16": 2, "bf16": 14, "e4m3": 28, "e5m2": 29}
R_32F = DATA_TYPES["f32"]
#: cublasComputeType_t: products accumulate in f32; f32 operands are rounded to TF32 by the second.
COMPUTE_32F, COMPUTE_TF32 = 68, 77
#: cublasOperation_t.
OP_N, OP_T = 0, 1

_GEMM_DEFAULT = -1
_STATUS = {
    1: "NOT_INITIALIZED", 3: "ALLOC_FAILED", 7: "INVALID_VALUE", 8: "ARCH_MISMATCH",
    11: "MAPPING_ERROR", 13: "EXECUTION_FAILED", 14: "INTERNAL_ERROR", 15: "NOT_SUPPORTED",
    16: "LICENSE_ERROR",
}  # fmt: skip
_REFUSALS = (7, 8, 15)
#: What cuBLAS gives its own handles on Hopper and later.
WORKSPACE_BYTES = 32 << 20


@dataclass(frozen=True)
class ColumnMajor:
    """C = A B as the column-major D = op(first) op(second) that these libraries compute.

    D is C transposed: ``rows`` = N, ``columns`` = M, ``depth`` = K; first is B and second is A.
    """

    m: int
    n: int
    k: int
    layout: str

    @property
    def first_op(self) -> int:
        """A B stored [N, K] is, read column by column, B itself: it must be transposed."""
        return OP_T if self.layout[1] == "t" else OP_N

    @property
    def second_op(self) -> int:
        """The same of A."""
        return OP_T if self.layout[0] == "t" else OP_N

    @property
    def first_stored(self) -> tuple[int, int]:
        """Rows and columns of first in memory."""
        return (self.k, self.n) if self.first_op == OP_T else (self.n, self.k)

    @property
    def second_stored(self) -> tuple[int, int]:
        """Rows and columns of second in memory."""
        return (self.m, self.k) if self.second_op == OP_T else (self.k, self.m)


def check(status: int, call: str) -> None:
    """Raise UnsupportedError for what the library does not do, LaunchError for a failure."""
    if status:
        name = f"CUBLAS_STATUS_{_STATUS.get(status, status)}"
        kind = UnsupportedError if status in _REFUSALS else LaunchError
        raise kind(f"{call} returned {name}")


@cache
def library(name: str) -> Any:
    """``cublas`` or ``cublasLt``, from the nvidia-cublas wheel, a toolkit or wherever the loader
    finds it.

    Raises:
        UnsupportedError: it is nowhere.
    """
    for path in (_located(name), f"lib{name}.so.13", f"lib{name}.so.12"):
        if path is not None:
            try:
                return ctypes.CDLL(path)
            except OSError:
                continue
    raise UnsupportedError(f"lib{name} was not found; the wheel nvidia-cublas has it")


def _located(name: str) -> str | None:
    """The path that cuda-pathfinder, which comes with CuPy, finds; it also loads dependencies."""
    try:
        from cuda import pathfinder

        path: str | None = pathfinder.load_nvidia_dynamic_lib(name).abs_path
    except (ImportError, RuntimeError):
        return None
    return path


class Cublas:
    """A handle with a workspace of its own: then launches can be captured in a graph.

    ``workspace`` is a device array.
    """

    def __init__(self, functions: Any, workspace: Any) -> None:
        self._functions = functions
        self._workspace = workspace
        self._handle = c_void_p()
        self._stream: int | None = None
        check(functions.cublasCreate_v2(ctypes.byref(self._handle)), "cublasCreate")

    def use(self, stream: int) -> None:
        """Launch on this stream from now on; the library forgets the workspace with the old one."""
        if stream == self._stream:
            return
        functions, memory = self._functions, self._workspace
        check(functions.cublasSetStream_v2(self._handle, c_void_p(stream)), "cublasSetStream")
        status = functions.cublasSetWorkspace_v2(
            self._handle, c_void_p(memory.data.ptr), c_size_t(memory.nbytes))
        check(status, "cublasSetWorkspace")
        self._stream = stream

    def gemm(self, form: ColumnMajor, types: tuple[int, int], pointers: tuple[int, int, int],
             compute: int = COMPUTE_32F) -> None:
        """Enqueue one product with the algorithm that the library's heuristic takes.

        ``types`` are the cudaDataType_t of the operands and of D, ``pointers`` those of first,
        second and D.
        """
        one, zero = ctypes.c_float(1), ctypes.c_float(0)
        first, second, out = map(c_void_p, pointers)
        operand, result = types
        status = self._functions.cublasGemmEx(
            self._handle, form.first_op, form.second_op, form.n, form.m, form.k,
            ctypes.byref(one), first, operand, form.first_stored[0],
            second, operand, form.second_stored[0],
            ctypes.byref(zero), out, result, form.n, compute, _GEMM_DEFAULT)
        check(status, "cublasGemmEx")


@cache
def handle() -> Cublas:
    """The handle of this process, which benchmarks one device."""
    import cupy

    return Cublas(library("cublas"), cupy.empty(WORKSPACE_BYTES, "u1"))
