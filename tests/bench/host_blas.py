"""cuBLAS and cuBLASLt on the host: the functions the benchmark calls, computed by NumPy.

They read their arguments as the libraries do (column-major matrices at raw addresses, transposes,
leading dimensions), so a wrong mapping of row-major problems gives a wrong product here as well.
"""

from __future__ import annotations

import ctypes
import itertools
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np

NOT_SUPPORTED = 15
_TYPES = {0: np.float32, 2: np.float16}
_LT_TYPES = {**_TYPES, 14: ml_dtypes.bfloat16, 28: ml_dtypes.float8_e4m3fn}
_BLOCK = 128


def address(pointer: Any) -> int:
    """The number in a pointer argument."""
    return int(getattr(pointer, "value", pointer) or 0)


def column_major(pointer: Any, kind: int, rows: int, columns: int, ld: int) -> np.ndarray:
    """A view of host memory."""
    kind = _LT_TYPES[kind]
    size = np.dtype(kind).itemsize * ld * columns
    raw = (ctypes.c_uint8 * size).from_address(address(pointer))
    return np.frombuffer(raw, np.uint8).view(kind).reshape(columns, ld).T[:rows]


def transposed(matrix: np.ndarray, op: int) -> np.ndarray:
    return (matrix.T if op else matrix).astype(np.float32)


def factors(pointer: Any, mode: int, rows: int, k: int) -> np.ndarray:
    """Scales of a [rows, K] operand, as large as it: the layouts of cublasLtMatmulMatrixScale_t."""
    k_blocks = -(-k // _BLOCK)
    if not address(pointer):
        return np.ones((1, 1), np.float32)
    if mode in (0, 3):
        return column_major(pointer, 0, rows if mode else 1, 1, rows if mode else 1)
    if mode == 4:
        return np.repeat(column_major(pointer, 0, rows, k_blocks, rows), _BLOCK, 1)[:, :k]
    assert mode == 5
    blocks = column_major(pointer, 0, k_blocks, -(-rows // _BLOCK), -(-k_blocks // 4) * 4)
    return np.repeat(np.repeat(blocks.T, _BLOCK, 0), _BLOCK, 1)[:rows, :k]


class HostCublas:
    """Records the stream and the workspace; computes at once."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.workspace: tuple[int, int] | None = None

    def cublasCreate_v2(self, handle: Any) -> int:  # noqa: N802
        return 0

    def cublasSetStream_v2(self, handle: Any, stream: Any) -> int:  # noqa: N802
        self.calls.append(f"stream {address(stream)}")
        self.workspace = None  # as the library does
        return 0

    def cublasSetWorkspace_v2(self, handle: Any, pointer: Any, size: Any) -> int:  # noqa: N802
        self.workspace = (address(pointer), size.value)
        return 0

    def cublasGemmEx(  # noqa: N802
        self, handle: Any, op_a: int, op_b: int, m: int, n: int, k: int, alpha: Any, a: Any,
        a_type: int, lda: int, b: Any, b_type: int, ldb: int, beta: Any, c: Any, c_type: int,
        ldc: int, compute: int, algo: int,
    ) -> int:  # fmt: skip
        assert self.workspace is not None and algo == -1
        self.calls.append({68: "gemm", 77: "tf32 gemm"}[compute])
        if a_type not in _TYPES:
            return NOT_SUPPORTED
        first = column_major(a, a_type, *((k, m) if op_a else (m, k)), lda)
        second = column_major(b, b_type, *((n, k) if op_b else (k, n)), ldb)
        column_major(c, c_type, m, n, ldc)[...] = transposed(first, op_a) @ transposed(second, op_b)
        return 0


class _Function:
    """Callable, with room for `argtypes`."""

    def __init__(self, function: Any) -> None:
        self.function = function
        self.argtypes: Any = None

    def __call__(self, *arguments: Any) -> int:
        return self.function(*arguments) or 0


class HostCublasLt:
    """Objects are numbered; candidates are ``proposed``: status by index (0 runs, others fail),
    and ``wrong`` ones add 1 to the product."""

    def __init__(self, proposed: tuple[int, ...] = (0, 0, 0), wrong: tuple[int, ...] = ()) -> None:
        self.proposed, self.wrong = proposed, wrong
        self.objects: dict[int, SimpleNamespace] = {}
        self.destroyed: list[int] = []
        self._numbers = itertools.count(1)
        for kind in ("MatmulDesc", "MatrixLayout", "MatmulPreference"):
            self._define(f"cublasLt{kind}Create", self._create)
            self._define(f"cublasLt{kind}SetAttribute", self._set)
            self._define(f"cublasLt{kind}Destroy", self._destroy)
        self._define("cublasLtCreate", self._create)
        self._define("cublasLtGetVersion", lambda: 130100)
        self._define("cublasLtMatmulAlgoGetHeuristic", self._heuristic)
        self._define("cublasLtMatmul", self._matmul)

    def _define(self, name: str, function: Any) -> None:
        setattr(self, name, _Function(function))

    def _create(self, made: Any, *arguments: Any) -> None:
        number = next(self._numbers)
        made._obj.value = number
        self.objects[number] = SimpleNamespace(arguments=arguments, attributes={})

    def _set(self, target: Any, attribute: int, value: Any, size: int) -> None:
        assert ctypes.sizeof(value._obj) == size
        self.objects[address(target)].attributes[attribute] = (size, value._obj.value)

    def _destroy(self, target: Any) -> None:
        self.destroyed.append(address(target))

    def _heuristic(self, handle: Any, desc: Any, a: Any, b: Any, c: Any, d: Any, preference: Any,
                   most: int, results: Any, count: Any) -> None:
        self.workspace_asked = self.objects[address(preference)].attributes[1]
        for index, state in enumerate(self.proposed[:most]):
            results[index].algo[0], results[index].state = index, state
            results[index].workspace_bytes = 1024 * index
        count._obj.value = min(len(self.proposed), most)

    def _matmul(self, handle: Any, desc: Any, alpha: Any, a: Any, a_layout: Any, b: Any,
                b_layout: Any, beta: Any, c: Any, c_layout: Any, d: Any, d_layout: Any, algo: Any,
                workspace: Any, size: int, stream: Any) -> None:
        given = self.objects[address(desc)].attributes
        ops = [given[name][1] for name in (3, 4)]
        first, second, out = (
            column_major(pointer, *self.objects[address(layout)].arguments)
            for pointer, layout in ((a, a_layout), (b, b_layout), (d, d_layout)))
        index = algo._obj.algo[0]
        assert size == 1024 * index and address(workspace)
        first, second = transposed(first, ops[0]), transposed(second, ops[1])
        scale_a, scale_b = (
            factors(given.get(pointer, (8, 0))[1], given.get(mode, (4, 0))[1], rows, first.shape[1])
            for pointer, mode, rows in ((17, 31, len(first)), (18, 32, second.shape[1])))
        out[...] = (first * scale_a) @ (second * scale_b.T) + (index in self.wrong)
