"""From a checked call to launches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpukit.errors import ArgumentError
from gpukit.ops.matmul import fallback, limits, simt, sm90, sm100, stacks, vector, workspace
from gpukit.ops.matmul.arguments import Call
from gpukit.ops.matmul.choose import choose
from gpukit.ops.matmul.configs import (
    Config,
    Gemm,
    Ladder,
    Narrow,
    Sgemm,
    Tcgen05,
    Vector,
    parse,
)
from gpukit.ops.matmul.problem import Layout, Problem, describe

Launch = Callable[..., None]


def run(call: Call, config: Config | str | None = None) -> Launch | None:
    """Fill `call.out`.

    Returns:
        The launch if it was one, for addresses in the order of `handles`; None otherwise.

    Raises:
        ArgumentError: a configuration that the problem does not allow.
        UnsupportedError: the GPU has no kernel for such operands.
    """
    if not call.out.size:
        return None
    whole = stacks.flat(call)
    if whole is None:
        for part in stacks.parts(call):
            run(part, config)
        return None
    if not whole.a.shape[2]:
        fallback.epilogue(whole, None)
        return None
    return _run(whole, None if config is None else parse(config))


def _run(call: Call, forced: Config | None) -> Launch | None:
    problem, layout = describe(call)
    properties = call.device.properties
    if forced is None:
        config = choose(problem, properties)
    else:
        config = limits.settled(forced, problem, properties)
        if refusal := limits.refusal(config, problem, properties):
            raise ArgumentError(f"matmul: config {forced} does not go with this call: {refusal}")
    if isinstance(config, Ladder):
        fallback.run(call, config.rung)
        return None
    if isinstance(config, Vector):
        return _launched(vector.bind(problem, call), call)
    if isinstance(config, Sgemm):
        return _launched(simt.bind(config, problem, call), call)
    return _launched(_packing(config, problem, layout, call), call)


def _launched(launch: Launch, call: Call) -> Launch:
    launch(*handles(call))
    return launch


def handles(call: Call) -> tuple[Any, ...]:
    """What a bound launch takes: addresses, or the arrays where they are emulated."""
    pointer = call.device.pointer
    return (pointer(call.a), pointer(call.b), pointer(call.out), pointer(call.bias),
            pointer(call.residual), call.alpha, pointer(call.scale_a), pointer(call.scale_b))


def _packing(config: Gemm | Narrow | Tcgen05, problem: Problem, layout: Layout,
             call: Call) -> Launch:
    """The launch, after copies of what TMA cannot address as it is."""
    device = call.device
    a = None if problem.tma_a else workspace.bind(device, call.a)
    b = None if problem.tma_b else workspace.bind(device, call.b.swapaxes(1, 2))
    scale = None if problem.tma_scale else workspace.bind(device, call.scale_a.T[None])
    layout = layout._replace(
        a=a.operand if a else layout.a, b=b.operand if b else layout.b,
        scale_pitch=scale.operand.pitch if scale else layout.scale_pitch)
    if isinstance(config, Tcgen05):
        launch = sm100.bind(config, problem, layout, call)
    else:
        launch = sm90.bind(config, problem, layout, call)
    if not (a or b or scale):
        return launch

    def packed(source_a: Any, source_b: Any, c: Any, bias: Any, residual: Any, alpha: float,
               scale_a: Any, scale_b: Any) -> None:
        made = [copy.make(source) if copy else None for copy, source in
                ((a, source_a), (b, source_b), (scale, scale_a))]  # kept until all is enqueued
        first, second, factors = (
            source if copy is None else device.pointer(copy)
            for copy, source in zip(made, (source_a, source_b, scale_a), strict=True))
        launch(first, second, c, bias, residual, alpha, factors, scale_b)

    return packed
