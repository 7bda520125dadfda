"""Which kernel a problem gets: measured if it has been tuned, else the model's best."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from gpukit.devices.protocol import Properties
from gpukit.errors import UnsupportedError
from gpukit.kernels.matmul_library import EIGHT_BIT
from gpukit.ops.matmul import limits, model, tuned
from gpukit.ops.matmul.candidates import candidates, sgemms
from gpukit.ops.matmul.configs import Config, Ladder, Vector
from gpukit.ops.matmul.problem import Problem


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
    return next(e.config for e in ranked if not limits.refusal(e.config, problem, properties))


def ranking(problem: Problem, properties: Properties) -> list[Estimate]:
    """All candidates, best first. Some may be refused for the sizes of the problem.

    Raises:
        UnsupportedError: the GPU has no kernel for such operands.
    """
    if properties.capability != (9, 0) or problem.dtype == "f32":
        considered = _elsewhere(problem, properties)
    else:
        considered = candidates(problem, properties)
        if problem.m <= _vector_rows(problem):
            considered = (*considered, Vector())
    ranked = [Estimate(model.microseconds(c, problem, properties), c) for c in considered]
    return sorted(ranked, key=lambda estimate: estimate.microseconds)


def _vector_rows(problem: Problem) -> int:
    """Rows up to which weights are read without tensor cores; all there are rather than packing."""
    if not (problem.tma_a and problem.tma_b):
        return limits.VECTOR_ROWS
    figures = model.HOPPER
    return figures.vector_rows if problem.b == "k" else figures.vector_rows_across


def _elsewhere(problem: Problem, properties: Properties) -> tuple[Config, ...]:
    """What runs where `matmul.sm90` does not: one kernel, or one whose tile is to be chosen."""
    if problem.dtype in EIGHT_BIT and properties.capability != (9, 0):
        raise UnsupportedError(f"matmul: operands of {problem.dtype} need sm_90a, this GPU is "
                               f"{properties.arch}")
    for config in (Vector(), Ladder("sm80.a3")):
        if not limits.refusal(config, problem, properties):
            return (config,)
    return sgemms(problem, properties) or (Ladder("k1"),)
