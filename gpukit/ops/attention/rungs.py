"""Launching rungs 3 and 4 of the ladder: one tile per CTA, dense arrays."""

from __future__ import annotations

from gpukit.kernels.spec import KernelSpec
from gpukit.ops.attention import copies, forward, pieces
from gpukit.ops.attention.problem import Problem


def launch(spec: KernelSpec, problem: Problem) -> None:
    """Enqueue the kernel that fills out and lse.

    Raises:
        UnsupportedError: lengths, pages or terms, which these rungs leave out.
    """
    pieces.require_plain(spec.name, problem)
    config = forward.single(problem)
    tile = config.tile
    compiled = problem.device.compile(spec, {
        "dtype": problem.dtype, "d": problem.d, "dv": problem.dv, "n": tile.n, "wgs": tile.wgs,
        "stages": tile.stages, "mask": problem.mask.policy})
    grid = -(-problem.queries // tile.rows), problem.heads, problem.batch
    compiled.launch(grid, ((tile.wgs + 1) * 128,), (
        *copies.maps(problem, 1, tile.n), *pieces.results(problem), problem.queries, problem.keys,
        problem.heads // problem.kv_heads, *pieces.visible(problem)))
