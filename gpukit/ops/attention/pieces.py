"""Arguments that all forward kernels take alike."""

from __future__ import annotations

from typing import Any

from gpukit.errors import UnsupportedError
from gpukit.ops.attention.problem import Problem, steps


def results(problem: Problem) -> tuple[Any, ...]:
    """out and lse with their steps."""
    lse = (0, 0, 0) if problem.lse is None else steps(problem.lse, 2, 1, 0)
    return (problem.out, *steps(problem.out, 1, 2, 0), problem.lse, *lse)


def visible(problem: Problem) -> tuple[Any, ...]:
    """The scale, and the interval of keys that a query sees."""
    mask = problem.mask
    return problem.terms.scale, int(mask.top_left), mask.left, mask.right, mask.chunk


def terms(problem: Problem) -> tuple[Any, ...]:
    """What is done to scores, with steps."""
    given, bias, relative = problem.terms, problem.terms.bias, problem.terms.relative
    slopes = 0 if given.slopes is None or given.slopes.ndim == 1 else given.slopes.shape[1]
    bias_steps = (0,) * 4 if bias is None else tuple(
        0 if size == 1 else step
        for size, step in zip(bias.shape, steps(bias, 0, 1, 2, 3), strict=True))
    relative_steps = (0,) * 3 if relative is None else steps(relative, 0, 1, 2)
    extent = 0 if relative is None else relative.shape[3]
    return (given.sinks, given.softcap, given.slopes, slopes, bias, *bias_steps, relative,
            *relative_steps, extent)


def strided(array: Any) -> tuple[Any, ...]:
    """[batch, rows, heads, columns] and its steps."""
    return (array, *steps(array, 1, 2, 0))


def require_plain(kernel: str, problem: Problem, last: str = "k5") -> None:
    """What rungs below the last one leave out is not asked for.

    Raises:
        UnsupportedError: it is.
    """
    terms = problem.terms
    if problem.lengths.policy != "dense" or terms.bits or terms.sinks is not None:
        raise UnsupportedError(f"{kernel}: dense arrays and plain scores only; {last} takes "
                               "lengths, pages, sinks and what is added to scores")
