"""Launching the Hopper forward kernel: tile, cluster, tensor maps and grid of a problem."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gpukit import kernels
from gpukit.kernels.spec import Value
from gpukit.ops.attention import copies, persistent, pieces, tiles
from gpukit.ops.attention.problem import Problem
from gpukit.ops.attention.tiles import Tile


@dataclass(frozen=True)
class Config:
    """How `attention.sm90.k5` works on a problem.

    Attributes:
        group: heads of q that share a tile.
        ctas: CTAs of a cluster, which share what they read of keys and values.
        section: heads that are finished before the next ones start.
        dynamic: whether CTAs take tiles as they get free, not by turns.
        turns: whether warpgroups take turns at starting products.
        workers: persistent CTAs or clusters; 0: as many as the GPU has room for.
    """

    tile: Tile
    group: int = 1
    ctas: int = 1
    section: int = 1
    dynamic: bool = False
    turns: bool = True
    workers: int = 0


def configure(problem: Problem) -> Config:
    """What a problem gets unless told otherwise.

    Tiles of one length are dealt out, and two that read the same keys share them if there is an
    even number; others are taken longest first, as many heads at a time as L2 holds the keys of.
    Warpgroups that see other blocks than their neighbours are better off without turns.
    """
    p, share = problem, problem.heads // problem.kv_heads
    tile = tiles.choose(p)
    group = tiles.packing(p.queries, share, tile.rows)
    if p.mask.policy == "full" and p.lengths.policy == "dense":
        even = -(-p.queries * group // tile.rows) % 2 == 0
        pairs = even and tile.wgs == 2 and max(p.d, p.dv) >= 128
        return Config(tile, group, 2 if pairs else 1)
    section = tiles.section(p.keys, p.d + p.dv, 2, p.kv_heads * p.batch) * share // group
    turns = p.mask.policy == "full" or (p.mask.policy == "causal" and tile == tiles.long(p))
    return Config(tile, group, section=section, dynamic=True, turns=turns)


def single(problem: Problem) -> Config:
    """One head per tile, one CTA for itself."""
    return Config(tiles.long(problem))


def launch(problem: Problem, config: Config | None = None) -> None:
    """Enqueue the kernel that fills out and lse."""
    bind(problem, config)(*map(problem.device.pointer, arrays(problem)))


def arrays(problem: Problem) -> list[Any]:
    """What a bound launch takes, as pointers."""
    p, terms = problem, problem.terms
    return [x for x in (p.q, p.k, p.v, p.out, p.lse, terms.sinks, terms.slopes, terms.bias,
                        terms.relative, *p.lengths.arrays) if x is not None]


def bind(problem: Problem, config: Config | None = None) -> Callable[..., None]:
    """The launch of problems like this one, in other memory: call it with pointers to `arrays`."""
    p, c, device = problem, config or configure(problem), problem.device
    heads, m_tiles = p.heads // c.group, -(-p.queries * c.group // (c.tile.rows * c.ctas))
    clusters = min(m_tiles * heads * p.batch,
                   c.workers or device.properties.sm_count // c.ctas)
    kernel = device.compile(kernels.get("attention.sm90.k5"), tunables(p, c))
    shared = c.tile.n // c.ctas
    values = (*pieces.results(p), p.queries, p.keys, m_tiles, heads, p.batch, c.section, c.group,
              heads // p.kv_heads, *pieces.visible(p), *pieces.terms(p), *p.lengths.arrays,
              *copies.pages(p, shared))
    return persistent.bind(device, kernel, (clusters * c.ctas,), ((c.tile.wgs + 1) * 128,),
                           copies.requests(p, c.group, shared), values, dynamic=c.dynamic)


def tunables(problem: Problem, config: Config) -> dict[str, Value]:
    """The variant of the kernel."""
    tile = config.tile
    return {"dtype": problem.dtype, "d": problem.d, "dv": problem.dv, "n": tile.n,
            "wgs": tile.wgs, "stages": tile.stages, "mask": problem.mask.policy,
            "keys": problem.lengths.policy, "terms": problem.terms.bits, "ctas": config.ctas,
            "turns": int(config.turns)}
