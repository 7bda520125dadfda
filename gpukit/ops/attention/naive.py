"""Launching the ladder's first rung, with all scores in memory."""

from __future__ import annotations

from gpukit.errors import UnsupportedError
from gpukit.kernels import attention_naive as specs
from gpukit.ops.attention import pieces
from gpukit.ops.attention.problem import Problem, steps
from gpukit.ops.matmul import workspace

_SIDE = 16  # of a CTA's square of threads


def launch(problem: Problem) -> None:
    """Enqueue the kernels that fill out and lse.

    Raises:
        UnsupportedError: lengths, pages or terms, which this rung leaves out.
    """
    pieces.require_plain("attention.k1", problem)
    p, share = problem, problem.heads // problem.kv_heads
    scores = workspace.empty(p.device, (p.batch, p.heads, p.queries, p.keys), "float32")
    sizes, planes = (p.queries, p.keys, p.heads), p.batch * p.heads
    if planes > 65535:
        raise UnsupportedError(f"attention.k1: {planes} heads of sequences; at most 65535")
    rows, block = -(-p.queries // _SIDE), (_SIDE, _SIDE)
    lse = (0, 0, 0) if p.lse is None else steps(p.lse, 2, 1, 0)
    p.device.compile(specs.SCORES, {"dtype": p.dtype}).launch(
        (-(-p.keys // _SIDE), rows, planes), block,
        (*pieces.strided(p.q), *pieces.strided(p.k), scores, *sizes, share, p.d,
         *pieces.visible(p)))
    p.device.compile(specs.SOFTMAX, {}).launch(
        (p.queries, 1, planes), (32,), (scores, p.lse, *lse, *sizes))
    p.device.compile(specs.VALUES, {"dtype": p.dtype}).launch(
        (-(-p.dv // _SIDE), rows, planes), block,
        (scores, *pieces.strided(p.v), *pieces.strided(p.out), *sizes, share, p.dv))
