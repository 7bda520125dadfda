"""Launching the kernels for a handful of rows, tuned by `gpukit.ops.gemv`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpukit.ops import gemv
from gpukit.ops.matmul.arguments import Call
from gpukit.ops.matmul.problem import Problem


def bind(problem: Problem, call: Call) -> Callable[..., None]:
    """The launch of a flat call of one matrix; takes what `run.handles` gives."""
    b = call.b[0]
    residual = None if call.residual is None else call.residual[0]
    decide, weights = (gemv.plan_nk, b.T) if problem.b == "k" else (gemv.plan_kn, b)
    plan = decide(call.device, call.a[0], weights, call.out[0], bias=call.bias,
                  residual=residual, act=call.act)
    enqueue = plan.bind(call.device)

    def launch(a: Any, b: Any, c: Any, bias: Any, residual: Any, alpha: float, scale_a: Any,
               scale_b: Any) -> None:
        enqueue(a, b, c, c if bias is None else bias, c if residual is None else residual, alpha)

    return launch
