"""Which kernel a problem gets: measured if it has been tuned, else the model's best."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from gpukit.devices.protocol import Properties
from gpukit.errors import UnsupportedError
from gpukit.kernels.matmul_library import EIGHT_BIT, FOUR_BIT
from gpukit.ops.matmul import limits, model, sm100_model, tuned
from gpukit.ops.matmul.candidates import candidates, sgemms, tcgen05s
from gpukit.ops.matmul.configs import Config, Ladder, Vector
from gpukit.ops.matmul.problem import Problem

# Of operands with factors of blocks, in an error.
_NEEDS = {"blocks": (" with factors of blocks of 128", "sm_90a"),
          "blocks32": (" with factors of blocks of 32", "sm_100a"),
          "blocks16": (" with factors of blocks of 16", "sm_100a")}


class Estimate(NamedTuple):
    """A configuration and what the model says of it."""

    microseconds: float
    config: Config


def choose(problem: Problem, properties: Properties) -> Config:
    """The configuration that `gpukit.matmul` runs: the same for the same problem and GPU.

    Raises:
        UnsupportedError: the GPU has no kernel for such operands.
    """
    return tuned.lookup(problem, properties) or modelled(problem, properties)


@lru_cache(maxsize=4096)
def modelled(problem: Problem, properties: Properties) -> Config:
    """`choose`, were nothing tuned."""
    ranked = ranking(problem, properties)
    found = next((e.config for e in ranked if not limits.refusal(e.config, problem, properties)),
                 None)
    if found is None:
        raise UnsupportedError(f"matmul: {problem.batch} products of {problem.m} x {problem.n} x "
                               f"{problem.k} are more than a grid counts; accepted: fewer at once")
    return found


def ranking(problem: Problem, properties: Properties) -> list[Estimate]:
    """All candidates, best first. Some may be refused for the sizes of the problem.

    Raises:
        UnsupportedError: the GPU has no kernel for such operands.
    """
    considered, estimate = _tensor_cores(problem, properties)
    if not considered:
        considered = _elsewhere(problem, properties)
    elif problem.m <= _vector_rows(problem):
        considered = (*considered, Vector())
    ranked = [Estimate(estimate(c, problem, properties), c) for c in considered]
    return sorted(ranked, key=lambda estimate: estimate.microseconds)


def _tensor_cores(problem: Problem,
                  properties: Properties) -> tuple[tuple[Config, ...], Callable[..., float]]:
    """What runs on the tensor cores of Hopper and Blackwell, and the model of it."""
    if problem.dtype != "f32" and properties.capability == (10, 0):
        return tcgen05s(problem, properties), sm100_model.microseconds
    hopper = problem.dtype != "f32" and properties.capability == (9, 0)
    return candidates(problem, properties) if hopper else (), model.microseconds


def _vector_rows(problem: Problem) -> int:
    """Rows up to which weights are read without tensor cores; all there are rather than packing."""
    if not (problem.tma_a and problem.tma_b):
        return limits.VECTOR_ROWS
    figures = model.HOPPER
    return figures.vector_rows if problem.b == "k" else figures.vector_rows_across


def _elsewhere(problem: Problem, properties: Properties) -> tuple[Config, ...]:
    """What runs without those: one kernel, or one whose tile is to be chosen."""
    if problem.dtype in (*EIGHT_BIT, FOUR_BIT):
        what, needed = _NEEDS.get(problem.sums, ("", "sm_90a or sm_100a"))
        raise UnsupportedError(f"matmul: operands of {problem.dtype}{what} need {needed}, this GPU "
                               f"is {properties.arch}")
    for config in (Vector(), Ladder("sm80.a3")):
        if not limits.refusal(config, problem, properties):
            return (config,)
    return sgemms(problem, properties) or (Ladder("k1"),)
