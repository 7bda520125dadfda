"""Launching attention of e4m3 operands: tile, tensor maps and grid of a problem."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gpukit import dtypes, kernels
from gpukit.kernels.spec import Value
from gpukit.ops.attention import copies, persistent, pieces, tiles
from gpukit.ops.attention.problem import Problem, steps
from gpukit.ops.attention.tiles import Tile

_SHORT = 1536  # queries


@dataclass(frozen=True)
class Config:
    """How `attention.sm90.k6` works on a problem; as `forward.Config`."""

    tile: Tile
    group: int = 1
    section: int = 1
    dynamic: bool = False
    turns: bool = True
    workers: int = 0


def configure(problem: Problem) -> Config:
    """What a problem gets unless told otherwise."""
    p, share = problem, problem.heads // problem.kv_heads
    tile = choose(max(p.d, p.dv), p.queries, p.mask.policy)
    group = tiles.packing(p.queries, share, tile.rows)
    if p.mask.policy == "full" and p.lengths.policy == "dense":
        return Config(tile, group)
    section = tiles.section(p.keys, p.d + p.dv, 1, p.kv_heads * p.batch) * share // group
    return Config(tile, group, section=section, dynamic=True)


def choose(columns: int, queries: int, mask: str) -> Tile:
    """The tile for heads of so many columns: keys that registers hold scores of beside the sums; a
    stage is held until exponentials are known to be right, so there are many if there is room.
    A third warpgroup's rows are wasted on short sequences, and leave windows too few registers."""
    if columns <= 64:
        return Tile(128, 3, 4)
    if columns > 128:
        return Tile(128, 2, 2)
    return Tile(96, 3, 3) if queries > _SHORT and mask != "window" else Tile(128, 2, 3)


def launch(problem: Problem, config: Config | None = None) -> None:
    """Enqueue the kernel that fills out and lse."""
    bind(problem, config)(*map(problem.device.pointer, arrays(problem)))


def arrays(problem: Problem) -> list[Any]:
    """What a bound launch takes, as pointers."""
    p, scales = problem, problem.scales
    return [x for x in (p.q, p.k, p.v, p.out, p.lse, p.terms.sinks, scales.q, scales.k, scales.v,
                        *p.lengths.arrays) if x is not None]


def bind(problem: Problem, config: Config | None = None) -> Callable[..., None]:
    """The launch of problems like this one, in other memory: call it with pointers to `arrays`."""
    p, c, device = problem, config or configure(problem), problem.device
    heads, m_tiles = p.heads // c.group, -(-p.queries * c.group // c.tile.rows)
    workers = min(m_tiles * heads * p.batch, c.workers or device.properties.sm_count)
    kernel = device.compile(kernels.get("attention.sm90.k6"), tunables(p, c))
    scales, share = p.scales, 1
    if scales.q is not None:
        share = max(p.heads // scales.q.shape[1], 1)
    values = (*pieces.results(p), p.queries, p.keys, m_tiles, heads, p.batch, c.section, c.group,
              heads // p.kv_heads, p.terms.scale * scales.scores, *pieces.visible(p)[1:],
              p.terms.sinks, scales.values, *_factors(scales.q), share, *_factors(scales.k),
              *_factors(scales.v), *p.lengths.arrays, *copies.pages(p, c.tile.n))
    return persistent.bind(device, kernel, (workers,), ((c.tile.wgs + 1) * 128,),
                           copies.requests(p, c.group, c.tile.n), values, dynamic=c.dynamic)


def tunables(problem: Problem, config: Config) -> dict[str, Value]:
    """The variant of the kernel."""
    tile, out = config.tile, dtypes.of(problem.out.dtype)
    assert out is not None  # checked with the other arguments
    return {"dtype": out.name, "d": problem.d, "dv": problem.dv, "n": tile.n, "wgs": tile.wgs,
            "stages": tile.stages, "mask": problem.mask.policy, "keys": problem.lengths.policy,
            "turns": int(config.turns and tile.wgs > 1)}


def _factors(array: Any) -> tuple[Any, ...]:
    """With steps from sequence to sequence and head to head; 0 where all have the same."""
    if array is None:
        return None, 0, 0
    return (array, *(0 if size == 1 else step
                     for size, step in zip(array.shape, steps(array, 0, 1), strict=True)))
