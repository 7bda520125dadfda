"""DeepGEMM's bf16 kernel and its fp8 one with block scales, compiled by the package itself."""

from __future__ import annotations

import importlib
from typing import Any

from gpukit.bench.families.buffers import Launch, as_torch, torch_stream
from gpukit.bench.families.matmul_problem import Problem
from gpukit.errors import UnsupportedError


def make(problem: Problem) -> Launch:
    """bf16_gemm_nt or fp8_gemm_nt: A [M, K] and B [N, K], both as stored."""
    if problem.kind.eight_bit:
        problem.require(problem.dtype == "e4m3" and problem.mode == "block",
                        "e4m3 with block scales, of 8-bit operands")
        problem.require(problem.out_dtype in ("bf16", "f32"), "a result of bf16 or f32")
    else:
        problem.require(problem.dtype == problem.out_dtype == "bf16", "bf16 operands and result")
    problem.require(problem.layout == "nt", "layout nt")
    return _scaled(problem) if problem.kind.eight_bit else _plain(problem)


def _plain(problem: Problem) -> Launch:
    deep_gemm = _package()
    a, out = ([as_torch(x) for x in xs] for xs in (problem.a, problem.out))
    b = [as_torch(x.T) for x in problem.b]

    def launch(slot: int) -> None:
        with torch_stream():
            deep_gemm.bf16_gemm_nt(a[slot], b[slot], out[slot])

    return launch


def _scaled(problem: Problem) -> Launch:
    deep_gemm, held = _package(), problem.kind.stored.value_dtype
    a = [as_torch(x, held) for x in problem.a]
    b = [as_torch(x.T, held) for x in problem.b]
    out = [as_torch(x) for x in problem.out]
    with torch_stream():
        scales = [(_aligned(deep_gemm, as_torch(one.a)), as_torch(one.b.T).contiguous())
                  for one in problem.scales]

    def launch(slot: int) -> None:
        scale_a, scale_b = scales[slot]
        with torch_stream():
            deep_gemm.fp8_gemm_nt((a[slot], scale_a), (b[slot], scale_b), out[slot])

    return launch


def _aligned(deep_gemm: Any, scale_a: Any) -> Any:
    """A's scales as the kernel reads them: no launch has to copy them."""
    import torch

    aligned = deep_gemm.get_mn_major_tma_aligned_tensor(scale_a)
    return aligned if isinstance(aligned, torch.Tensor) else torch.from_dlpack(aligned)


def _package() -> Any:
    try:
        return importlib.import_module("deep_gemm")
    except ImportError as absence:
        raise UnsupportedError(f"deep_gemm cannot be imported ({absence}); pip install "
                               "sgl-deep-gemm beside torch") from absence
