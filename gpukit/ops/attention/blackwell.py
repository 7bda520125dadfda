"""Launching the Blackwell forward kernels: tile, tensor maps and grid of a problem."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from gpukit import kernels
from gpukit.devices.tensor_map import TensorMap
from gpukit.errors import UnsupportedError
from gpukit.kernels import attention_sm100 as specs
from gpukit.kernels.spec import Value
from gpukit.ops.attention import copies, pieces, tiles
from gpukit.ops.attention.problem import Problem

_N = 128  # keys per step
_SHARED = 227 << 10  # bytes, of a CTA


@dataclass(frozen=True)
class Config:
    """How `attention.sm100.k4` works on a problem.

    Attributes:
        n: keys per step.
        stages: blocks of keys or values in flight.
        group: heads of q that share a tile.
        section: heads that are finished before the next ones start.
        slack: sums are rescaled where a weight would pass 2^slack.
        poly: of 8 pairs of exponentials, those by polynomial.
    """

    n: int = _N
    stages: int = 4
    group: int = 1
    section: int = 1
    slack: int = 8
    poly: int = 2


def takes(problem: Problem) -> bool:
    """Whether Tensor Memory has room for heads so wide."""
    return problem.d <= specs.MAX_D and problem.dv <= specs.MAX_DV


def configure(problem: Problem) -> Config:
    """What a problem gets unless told otherwise.

    As many stages as fit; heads in one tile where queries are few, unless lengths vary; longest
    tiles first, as many heads at a time as L2 holds the keys of.
    """
    p, share = problem, problem.heads // problem.kv_heads
    dense = p.lengths.policy == "dense"
    rows = specs.TILES * specs.ROWS
    group = min(tiles.packing(p.queries, share, rows), specs.PIECE_ROWS) if dense else 1
    section = 1
    if p.mask.policy != "full" or not dense:
        section = tiles.section(p.keys, p.d + p.dv, 2, p.kv_heads * p.batch) * share // group
    return Config(stages=_stages(p.d, p.dv), group=group, section=section)


@cache
def _stages(d: int, dv: int) -> int:
    """As many as shared memory holds."""
    spec = kernels.get("attention.sm100.k4")
    choices = next(t.choices for t in spec.tunables if t.name == "stages")
    base = {"d": d, "dv": dv, "n": _N}
    return max(int(s) for s in choices if specs.shared_bytes({**base, "stages": s}) <= _SHARED)


def launch_k3(problem: Problem) -> None:
    """Enqueue the ladder's first Blackwell rung: a tile of 128 queries per CTA, dense arrays.

    Raises:
        UnsupportedError: lengths, pages or terms; heads that are too wide.
    """
    pieces.require_plain("attention.sm100.k3", problem, "k4")
    _require_room("attention.sm100.k3", problem)
    p = problem
    compiled = p.device.compile(kernels.get("attention.sm100.k3"), {
        "dtype": p.dtype, "d": p.d, "dv": p.dv, "mask": p.mask.policy})
    grid = -(-p.queries // specs.ROWS), p.heads, p.batch
    compiled.launch(grid, (specs.K3_THREADS,), (
        *copies.maps(p, 1, _N), *pieces.results(p), p.queries, p.keys,
        p.heads // p.kv_heads, *pieces.visible(p)))


def _require_room(kernel: str, problem: Problem) -> None:
    if not takes(problem):
        raise UnsupportedError(
            f"{kernel}: heads have {problem.d} columns of q and {problem.dv} of v; accepted: up to "
            f"{specs.MAX_D} and {specs.MAX_DV}")


def launch(problem: Problem, config: Config | None = None) -> None:
    """Enqueue the kernel that fills out and lse.

    Raises:
        UnsupportedError: heads that are too wide.
    """
    _require_room("attention.sm100.k4", problem)
    p, c = problem, config or configure(problem)
    compiled = p.device.compile(kernels.get("attention.sm100.k4"), tunables(p, c))
    m_tiles = -(-p.queries * c.group // (specs.TILES * specs.ROWS))
    heads = p.heads // c.group
    compiled.launch((m_tiles * heads * p.batch,), (specs.THREADS,), (
        *copies.maps(p, c.group, c.n), _out_map(p, c), *pieces.results(p)[4:], p.queries, p.keys,
        m_tiles, heads, p.batch, c.section, c.group, heads // p.kv_heads, *pieces.visible(p),
        *pieces.terms(p), *_lengths(p, c.n)))


def tunables(problem: Problem, config: Config) -> dict[str, Value]:
    """The variant of the kernel."""
    return {"dtype": problem.dtype, "d": problem.d, "dv": problem.dv, "n": config.n,
            "stages": config.stages, "mask": problem.mask.policy,
            "keys": problem.lengths.policy, "terms": problem.terms.bits,
            "slack": config.slack, "poly": config.poly}


def _lengths(problem: Problem, n: int) -> tuple[Any, ...]:
    lengths = problem.lengths
    return (lengths.q_offsets, lengths.q_lengths, lengths.k_offsets, lengths.k_lengths,
            lengths.table, *copies.pages(problem, n))


def _out_map(problem: Problem, config: Config) -> Any:
    """A box is a warp's rows of a piece's columns. Where lengths vary, rows are addressed by two
    coordinates; see `attention/sm90/keys.cuh`."""
    out, group, rows = problem.out, config.group, specs.PIECE_ROWS
    batch, queries, heads, columns = out.shape
    row, head, sequence = copies.pitches(out)
    if problem.lengths.policy == "dense":
        return problem.device.tensor_map(out, TensorMap(
            problem.dtype, (columns, group, queries, heads // group, batch),
            (head, row, head * group, sequence),
            (specs.PIECE_COLUMNS, group, rows // group, 1, 1), swizzle=64))
    return problem.device.tensor_map(out, TensorMap(
        problem.dtype, (columns, rows, queries + rows, heads, batch),
        (row, row, head, sequence), (specs.PIECE_COLUMNS, rows, 1, 1, 1), swizzle=64), -rows * row)
