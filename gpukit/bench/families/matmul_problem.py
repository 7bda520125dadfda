"""What a peer of the matmul family is given: one problem and its buffers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gpukit.bench.families.cublas import COMPUTE_32F, COMPUTE_TF32, DATA_TYPES, ColumnMajor
from gpukit.bench.families.matmul_scales import Scales
from gpukit.bench.families.matmul_types import KINDS, Kind
from gpukit.bench.families.tuning import Contest
from gpukit.errors import UnsupportedError


@dataclass(frozen=True)
class Problem:
    """C = A B on the buffers that ours uses; one entry of ``a``, ``b`` and ``out`` a buffer set.

    ``a`` is [M, K] and ``b`` [K, N] whatever the ``layout``, which says how they are stored;
    ``out`` is [M, N], row-major. ``contest`` is where variants of a peer compete. 8-bit operands
    have ``scales``, and are summed by the tensor cores alone where ``fast``.
    """

    shape: tuple[int, int, int]
    dtype: str
    out_dtype: str
    layout: str
    a: Sequence[Any]
    b: Sequence[Any]
    out: Sequence[Any]
    contest: Contest
    scales: Sequence[Scales] = ()
    fast: bool = False

    @property
    def kind(self) -> Kind:
        """What the dtype stands for."""
        return KINDS[self.dtype]

    @property
    def mode(self) -> str:
        """Of the scales: one of `matmul_scales.MODES`."""
        return self.scales[0].mode if self.scales else "none"

    @property
    def column_major(self) -> ColumnMajor:
        """The problem as cuBLAS sees it."""
        return ColumnMajor(*self.shape, layout=self.layout)

    @property
    def types(self) -> tuple[int, int]:
        """cudaDataType_t of the operands and of C."""
        return DATA_TYPES[self.dtype], DATA_TYPES[self.out_dtype]

    @property
    def compute(self) -> int:
        """cublasComputeType_t."""
        return COMPUTE_TF32 if self.dtype == "tf32" else COMPUTE_32F

    def pointers(self) -> list[tuple[int, int, int]]:
        """Device addresses of B, A and C of each buffer set: first, second and D of cuBLAS."""
        address = self.contest.device.pointer
        return [(address(b), address(a), address(out))
                for a, b, out in zip(self.a, self.b, self.out, strict=True)]

    def require(self, holds: bool, needed: str) -> None:
        """Leave a peer out that does not do such problems."""
        if not holds:
            raise UnsupportedError(f"it needs {needed}")
