"""cuBLAS with its default heuristic: what `cupy.matmul` and most programs get."""

from __future__ import annotations

from gpukit.bench.families import cublas
from gpukit.bench.families.buffers import Launch, stream_pointer
from gpukit.bench.families.matmul_problem import Problem


def make(problem: Problem) -> Launch:
    """bf16 and f16 accumulate in f32; f32 is not rounded to TF32 unless that is the dtype."""
    problem.require(not problem.kind.eight_bit, "operands of 16 bits or more, cublasGemmEx has no "
                    "8-bit floats")
    handle, form, types = cublas.handle(), problem.column_major, problem.types
    pointers, compute = problem.pointers(), problem.compute

    def launch(slot: int) -> None:
        handle.use(stream_pointer())
        handle.gemm(form, types, pointers[slot], compute)

    return launch
