"""What a peer of the matmul family is given: one problem and its buffers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gpukit.bench.families.cublas import DATA_TYPES, ColumnMajor
from gpukit.bench.families.tuning import Contest
from gpukit.errors import UnsupportedError


@dataclass(frozen=True)
class Problem:
    """C = A B on the buffers that ours uses; one entry of ``a``, ``b`` and ``out`` a buffer set.

    ``a`` is [M, K] and ``b`` [K, N] whatever the ``layout``, which says how they are stored;
    ``out`` is [M, N], row-major. ``contest`` is where variants of a peer compete.
    """

    shape: tuple[int, int, int]
    dtype: str
    out_dtype: str
    layout: str
    a: Sequence[Any]
    b: Sequence[Any]
    out: Sequence[Any]
    contest: Contest

    @property
    def column_major(self) -> ColumnMajor:
        """The problem as cuBLAS sees it."""
        return ColumnMajor(*self.shape, layout=self.layout)

    @property
    def types(self) -> tuple[int, int]:
        """cudaDataType_t of the operands and of C."""
        return DATA_TYPES[self.dtype], DATA_TYPES[self.out_dtype]

    def pointers(self) -> list[tuple[int, int, int]]:
        """Device addresses of B, A and C of each buffer set: first, second and D of cuBLAS."""
        address = self.contest.device.pointer
        return [(address(b), address(a), address(out))
                for a, b, out in zip(self.a, self.b, self.out, strict=True)]

    def require(self, holds: bool, needed: str) -> None:
        """Leave a peer out that does not do such problems."""
        if not holds:
            raise UnsupportedError(f"it needs {needed}")
