"""Launching `matmul.sgemm`: how operands are copied, slices of K, and grid, fixed per problem."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpukit import kernels
from gpukit.kernels.matmul import sgemm_threads
from gpukit.ops.matmul import limits, workspace
from gpukit.ops.matmul.arguments import Call
from gpukit.ops.matmul.configs import Sgemm
from gpukit.ops.matmul.fallback import bind_epilogue, scale_step
from gpukit.ops.matmul.problem import ALIGN, Problem, steps

Launch = Callable[..., None]


def bind(config: Sgemm, problem: Problem, call: Call) -> Launch:
    """A launch that takes what `run.handles` gives, for any arrays that lie like the call's."""
    return _whole(config, problem, call) if config.split == 1 else _sliced(config, problem, call)


def _whole(config: Sgemm, problem: Problem, call: Call) -> Launch:
    finish = {"out": problem.out, "act": problem.act, "extras": str(problem.extras).lower()}
    enqueue, numbers = _bound(config, problem, call, finish, problem.k)
    steps_c = (*steps(call.out), 0)
    steps_residual = steps(call.residual)
    steps_scale = scale_step(call.scale_a), scale_step(call.scale_b)

    def launch(a: Any, b: Any, c: Any, bias: Any, residual: Any, alpha: float, scale_a: Any,
               scale_b: Any) -> None:
        enqueue(a, b, c, *numbers, *steps_c, alpha, bias, residual, *steps_residual, scale_a,
                scale_b, *steps_scale)

    return launch


def _sliced(config: Sgemm, problem: Problem, call: Call) -> Launch:
    """Sums of slices of K to a workspace, which the epilogue adds up."""
    p, device = problem, call.device
    depth = limits.slice_of(config, p)
    slices = -(-p.k // depth)
    enqueue, numbers = _bound(config, p, call, {}, depth)
    epilogue = bind_epilogue(call, slices)
    shape, none = (p.batch, slices, p.m, p.n), device.pointer(None)
    steps_c = p.n, slices * p.m * p.n, p.m * p.n

    def launch(a: Any, b: Any, c: Any, bias: Any, residual: Any, alpha: float, scale_a: Any,
               scale_b: Any) -> None:
        sums = workspace.empty(device, shape, "float32")  # kept until all is enqueued
        place = device.pointer(sums)
        enqueue(a, b, place, *numbers, *steps_c, 1.0, none, none, 0, 0, none, none, 0, 0)
        epilogue(place, c, bias, residual, alpha, scale_a, scale_b)

    return launch


def _bound(config: Sgemm, problem: Problem, call: Call, finish: dict[str, str],
           depth: int) -> tuple[Callable[..., None], tuple[int, ...]]:
    """The kernel with its grid, and its numbers up to the strides of C."""
    a, b = call.a, call.b.swapaxes(1, 2)
    kernel = call.device.compile(
        kernels.get("matmul.sgemm"),
        {"bm": config.bm, "bn": config.bn, "stages": config.stages, **finish,
         "a_copy": _copy(a, call), "b_copy": _copy(b, call)})
    ctas = limits.sgemm_ctas(config, problem)
    enqueue = kernel.bind((ctas,), (sgemm_threads(config.bm, config.bn),))
    return enqueue, (problem.m, problem.n, problem.k, depth, *_strides(a), *_strides(b))


def _strides(matrices: Any) -> tuple[int, int, int]:
    """Elements of [batch, rows, K] along rows, K and batch."""
    batch, rows, k = (stride // matrices.dtype.itemsize for stride in matrices.strides)
    return rows, k, batch


def _copy(matrices: Any, call: Call) -> str:
    """What neighbouring threads copy of [batch, rows, K], see `cuda_src`."""
    rows, k, batch = _strides(matrices)
    if k == 1 or (rows != 1 and matrices.shape[1] > 1):
        return "k"
    apart = k if matrices.shape[2] > 1 else 0, batch if matrices.shape[0] > 1 else 0
    odd = any(step * matrices.dtype.itemsize % ALIGN for step in apart)
    return "mn" if odd or call.device.phase(matrices) % ALIGN else "chunks"


