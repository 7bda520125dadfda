"""libcublasLt through ctypes: the candidates its heuristic proposes for one product.

Everything is column-major here, as in the library. Enumerator values and sizes are those of
cublasLt.h; attributes are set by value, so each has its C type.
"""

from __future__ import annotations

import ctypes
import weakref
from ctypes import (
    Structure,
    byref,
    c_float,
    c_int,
    c_int8,
    c_int32,
    c_int64,
    c_size_t,
    c_uint32,
    c_uint64,
    c_void_p,
)
from dataclasses import dataclass
from functools import cache
from typing import Any

from gpukit.bench.families.cublas import COMPUTE_32F, R_32F, ColumnMajor, check, library

#: Candidates to ask for, and the memory they may use.
MOST_CANDIDATES = 16
WORKSPACE_BYTES = 64 << 20

# cublasLtMatmulDescAttributes_t
_TRANSA, _TRANSB, _EPILOGUE, _BIAS_POINTER = 3, 4, 7, 8
_A_SCALE_POINTER, _B_SCALE_POINTER, _FAST_ACCUM = 17, 18, 25
_A_SCALE_MODE, _B_SCALE_MODE = 31, 32
_EPILOGUE_BIAS = 4
#: cublasLtMatmulMatrixScale_t: one f32; one for each row of op(first) or column of op(second);
#: one for each 128 elements along K; one for each 128 x 128.
SCALAR, OUTER_VEC, VEC128, BLK128X128 = 0, 3, 4, 5
# cublasLtMatmulPreferenceAttributes_t
_MAX_WORKSPACE_BYTES = 1

_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "cublasLtCreate": (c_void_p,),
    "cublasLtMatmulDescCreate": (c_void_p, c_int, c_int),
    "cublasLtMatmulDescSetAttribute": (c_void_p, c_int, c_void_p, c_size_t),
    "cublasLtMatrixLayoutCreate": (c_void_p, c_int, c_uint64, c_uint64, c_int64),
    "cublasLtMatmulPreferenceCreate": (c_void_p,),
    "cublasLtMatmulPreferenceSetAttribute": (c_void_p, c_int, c_void_p, c_size_t),
    "cublasLtMatmulAlgoGetHeuristic": (*(c_void_p,) * 7, c_int, c_void_p, c_void_p),
    "cublasLtMatmul": (*(c_void_p,) * 14, c_size_t, c_void_p),
    "cublasLtMatmulDescDestroy": (c_void_p,),
    "cublasLtMatrixLayoutDestroy": (c_void_p,),
    "cublasLtMatmulPreferenceDestroy": (c_void_p,),
}


class Candidate(Structure):
    """cublasLtMatmulHeuristicResult_t; ``algo`` is cublasLtMatmulAlgo_t."""

    _fields_ = (
        ("algo", c_uint64 * 8), ("workspace_bytes", c_size_t), ("state", c_int),
        ("waves", c_float), ("reserved", c_int * 4),
    )  # fmt: skip


@dataclass(frozen=True)
class Extras:
    """What a product may have beyond op(A) op(B): device pointers, 0 where there is none.

    ``first_scale`` and ``second_scale`` point to f32s (fp8 operands), as many as their modes say;
    ``bias`` to a vector of D's type with one element for each row of D; ``fast_accumulation`` is
    fp8's.
    """

    first_scale: int = 0
    second_scale: int = 0
    bias: int = 0
    fast_accumulation: bool = False
    first_mode: int = SCALAR
    second_mode: int = SCALAR

    def attributes(self) -> list[tuple[int, Any]]:
        """Attributes of the matmul descriptor and their values."""
        set_: list[tuple[int, Any]] = []
        if self.first_scale:
            set_.append((_A_SCALE_POINTER, c_void_p(self.first_scale)))
        if self.second_scale:
            set_.append((_B_SCALE_POINTER, c_void_p(self.second_scale)))
        modes = (_A_SCALE_MODE, self.first_mode), (_B_SCALE_MODE, self.second_mode)
        set_ += [(attribute, c_int32(mode)) for attribute, mode in modes if mode != SCALAR]
        if self.bias:
            set_ += [(_EPILOGUE, c_uint32(_EPILOGUE_BIAS)), (_BIAS_POINTER, c_void_p(self.bias))]
        if self.fast_accumulation:
            set_.append((_FAST_ACCUM, c_int8(1)))
        return set_


class CublasLt:
    """A handle of the library."""

    def __init__(self, functions: Any) -> None:
        self._functions = functions
        for name, arguments in _FUNCTIONS.items():
            getattr(functions, name).argtypes = arguments
        self.handle = self._created("cublasLtCreate")

    @property
    def version(self) -> int:
        """The library's: 130100 for 13.1.0."""
        self._functions.cublasLtGetVersion.restype = c_size_t
        return int(self._functions.cublasLtGetVersion())

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function by name; a bad status is an error that says which."""
        check(getattr(self._functions, name)(*arguments), name)

    def _created(self, name: str, *arguments: Any) -> c_void_p:
        made = c_void_p()
        self.call(name, byref(made), *arguments)
        return made

    def owned(self, owner: object, kind: str, *arguments: Any) -> c_void_p:
        """Create a ``kind`` that is destroyed with its owner."""
        made = self._created(f"{kind}Create", *arguments)
        destroy = getattr(self._functions, f"{kind}Destroy")
        weakref.finalize(owner, destroy, made).atexit = False  # the process takes it along
        return made

    def assign(self, kind: str, target: c_void_p, attribute: int, value: Any) -> None:
        """Set one attribute to a ctypes value."""
        self.call(f"{kind}SetAttribute", target, attribute, byref(value), ctypes.sizeof(value))


class Product:
    """One product; ``types`` are the cudaDataType_t of the operands and of D."""

    def __init__(self, lt: CublasLt, form: ColumnMajor, types: tuple[int, int],
                 extras: Extras | None = None, compute: int = COMPUTE_32F) -> None:
        self._lt = lt
        operand, result = types
        self._desc = lt.owned(self, "cublasLtMatmulDesc", compute, R_32F)
        for attribute, value in (
            (_TRANSA, c_int32(form.first_op)), (_TRANSB, c_int32(form.second_op)),
            *(extras or Extras()).attributes(),
        ):
            lt.assign("cublasLtMatmulDesc", self._desc, attribute, value)
        self._first = self._layout(operand, *form.first_stored)
        self._second = self._layout(operand, *form.second_stored)
        self._out = self._layout(result, form.n, form.m)

    def _layout(self, kind: int, rows: int, columns: int) -> c_void_p:
        """Dense, column after column."""
        return self._lt.owned(self, "cublasLtMatrixLayout", kind, rows, columns, rows)

    def candidates(self, most: int = MOST_CANDIDATES,
                   workspace_bytes: int = WORKSPACE_BYTES) -> list[Candidate]:
        """What the heuristic proposes, best guess first."""
        lt = self._lt
        preference = lt.owned(self, "cublasLtMatmulPreference")
        lt.assign("cublasLtMatmulPreference", preference, _MAX_WORKSPACE_BYTES,
                  c_uint64(workspace_bytes))
        found, count = (Candidate * most)(), c_int(0)
        lt.call("cublasLtMatmulAlgoGetHeuristic", lt.handle, self._desc, self._first, self._second,
                self._out, self._out, preference, most, found, byref(count))
        return [one for one in found[:count.value] if one.state == 0]

    def run(self, candidate: Candidate, pointers: tuple[int, int, int], workspace: int,
            stream: int) -> None:
        """Enqueue it; ``pointers`` are those of first, second and D."""
        first, second, out = pointers
        one, zero = c_float(1), c_float(0)
        self._lt.call(
            "cublasLtMatmul", self._lt.handle, self._desc, byref(one), first, self._first, second,
            self._second, byref(zero), out, self._out, out, self._out, byref(candidate),
            workspace, candidate.workspace_bytes, stream)


@cache
def handle() -> CublasLt:
    """The handle of this process, which benchmarks one device."""
    return CublasLt(library("cublasLt"))
