"""cuBLASLt at its best: the fastest of what its heuristic proposes, timed on this problem."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from gpukit.bench.families import cublaslt
from gpukit.bench.families.buffers import Launch, stream_pointer
from gpukit.bench.families.cublaslt import Candidate, Product
from gpukit.bench.families.matmul_problem import Problem
from gpukit.bench.families.tuning import Tuned, fastest


def make(problem: Problem) -> Tuned:
    """Ask for `cublaslt.MOST_CANDIDATES` algorithms with a `cublaslt.WORKSPACE_BYTES` workspace."""
    lt = cublaslt.handle()
    product = Product(lt, problem.column_major, problem.types)
    candidates = product.candidates()
    workspace = problem.contest.device.empty((cublaslt.WORKSPACE_BYTES,), "uint8")
    variants = [_variant(problem, product, candidate, workspace) for candidate in candidates]
    tuned = fastest(variants, problem.contest)
    return replace(tuned, facts={**tuned.facts, "version": lt.version})


def _variant(problem: Problem, product: Product, candidate: Candidate,
             workspace: Any) -> Callable[[], Launch]:
    pointers, address = problem.pointers(), problem.contest.device.pointer

    def launch(slot: int) -> None:
        product.run(candidate, pointers[slot], address(workspace), stream_pointer())

    return lambda: launch
