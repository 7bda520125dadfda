"""Launching the FlashAttention-2 kernel, for GPUs before Hopper and after it."""

from __future__ import annotations

from gpukit import kernels
from gpukit.kernels import attention as specs
from gpukit.kernels.spec import Value
from gpukit.ops.attention import pieces, tiles
from gpukit.ops.attention.problem import Problem


def launch(problem: Problem, **given: Value) -> None:
    """Enqueue the kernel that fills out and lse; no pages.

    Args:
        given: tunables other than what heads of this width get.
    """
    chosen = tunables(problem) | given
    compiled = problem.device.compile(specs.K2, chosen)
    m_tiles = -(-problem.queries // specs.fa2_rows(kernels.get("attention.k2").resolve(chosen)))
    grid = m_tiles * problem.heads * problem.batch
    share = problem.heads // problem.kv_heads
    section = tiles.section(problem.keys, problem.d + problem.dv, 2,
                            problem.kv_heads * problem.batch)
    compiled.launch((grid,), (32 * int(chosen["warps"]),), (
        *pieces.strided(problem.q), *pieces.strided(problem.k), *pieces.strided(problem.v),
        *pieces.results(problem),
        problem.queries, problem.keys, m_tiles, problem.heads, problem.batch,
        section * share, share, *pieces.visible(problem), *pieces.terms(problem),
        problem.lengths.q_offsets, problem.lengths.q_lengths, problem.lengths.k_offsets,
        problem.lengths.k_lengths))


def tunables(problem: Problem) -> dict[str, Value]:
    """The variant for these heads: 32 queries a warp where the assembler finds registers for
    them, and more keys per step the narrower heads are."""
    widest, policy, terms = max(problem.d, problem.dv), problem.mask.policy, problem.terms.bits
    blackwell = problem.device.properties.capability >= (10, 0)
    crowded = widest > 128 or policy == "window" or terms or blackwell
    return {"dtype": problem.dtype, "d": problem.d, "dv": problem.dv,
            "n": _keys(widest, terms, blackwell),
            "warps": 8 if widest > 128 else 4, "repeat": 1 if crowded else 2, "mask": policy,
            "terms": terms}


def _keys(widest: int, terms: int, blackwell: bool) -> int:
    """Of a step."""
    if blackwell and widest > 128:
        return 16
    if terms:
        return 32
    return 128 if widest <= 64 else 64
