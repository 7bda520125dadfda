"""Launching attention of e4m3 operands: tile, tensor maps and grid of a problem."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from gpukit import dtypes, kernels
from gpukit.devices.tensor_map import TensorMap
from gpukit.kernels.attention import ROWS
from gpukit.kernels.attention_fp8 import COLUMNS, WARPS
from gpukit.kernels.spec import Value
from gpukit.ops.attention import pieces, tiles
from gpukit.ops.attention.counter import counter
from gpukit.ops.attention.problem import Problem, steps
from gpukit.ops.attention.tiles import Tile
from gpukit.ops.matmul import workspace


@dataclass(frozen=True)
class Config:
    """How `attention.sm90.k6` works on a problem; as `forward.Config`."""

    tile: Tile
    group: int = 1
    section: int = 1
    dynamic: bool = False
    turns: int = 1
    early: int = 0
    held: bool = False
    ready: bool = False
    lowered: bool = False
    polys: int = 0
    workers: int = 0


def configure(problem: Problem) -> Config:
    """What a problem gets unless told otherwise."""
    p, share = problem, problem.heads // problem.kv_heads
    tile = choose(max(p.d, p.dv))
    group = tiles.packing(p.queries, share, tile.rows)
    if p.mask.policy == "full" and p.lengths.policy == "dense":
        return Config(tile, group)
    section = tiles.section(p.keys, p.d + p.dv, 1, p.kv_heads * p.batch) * share // group
    return Config(tile, group, section=section, dynamic=True)


def choose(columns: int) -> Tile:
    """The tile for heads of so many columns: keys that registers hold scores of beside the sums."""
    if columns <= 64:
        return Tile(160, 3, 2)
    return Tile(160 if columns <= 128 else 96, 2, 2)


def launch(problem: Problem, config: Config | None = None) -> None:
    """Enqueue the kernel that fills out and lse."""
    config = config or configure(problem)
    tile, heads = config.tile, problem.heads // config.group
    compiled = problem.device.compile(kernels.get("attention.sm90.k6"), tunables(problem, config))
    m_tiles = -(-problem.queries * config.group // tile.rows)
    workers = min(m_tiles * heads * problem.batch,
                  config.workers or problem.device.properties.sm_count)
    compiled.launch((workers,), ((tile.wgs + 1) * 128,), (
        _query_map(problem, config), _key_map(problem, problem.k, config),
        _key_map(problem, problem.v, config), *pieces.results(problem), problem.queries,
        problem.keys, m_tiles, heads, problem.batch, config.section, config.group,
        heads // problem.kv_heads, problem.terms.scale * problem.scales.scores,
        *pieces.visible(problem)[1:], problem.terms.sinks, *_scales(problem),
        *_lengths(problem, config), counter(problem.device) if config.dynamic else None,
        *_ready(problem, config)))


def _ready(problem: Problem, config: Config) -> tuple[Any, int]:
    """Values transposed in memory, if the kernel is to find them so, and how many a head has."""
    if not config.ready:
        return None, 0
    batch, keys, heads, columns = problem.v.shape
    rows = -(-keys // config.tile.n) * config.tile.n
    ready = workspace.empty(problem.device, (batch, heads, rows * columns), problem.v.dtype)
    compiled = problem.device.compile(kernels.get("attention.sm90.values"), {"dv": columns})
    compiled.launch((-(-rows // (16 * WARPS)), heads, batch), (32 * WARPS,), (
        problem.v, *steps(problem.v, 1, 2, 0), ready, keys, rows))
    return ready, rows


def tunables(problem: Problem, config: Config) -> dict[str, Value]:
    """The variant of the kernel."""
    tile, out = config.tile, dtypes.of(problem.out.dtype)
    assert out is not None  # checked with the other arguments
    return {"dtype": out.name, "d": problem.d, "dv": problem.dv, "n": tile.n, "wgs": tile.wgs,
            "stages": tile.stages, "mask": problem.mask.policy, "keys": problem.lengths.policy,
            "turns": config.turns if tile.wgs > 1 else 0, "early": config.early,
            "held": int(config.held), "ready": int(config.ready), "lowered": int(config.lowered),
            "polys": config.polys}


def _scales(problem: Problem) -> tuple[Any, ...]:
    """Factors by sequence and head; q's may be those of k's heads."""
    given = problem.scales
    share = 1 if given.q is None else max(problem.heads // given.q.shape[1], 1)
    return (given.values, given.q, *_steps(given.q), share, given.k, *_steps(given.k), given.v,
            *_steps(given.v))


def _steps(array: Any) -> tuple[int, ...]:
    """From sequence to sequence and head to head; 0 where all have the same."""
    if array is None:
        return 0, 0
    return tuple(0 if size == 1 else step
                 for size, step in zip(array.shape, steps(array, 0, 1), strict=True))


def _lengths(problem: Problem, config: Config) -> tuple[Any, ...]:
    lengths = problem.lengths
    entries = 0 if lengths.table is None else lengths.table.shape[1]
    page = problem.k.shape[1] if lengths.policy == "paged" else 0
    return (lengths.q_offsets, lengths.q_lengths, lengths.k_offsets, lengths.k_lengths,
            lengths.table, entries, page, _box(problem, config))


def _box(problem: Problem, config: Config) -> int:
    """Rows of keys that one copy moves."""
    n = config.tile.n
    return math.gcd(problem.k.shape[1], n) if problem.lengths.policy == "paged" else n


def _query_map(problem: Problem, config: Config) -> Any:
    """[batch, heads / group, queries, group, d]; a box is a warpgroup's rows of 128 columns."""
    q, group = problem.q, config.group
    batch, queries, heads, d = q.shape
    row, head, sequence = _pitches(q)
    return problem.device.tensor_map(q, TensorMap(
        "u8", (d, group, queries, heads // group, batch), (head, row, head * group, sequence),
        (COLUMNS, group, ROWS // group, 1, 1)))


def _key_map(problem: Problem, array: Any, config: Config) -> Any:
    """k or v; see `attention/sm90/keys.cuh`."""
    batch, keys, heads, columns = array.shape
    row, head, sequence = _pitches(array)
    box = _box(problem, config)
    if problem.lengths.policy == "dense":
        return problem.device.tensor_map(array, TensorMap(
            "u8", (columns, keys, heads, batch, 1), (row, head, sequence, sequence),
            (COLUMNS, box, 1, 1, 1)))
    return problem.device.tensor_map(array, TensorMap(
        "u8", (columns, box, keys + box, heads, batch), (row, row, head, sequence),
        (COLUMNS, box, 1, 1, 1)), -box * row)


def _pitches(array: Any) -> tuple[int, int, int]:
    """Bytes from row to row, head to head and sequence to sequence of [batch, rows, heads, d];
    what a dimension of one element has for a stride means nothing."""
    fill = -(-array.shape[3] // 16) * 16
    sequence, row, head = (step if size > 1 else fill for size, step in
                           zip(array.shape[:3], array.strides[:3], strict=True))
    return row, head, sequence
