"""Which kernel a product gets, and why: what `gpukit show matmul` and `gpukit tune` ask."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpukit import dtypes
from gpukit.devices.protocol import Properties
from gpukit.errors import ArgumentError
from gpukit.kernels.matmul_library import EIGHT_BIT, FOUR_BIT, ITEMSIZE
from gpukit.ops.matmul import arguments, limits, stacks, tuned
from gpukit.ops.matmul.choose import Estimate, choose, ranking
from gpukit.ops.matmul.configs import Config
from gpukit.ops.matmul.problem import ALIGN, Problem, describe

# With factors of blocks: elements, what sums are called.
_BLOCKS = {"mxfp8": ("e4m3", "blocks32"), "nvfp4": (FOUR_BIT, "blocks16")}
DTYPES = ("bf16", "f16", "f32", "tf32", *EIGHT_BIT, *_BLOCKS)
LAYOUTS = ("nt", "nn", "tn", "tt")


@dataclass(frozen=True)
class Explanation:
    """The choice for a problem.

    Attributes:
        source: "tuned", "model", or "only one" where there is nothing to choose from.
        estimates: the model's best that the problem allows, fastest first; infinite times where
            the model says nothing.
    """

    problem: Problem
    config: Config
    source: str
    estimates: tuple[Estimate, ...]


def explain(problem: Problem, properties: Properties, count: int = 8) -> Explanation:
    """The choice and the `count` best candidates.

    Raises:
        UnsupportedError: the GPU has no kernel for such operands.
    """
    config = choose(problem, properties)
    best = allowed(problem, properties, count)
    measured = tuned.lookup(problem, properties) is not None
    source = "tuned" if measured else "model" if len(best) > 1 else "only one"
    return Explanation(problem, config, source, tuple(best))


def allowed(problem: Problem, properties: Properties, count: int) -> list[Estimate]:
    """The model's `count` best among the configurations that the problem allows."""
    found: list[Estimate] = []
    for estimate in ranking(problem, properties):
        if len(found) == count:
            break
        if not limits.refusal(estimate.config, problem, properties):
            found.append(estimate)
    return found


def dense(m: int, n: int, k: int, *, dtype: str = "bf16", out: str | None = None,
          layout: str = "nt", sums: str = "promoted") -> Problem:
    """The problem of matrices without gaps, at aligned addresses, none of them empty.

    Args:
        dtype: of A and B, or "mxfp8" (of e4m3) or "nvfp4": with factors of blocks.
        out: type of C; by default that of A and B, bf16 for 8- and 4-bit ones.
        layout: how A and B are stored: n as is, t transposed.
        sums: of 8-bit operands, see `Problem`.

    Raises:
        ArgumentError: no such type or layout, or sizes that `gpukit.matmul` does not take.
    """
    if not 1 <= min(m, n, k) <= max(m, n, k) <= arguments.MAX_SIZE:
        raise ArgumentError(f"matmul: the shape is {m}x{n}x{k}; accepted: sizes of 1 to "
                            f"{arguments.MAX_SIZE}")
    _check_word("dtype", dtype, DTYPES)
    _check_word("layout", layout, LAYOUTS)
    dtype, sums = _BLOCKS.get(dtype, (dtype, sums))
    k = -(-k // 2) if dtype == FOUR_BIT else k
    small = ITEMSIZE[dtype] == 1
    out = dtypes.parse(out or ("bf16" if small else "f32" if dtype == "tf32" else dtype)).name
    size = ITEMSIZE[dtype]
    a, b = ("k", "mn")[layout[0] == "t"], ("mn", "k")[layout[1] == "t"]
    return Problem(m, n, k, dtype=dtype, out=out, a=a, b=b, tma_a=_tma(a, m, k, size),
                   tma_b=_tma(b, n, k, size), tma_c=not n * dtypes.ALL[out].itemsize % ALIGN,
                   sums=sums if small else "plain")


def problem_of(a: Any, b: Any, out: Any = None, **words: Any) -> Problem:
    """The problem of a call of `gpukit.matmul` with these arguments.

    Raises:
        ArgumentError: what `gpukit.matmul` says of them, or that it takes several launches.
    """
    optional = ("bias", "activation", "residual", "scale_a", "scale_b", "out_dtype", "dtype_a",
                "dtype_b")
    given = {**dict.fromkeys(optional), "alpha": 1.0, "tf32": False, "fast_accum": False, **words}
    call = stacks.flat(arguments.check(a, b, out, **given))
    if call is None:
        raise ArgumentError("matmul: a stack of matrices that is no single problem")
    return describe(call)[0]


def _tma(major: str, lines: int, k: int, size: int) -> bool:
    """Whether TMA can address [lines, K] without gaps; one line can always be."""
    inner, outer = (k, lines) if major == "k" else (lines, k)
    return (outer == 1 or not inner * size % ALIGN) and (major == "k" or size == 2)


def _check_word(name: str, given: str, accepted: tuple[str, ...]) -> None:
    if given not in accepted:
        raise ArgumentError(f"matmul: {name} is {given!r}; accepted: {', '.join(accepted)}")
