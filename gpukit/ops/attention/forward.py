"""Launching the Hopper forward kernel: tile, cluster, tensor maps and grid of a problem."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from gpukit import kernels
from gpukit.devices.tensor_map import TensorMap
from gpukit.kernels.attention import ROW, ROWS
from gpukit.kernels.spec import Value
from gpukit.ops.attention import pieces, tiles
from gpukit.ops.attention.problem import Problem
from gpukit.ops.attention.tiles import Tile

_COLUMNS = ROW // 2  # of a slab of 16-bit elements


@dataclass(frozen=True)
class Config:
    """How `attention.sm90.k5` works on a problem.

    Attributes:
        group: heads of q that share a tile.
        ctas: CTAs of a cluster.
        pair_heads: whether those take neighbouring heads, not neighbouring rows.
    """

    tile: Tile
    group: int = 1
    ctas: int = 1
    pair_heads: bool = False
    flavour: int = 0
    section: int = 0
    counter: Any = None
    workers: int = 0


def configure(problem: Problem) -> Config:
    """What a problem gets unless told otherwise."""
    policy, share = problem.mask.policy, problem.heads // problem.kv_heads
    tile = tiles.choose(problem.d, problem.dv, policy)
    group = tiles.packing(problem.queries, share, tile.rows)
    share //= group
    rows = -(-problem.queries * group // tile.rows)
    if problem.lengths.policy == "paged" or problem.d < 128:
        return Config(tile, group)
    if share % 2 == 0:
        return Config(tile, group, 2, True)
    if policy == "full" and rows % 2 == 0 and problem.lengths.policy == "dense":
        return Config(tile, group, 2, False)
    return Config(tile, group)


def single(problem: Problem) -> Config:
    """One head per tile, one CTA for itself."""
    return Config(tiles.choose(problem.d, problem.dv, problem.mask.policy))


def maps(problem: Problem, config: Config) -> tuple[Any, Any, Any]:
    """Tensor maps of q, k and v."""
    return (_query_map(problem, config), _key_map(problem, problem.k, config),
            _key_map(problem, problem.v, config))


def launch(problem: Problem, config: Config | None = None) -> None:
    """Enqueue the kernel that fills out and lse."""
    config = config or configure(problem)
    compiled = problem.device.compile(kernels.get("attention.sm90.k5"), tunables(problem, config))
    m_tiles, heads, section = _schedule(problem, config)
    clusters = min(m_tiles * heads * problem.batch,
                   config.workers or problem.device.properties.sm_count // config.ctas)
    compiled.launch((clusters * config.ctas,), ((config.tile.wgs + 1) * 128,), (
        *maps(problem, config), *pieces.results(problem),
        problem.queries, problem.keys, m_tiles, heads, problem.batch, section, config.group,
        problem.heads // problem.kv_heads // config.group, int(config.pair_heads),
        *pieces.visible(problem), *pieces.terms(problem), *_lengths(problem, config),
        config.counter))


def tunables(problem: Problem, config: Config) -> dict[str, Value]:
    """The variant of the kernel."""
    tile = config.tile
    return {"dtype": problem.dtype, "d": problem.d, "dv": problem.dv, "n": tile.n,
            "wgs": tile.wgs, "stages": tile.stages, "mask": problem.mask.policy,
            "keys": problem.lengths.policy, "terms": problem.terms.bits, "ctas": config.ctas,
            "flavour": config.flavour}


def _schedule(problem: Problem, config: Config) -> tuple[int, int, int]:
    """Tiles of a head, heads and the section, in units of what a cluster works on."""
    rows, heads = config.tile.rows, problem.heads // config.group
    if config.pair_heads:
        heads //= config.ctas
    else:
        rows *= config.ctas
    if config.section:
        section = config.section
    elif problem.mask.policy == "full":
        section = 1
    else:
        section = tiles.section(problem.keys, problem.d + problem.dv, 2, problem.kv_heads)
        section = max(section * heads // problem.kv_heads, 1)
    return -(-problem.queries * config.group // rows), heads, section


def _lengths(problem: Problem, config: Config) -> tuple[Any, ...]:
    lengths = problem.lengths
    entries = 0 if lengths.table is None else lengths.table.shape[1]
    page = problem.k.shape[1] if lengths.policy == "paged" else 0
    return (lengths.q_offsets, lengths.k_offsets, lengths.k_lengths, lengths.table, entries, page,
            _box(problem, config))


def _box(problem: Problem, config: Config) -> int:
    """Rows of keys that one copy moves."""
    part = config.tile.n // config.ctas
    return math.gcd(problem.k.shape[1], part) if problem.lengths.policy == "paged" else part


def _query_map(problem: Problem, config: Config) -> Any:
    """[batch, heads / group, queries, group, d]; a box is a warpgroup's rows of 64 columns."""
    q, group = problem.q, config.group
    batch, queries, heads, d = q.shape
    row, head, sequence = _pitches(q)
    return problem.device.tensor_map(q, TensorMap(
        problem.dtype, (d, group, queries, heads // group, batch),
        (head, row, head * group, sequence), (_COLUMNS, group, ROWS // group, 1, 1)))


def _key_map(problem: Problem, array: Any, config: Config) -> Any:
    """k or v; see `attention/sm90/keys.cuh`."""
    batch, keys, heads, columns = array.shape
    row, head, sequence = _pitches(array)
    box = _box(problem, config)
    if problem.lengths.policy == "dense":
        return problem.device.tensor_map(array, TensorMap(
            problem.dtype, (columns, keys, heads, batch, 1), (row, head, sequence, sequence),
            (_COLUMNS, box, 1, 1, 1)))
    return problem.device.tensor_map(array, TensorMap(
        problem.dtype, (columns, box, keys + box, heads, batch), (row, row, head, sequence),
        (_COLUMNS, box, 1, 1, 1)), -box * row)


def _pitches(array: Any) -> tuple[int, int, int]:
    """Bytes from row to row, head to head and sequence to sequence of [batch, rows, heads, d];
    what a dimension of one element has for a stride means nothing."""
    fill = -(-array.shape[3] * array.dtype.itemsize // 16) * 16
    sequence, row, head = (step if size > 1 else fill for size, step in
                           zip(array.shape[:3], array.strides[:3], strict=True))
    return row, head, sequence
