"""Launching the Hopper forward kernel: tile, cluster, tensor maps and grid of a problem."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gpukit import dtypes, kernels
from gpukit.devices.tensor_map import TensorMap
from gpukit.kernels.attention import ROW, ROWS
from gpukit.kernels.spec import Value
from gpukit.ops.attention import pieces, tiles
from gpukit.ops.attention.counter import counter
from gpukit.ops.attention.problem import Problem
from gpukit.ops.attention.tiles import Tile
from gpukit.ops.matmul.maps import bound


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
    """
    p, share = problem, problem.heads // problem.kv_heads
    tile = tiles.choose(p.d, p.dv, p.mask.policy, p.queries)
    group = tiles.packing(p.queries, share, tile.rows)
    if p.mask.policy == "full" and p.lengths.policy == "dense":
        pairs = max(p.d, p.dv) >= 128 and -(-p.queries * group // tile.rows) % 2 == 0
        return Config(tile, group, 2 if pairs else 1)
    section = tiles.section(p.keys, p.d + p.dv, 2, p.kv_heads * p.batch) * share // group
    return Config(tile, group, section=section, dynamic=True)


def single(problem: Problem) -> Config:
    """One head per tile, one CTA for itself."""
    return Config(tiles.choose(problem.d, problem.dv, problem.mask.policy,
                               problem.queries))


def maps(problem: Problem, config: Config) -> tuple[Any, ...]:
    """Tensor maps of q, k and v."""
    requested = requests(problem, config.group, _box(problem, config))
    return tuple(problem.device.tensor_map(array, *request) for array, request in zip(
        (problem.q, problem.k, problem.v), requested, strict=True))


def launch(problem: Problem, config: Config | None = None) -> None:
    """Enqueue the kernel that fills out and lse."""
    bind(problem, config)(*map(problem.device.pointer, arrays(problem)))


def arrays(problem: Problem) -> tuple[Any, ...]:
    """What a bound launch takes, as pointers."""
    p, terms, lengths = problem, problem.terms, problem.lengths
    return (p.q, p.k, p.v, p.out, p.lse, terms.sinks, terms.slopes, terms.bias, terms.relative,
            lengths.q_offsets, lengths.q_lengths, lengths.k_offsets, lengths.k_lengths,
            lengths.table)


def bind(problem: Problem, config: Config | None = None) -> Callable[..., None]:
    """The launch of problems like this one, in other memory: call it with pointers to `arrays`."""
    p, c, device = problem, config or configure(problem), problem.device
    heads, m_tiles = p.heads // c.group, -(-p.queries * c.group // (c.tile.rows * c.ctas))
    clusters = min(m_tiles * heads * p.batch,
                   c.workers or device.properties.sm_count // c.ctas)
    enqueue = device.compile(kernels.get("attention.sm90.k5"), tunables(p, c)).bind(
        (clusters * c.ctas,), ((c.tile.wgs + 1) * 128,))
    map_q, map_k, map_v = (bound(device, *request) for request in requests(p, c.group, _box(p, c)))
    _, *out_steps, _, lse_token, lse_head, lse_batch = pieces.results(p)
    _, cap, _, slopes_step, _, *bias_steps, _, r0, r1, r2, extent = pieces.terms(p)
    sizes = (lse_token, lse_head, lse_batch, p.queries, p.keys, m_tiles, heads, p.batch, c.section,
             c.group, heads // p.kv_heads, *pieces.visible(p))
    pages, none = _pages(p, c), device.pointer(None)

    def call(q: Any, k: Any, v: Any, out: Any, lse: Any, sinks: Any, slopes: Any, bias: Any,
             relative: Any, *lengths: Any) -> None:
        tiles = device.pointer(counter(device)) if c.dynamic else none
        enqueue(map_q(q), map_k(k), map_v(v), out, *out_steps, lse, *sizes, sinks, cap, slopes,
                slopes_step, bias, *bias_steps, relative, r0, r1, r2, extent, *lengths, *pages,
                tiles)

    return call


def tunables(problem: Problem, config: Config) -> dict[str, Value]:
    """The variant of the kernel."""
    tile = config.tile
    return {"dtype": problem.dtype, "d": problem.d, "dv": problem.dv, "n": tile.n,
            "wgs": tile.wgs, "stages": tile.stages, "mask": problem.mask.policy,
            "keys": problem.lengths.policy, "terms": problem.terms.bits, "ctas": config.ctas,
            "turns": int(config.turns)}


def _pages(problem: Problem, config: Config) -> tuple[int, int, int]:
    """Entries of the table per sequence, and keys of a page and of a copy."""
    table = problem.lengths.table
    if table is None:
        return 0, 0, _box(problem, config)
    return table.shape[1], problem.k.shape[1], _box(problem, config)


def _box(problem: Problem, config: Config) -> int:
    """Rows of keys that one copy moves."""
    part = config.tile.n // config.ctas
    return math.gcd(problem.k.shape[1], part) if problem.lengths.policy == "paged" else part


def requests(problem: Problem, group: int, box: int) -> tuple[tuple[TensorMap, int], ...]:
    """What tensor maps of q, k and v are asked for, and how far from an array they start.

    Args:
        group: heads of q that share a tile.
        box: rows of keys that one copy moves.
    """
    return (_query_map(problem, group), _key_map(problem, problem.k, box),
            _key_map(problem, problem.v, box))


def _element(array: Any) -> tuple[str, int]:
    """What tensor maps call the elements, and how many a row of a slab has."""
    found = dtypes.of(array.dtype)
    return found.name if found else "u8", ROW // int(array.dtype.itemsize)


def _query_map(problem: Problem, group: int) -> tuple[TensorMap, int]:
    """[batch, heads / group, queries, group, d]; a box is a warpgroup's rows of a slab."""
    q, (element, slab) = problem.q, _element(problem.q)
    batch, queries, heads, d = q.shape
    row, head, sequence = _pitches(q)
    return TensorMap(
        element, (d, group, queries, heads // group, batch),
        (head, row, head * group, sequence), (slab, group, ROWS // group, 1, 1)), 0


def _key_map(problem: Problem, array: Any, box: int) -> tuple[TensorMap, int]:
    """k or v; see `attention/sm90/keys.cuh`."""
    element, slab = _element(array)
    batch, keys, heads, columns = array.shape
    row, head, sequence = _pitches(array)
    if problem.lengths.policy == "dense":
        return TensorMap(
            element, (columns, keys, heads, batch, 1), (row, head, sequence, sequence),
            (slab, box, 1, 1, 1)), 0
    return TensorMap(
        element, (columns, box, keys + box, heads, batch), (row, row, head, sequence),
        (slab, box, 1, 1, 1)), -box * row


def _pitches(array: Any) -> tuple[int, int, int]:
    """Bytes from row to row, head to head and sequence to sequence of [batch, rows, heads, d];
    what a dimension of one element has for a stride means nothing."""
    fill = -(-array.shape[3] * array.dtype.itemsize // 16) * 16
    sequence, row, head = (step if size > 1 else fill for size, step in
                           zip(array.shape[:3], array.strides[:3], strict=True))
    return row, head, sequence
