"""PyTorch's matmul: cuBLAS or cuBLASLt, as PyTorch decides, into the same output."""

from __future__ import annotations

from gpukit.bench.families.buffers import Launch, as_torch, torch_stream
from gpukit.bench.families.matmul_problem import Problem


def make(problem: Problem) -> Launch:
    """torch.matmul(a, b, out=out) on CuPy's stream."""
    import torch

    a, b, out = ([as_torch(x) for x in xs] for xs in (problem.a, problem.b, problem.out))

    def launch(slot: int) -> None:
        with torch_stream():
            torch.matmul(a[slot], b[slot], out=out[slot])

    return launch
