"""The peers of the matmul family: name to module, each imported when it is asked for.

cublas     cublasGemmEx with the library's default heuristic
cublaslt   the fastest of the algorithms that cuBLASLt proposes, tuned on each case
torch      torch.matmul, torch._scaled_mm for 8-bit operands
triton     a persistent TMA matmul of our own in Triton, tuned on each case
deepgemm   DeepGEMM's bf16_gemm_nt, its fp8_gemm_nt for e4m3 with block scales
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import cast

from gpukit.bench.families.buffers import Launch
from gpukit.bench.families.matmul_problem import Problem

PEERS = ("cublas", "cublaslt", "torch", "triton", "deepgemm")


def maker(name: str) -> Callable[[Problem], Launch]:
    """The function that turns a problem into the peer's launch.

    It raises whatever keeps the peer from it; an absent package is an ImportError.
    """
    module = importlib.import_module(f"gpukit.bench.families.matmul_peer_{name}")
    return cast("Callable[[Problem], Launch]", module.make)
