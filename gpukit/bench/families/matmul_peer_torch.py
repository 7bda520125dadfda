"""PyTorch's matmul: cuBLAS or cuBLASLt, as PyTorch decides, into the same output."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from gpukit.bench.families.buffers import Launch, as_torch, torch_stream
from gpukit.bench.families.matmul_problem import Problem
from gpukit.bench.families.matmul_scales import Scales, dense


def make(problem: Problem) -> Launch:
    """torch.matmul, or torch._scaled_mm for 8-bit operands, on CuPy's stream."""
    return _scaled(problem) if problem.kind.eight_bit else _plain(problem)


def _plain(problem: Problem) -> Launch:
    import torch

    a, b, out = ([as_torch(x) for x in xs] for xs in (problem.a, problem.b, problem.out))
    f32 = problem.kind.stored.name == "f32"

    def launch(slot: int) -> None:
        with torch_stream(), tf32(problem.dtype == "tf32") if f32 else nullcontext():
            torch.matmul(a[slot], b[slot], out=out[slot])

    return launch


@contextmanager
def tf32(allowed: bool) -> Iterator[None]:
    """Whether torch rounds f32 operands to TF32; afterwards it does as before."""
    import torch

    matmul = torch.backends.cuda.matmul
    before, matmul.allow_tf32 = matmul.allow_tf32, allowed
    try:
        yield
    finally:
        matmul.allow_tf32 = before


def _scaled(problem: Problem) -> Launch:
    import torch

    held = problem.kind.stored.value_dtype
    a, b = ([as_torch(x, held) for x in xs] for xs in (problem.a, problem.b))
    out = [as_torch(x) for x in problem.out]
    xp = problem.contest.device.xp
    scales = [tuple(map(as_torch, _shaped(xp, one))) for one in problem.scales]

    def launch(slot: int) -> None:
        scale_a, scale_b = scales[slot]
        with torch_stream():
            torch._scaled_mm(a[slot], b[slot], scale_a, scale_b, out_dtype=out[slot].dtype,
                             use_fast_accum=problem.fast, out=out[slot])

    return launch


def _shaped(xp: Any, scales: Scales) -> tuple[Any, Any]:
    """The same scales as torch tells their kinds apart: by shape and strides."""
    if scales.mode == "none":
        one = xp.ones(1, xp.float32)
        return one, one
    if scales.mode == "rowcol":
        return scales.a[:, None], scales.b[None]
    if scales.mode == "block":
        return dense(xp, scales.a), scales.b
    return scales.a, scales.b
