"""From a checked call to launches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from gpukit.errors import ArgumentError
from gpukit.ops.matmul import fallback, limits, sm90, stacks, vector, workspace
from gpukit.ops.matmul.arguments import Call
from gpukit.ops.matmul.choose import choose
from gpukit.ops.matmul.configs import Config, Gemm, Ladder, Narrow, parse
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
    if not isinstance(config, Gemm | Narrow):
        return _launched(vector.bind(problem, call), call)
    if problem.tma_a and problem.tma_b and problem.tma_scale:
        return _launched(sm90.bind(config, problem, layout, call), call)
    call, layout = _packed(call, problem, layout)
    _launched(sm90.bind(config, problem, layout, call), call)
    return None


def _launched(launch: Launch, call: Call) -> Launch:
    launch(*handles(call))
    return launch


def handles(call: Call) -> tuple[Any, ...]:
    """What a bound launch takes: addresses, or the arrays where they are emulated."""
    pointer = call.device.pointer
    return (pointer(call.a), pointer(call.b), pointer(call.out), pointer(call.bias),
            pointer(call.residual), call.alpha, pointer(call.scale_a), pointer(call.scale_b))


def _packed(call: Call, problem: Problem, layout: Layout) -> tuple[Call, Layout]:
    """The call with what TMA cannot address in a workspace, along K."""
    if not problem.tma_a:
        a = workspace.pack(call.device, call.a)
        call, layout = replace(call, a=a.array), layout._replace(a=a.operand)
    if not problem.tma_b:
        b = workspace.pack(call.device, call.b.swapaxes(1, 2))
        call, layout = replace(call, b=b.array), layout._replace(b=b.operand)
    if not problem.tma_scale:
        copy = workspace.pack(call.device, call.scale_a.T[None]).array[0]
        call = replace(call, scale_a=copy.T[:call.scale_a.shape[0]])
    return call, layout
