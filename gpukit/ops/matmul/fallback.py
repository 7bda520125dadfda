"""Where `matmul.sm90` does not run: a kernel of the ladder, then the epilogue as another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpukit import kernels
from gpukit.ops import arrays
from gpukit.ops.matmul import ladder, workspace
from gpukit.ops.matmul.arguments import Call
from gpukit.ops.matmul.problem import steps

_BLOCK = 256


def run(call: Call, rung: str) -> None:
    """A flat call by a rung of the ladder, one launch per matrix."""
    direct = call.plain and call.out.flags.c_contiguous
    sums = call.out if direct else workspace.empty(call.device, call.out.shape, "float32")
    for a, b, out in zip(call.a, call.b, sums, strict=True):
        ladder.launch(f"matmul.{rung}", call.device, a, b, out)
    if not direct:
        epilogue(call, sums)


def epilogue(call: Call, sums: Any) -> None:
    """out = activation(alpha scales sums + bias) + residual.

    Args:
        sums: [batch, M, N] float32 without gaps, or None for zeros.
    """
    pointer, scales = call.device.pointer, call.factors
    bind_epilogue(call)(
        pointer(sums), pointer(call.out), pointer(call.bias), pointer(call.residual), call.alpha,
        *map(pointer, scales))


def bind_epilogue(call: Call, slices: int = 1) -> Callable[..., None]:
    """A launch that takes sums [batch, slices, M, N] and what `run.handles` gives after A and B."""
    batch, m, n = call.out.shape
    kernel = call.device.compile(
        kernels.get("matmul.epilogue"),
        {"out": arrays.check_float("matmul", "out", call.out).name, "act": call.act})
    enqueue = kernel.bind((-(-batch * m * n // _BLOCK),), (_BLOCK,))
    sizes = (*steps(call.out), m, n, batch)
    steps_residual, steps_scale = steps(call.residual), tuple(map(scale_step, call.factors))

    def launch(sums: Any, c: Any, bias: Any, residual: Any, alpha: float, scale_a: Any,
               scale_b: Any) -> None:
        enqueue(sums, slices, c, *sizes, alpha, bias, residual, *steps_residual, scale_a, scale_b,
                *steps_scale)

    return launch


def scale_step(scale: Any) -> int:
    """Elements from one factor to the next."""
    return 0 if scale is None or scale.size == 1 else 1
