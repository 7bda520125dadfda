"""cuBLASLt at its best: the fastest of what its heuristic proposes, timed on this problem."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from gpukit.bench.families import cublaslt
from gpukit.bench.families.buffers import Launch, stream_pointer
from gpukit.bench.families.cublaslt import Candidate, Extras, Product
from gpukit.bench.families.matmul_problem import Problem
from gpukit.bench.families.matmul_scales import Scales, dense
from gpukit.bench.families.tuning import Tuned, fastest

#: Of first, which is B, and of second: A.
_MODES = {
    "none": (cublaslt.SCALAR, cublaslt.SCALAR), "tensor": (cublaslt.SCALAR, cublaslt.SCALAR),
    "rowcol": (cublaslt.OUTER_VEC, cublaslt.OUTER_VEC),
    "block": (cublaslt.BLK128X128, cublaslt.VEC128),
}  # fmt: skip


def make(problem: Problem) -> Tuned:
    """Ask for `cublaslt.MOST_CANDIDATES` algorithms with a `cublaslt.WORKSPACE_BYTES` workspace."""
    problem.require(problem.dtype != "e5m2", "e4m3 in A or B")
    lt, kept = cublaslt.handle(), _scales(problem)
    # Where scales are is a property of the product: each buffer set has its own.
    products = [Product(lt, problem.column_major, problem.types, extras, problem.compute)
                for extras in _extras(problem, kept)]
    candidates = products[0].candidates()
    workspace = problem.contest.device.empty((cublaslt.WORKSPACE_BYTES,), "uint8")
    variants = [_variant(problem, products, candidate, (workspace, kept))
                for candidate in candidates]
    tuned = fastest(variants, problem.contest)
    return replace(tuned, facts={**tuned.facts, "version": lt.version})


def _scales(problem: Problem) -> list[Scales]:
    """The scales as the library wants them: those of A's blocks without gaps."""
    if problem.mode != "block":
        return list(problem.scales)
    xp = problem.contest.device.xp
    return [replace(scales, a=dense(xp, scales.a)) for scales in problem.scales]


def _extras(problem: Problem, scales: Sequence[Scales]) -> list[Extras]:
    """One for each buffer set."""
    if problem.mode == "none":
        return [Extras(fast_accumulation=problem.fast)] * len(problem.out)
    address = problem.contest.device.address
    first_mode, second_mode = _MODES[problem.mode]
    return [Extras(address(one.b), address(one.a), fast_accumulation=problem.fast,
                   first_mode=first_mode, second_mode=second_mode) for one in scales]


def _variant(problem: Problem, products: Sequence[Product], candidate: Candidate,
             kept: tuple[Any, Any]) -> Callable[[], Launch]:
    """``kept`` is the workspace, and scales that must live as long."""
    pointers, address = problem.pointers(), problem.contest.device.pointer

    def launch(slot: int) -> None:
        products[slot].run(candidate, pointers[slot], address(kept[0]), stream_pointer())

    return lambda: launch
