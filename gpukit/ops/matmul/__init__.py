"""Matrix multiplication: one function that picks a kernel, and the ladder of kernels that teach."""

from __future__ import annotations

from gpukit.ops.matmul.api import matmul
from gpukit.ops.matmul.choose import choose
from gpukit.ops.matmul.configs import Config, Gemm, Ladder, Narrow, Sgemm, Tcgen05, Vector
from gpukit.ops.matmul.problem import Problem

__all__ = ["Config", "Gemm", "Ladder", "Narrow", "Problem", "Sgemm", "Tcgen05", "Vector", "choose",
           "matmul"]
