"""cuBLAS with its default heuristic: what `cupy.matmul` and most programs get."""

from __future__ import annotations

from gpukit.bench.families import cublas
from gpukit.bench.families.buffers import Launch, stream_pointer
from gpukit.bench.families.matmul_problem import Problem


def make(problem: Problem) -> Launch:
    """bf16 and f16 accumulate in f32; f32 is not rounded to TF32."""
    handle, form, types = cublas.handle(), problem.column_major, problem.types
    pointers = problem.pointers()

    def launch(slot: int) -> None:
        handle.use(stream_pointer())
        handle.gemm(form, types, pointers[slot])

    return launch
