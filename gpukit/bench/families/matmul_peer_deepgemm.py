"""DeepGEMM's bf16 kernel, compiled for the problem by the package itself."""

from __future__ import annotations

import importlib

from gpukit.bench.families.buffers import Launch, as_torch, torch_stream
from gpukit.bench.families.matmul_problem import Problem
from gpukit.errors import UnsupportedError


def make(problem: Problem) -> Launch:
    """bf16_gemm_nt(a, b, out): A [M, K] and B [N, K], both as stored."""
    problem.require(problem.dtype == problem.out_dtype == "bf16", "bf16 operands and result")
    problem.require(problem.layout == "nt", "layout nt")
    try:
        deep_gemm = importlib.import_module("deep_gemm")
    except ImportError as absence:
        raise UnsupportedError(f"deep_gemm cannot be imported ({absence}); pip install "
                               "sgl-deep-gemm beside torch") from absence
    a, out = ([as_torch(x) for x in xs] for xs in (problem.a, problem.out))
    b = [as_torch(x.T) for x in problem.b]

    def launch(slot: int) -> None:
        with torch_stream():
            deep_gemm.bf16_gemm_nt(a[slot], b[slot], out[slot])

    return launch
