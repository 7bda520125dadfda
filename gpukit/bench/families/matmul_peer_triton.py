"""A persistent Triton matmul that loads through TMA descriptors, the best of a few configurations.

The kernel is in `triton_matmul`, which only imports where Triton is installed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from gpukit.bench.families.buffers import Launch, as_torch, torch_stream
from gpukit.bench.families.matmul_problem import Problem
from gpukit.bench.families.tuning import Tuned, fastest

#: TMA wants the rows of a matrix this many bytes apart, or a multiple.
_TMA_BYTES = 16


@dataclass(frozen=True)
class Config:
    """Tile of C, depth of a step, and how a CTA works on it."""

    tile_m: int
    tile_n: int
    tile_k: int
    num_warps: int
    num_stages: int

    @property
    def tiles(self) -> dict[str, int]:
        """The kernel's compile-time constants."""
        return {name: size for name, size in asdict(self).items() if name.startswith("tile")}


CONFIGS = (
    Config(128, 256, 64, 8, 3),
    Config(256, 128, 64, 8, 3),
    Config(128, 128, 64, 4, 4),
    Config(64, 256, 64, 4, 4),
    Config(64, 128, 128, 4, 4),
    Config(64, 64, 128, 4, 5),
)


def make(problem: Problem) -> Tuned:
    """B may be stored either way; A and the rows of all three must suit TMA."""
    problem.require(problem.dtype in ("bf16", "f16"), "bf16 or f16 operands")
    problem.require(problem.layout[0] == "n", "A stored [M, K]")
    _m, n, k = problem.shape
    rows = (k, k if problem.layout == "nt" else n, n)
    problem.require(all(2 * row % _TMA_BYTES == 0 for row in rows),
                    f"rows of a multiple of {_TMA_BYTES} bytes")
    from gpukit.bench.families import triton_matmul

    b = [x.T if problem.layout == "nt" else x for x in problem.b]
    buffers = [tuple(map(as_torch, xs)) for xs in zip(problem.a, b, problem.out, strict=True)]
    variants = [_variant(problem, triton_matmul, buffers, config) for config in CONFIGS]
    return fastest(variants, problem.contest)


def _variant(problem: Problem, kernel: Any, buffers: list[tuple[Any, ...]],
             config: Config) -> Callable[[], Launch]:
    ctas = problem.contest.device.properties.sm_count
    b_is_nk = problem.layout == "nt"

    def prepare() -> Launch:
        calls = [kernel.bind(*arrays, config, b_is_nk=b_is_nk, ctas=ctas) for arrays in buffers]

        def launch(slot: int) -> None:
            with torch_stream():
                calls[slot]()

        return launch

    return prepare
