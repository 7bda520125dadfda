"""Copies of q, k and v to shared memory: the boxes of tensor maps, and pages."""

from __future__ import annotations

import math
from typing import Any

from gpukit import dtypes
from gpukit.devices.tensor_map import TensorMap
from gpukit.kernels.attention import ROW, ROWS
from gpukit.ops.attention.problem import Problem


def box(problem: Problem, rows: int) -> int:
    """Rows of keys that one copy moves of `rows`: no more than stand together in a page."""
    return math.gcd(problem.k.shape[1], rows) if problem.lengths.policy == "paged" else rows


def pages(problem: Problem, rows: int) -> tuple[int, int, int]:
    """Entries of the table per sequence, keys of a page, and those of a copy of `rows`."""
    table = problem.lengths.table
    entries, keys = (0, 0) if table is None else (table.shape[1], problem.k.shape[1])
    return entries, keys, box(problem, rows)


def maps(problem: Problem, group: int, rows: int) -> tuple[Any, ...]:
    """Tensor maps of q, k and v; arguments as of `requests`."""
    requested = requests(problem, group, rows)
    return tuple(problem.device.tensor_map(array, *request) for array, request in zip(
        (problem.q, problem.k, problem.v), requested, strict=True))


def requests(problem: Problem, group: int, rows: int) -> tuple[tuple[TensorMap, int], ...]:
    """What tensor maps of q, k and v are asked for, and how far from an array they start.

    Args:
        group: heads of q that share a tile.
        rows: keys of a step, or of a CTA's share of one.
    """
    moved = box(problem, rows)
    return (_query_map(problem, group), _key_map(problem, problem.k, moved),
            _key_map(problem, problem.v, moved))


def _element(array: Any) -> tuple[str, int]:
    """What tensor maps call the elements, and how many a row of a slab has."""
    found = dtypes.of(array.dtype)
    return found.name if found else "u8", ROW // int(array.dtype.itemsize)


def _query_map(problem: Problem, group: int) -> tuple[TensorMap, int]:
    """[batch, heads / group, queries, group, d]; a box is a warpgroup's rows of a slab."""
    q, (element, slab) = problem.q, _element(problem.q)
    batch, queries, heads, d = q.shape
    row, head, sequence = pitches(q)
    return TensorMap(
        element, (d, group, queries, heads // group, batch),
        (head, row, head * group, sequence), (slab, group, ROWS // group, 1, 1)), 0


def _key_map(problem: Problem, array: Any, rows: int) -> tuple[TensorMap, int]:
    """k or v; see `attention/sm90/keys.cuh`."""
    element, slab = _element(array)
    batch, keys, heads, columns = array.shape
    row, head, sequence = pitches(array)
    if problem.lengths.policy == "dense":
        return TensorMap(
            element, (columns, keys, heads, batch, 1), (row, head, sequence, sequence),
            (slab, rows, 1, 1, 1)), 0
    return TensorMap(
        element, (columns, rows, keys + rows, heads, batch), (row, row, head, sequence),
        (slab, rows, 1, 1, 1)), -rows * row


def pitches(array: Any) -> tuple[int, int, int]:
    """Bytes from row to row, head to head and sequence to sequence of [batch, rows, heads, d];
    what a dimension of one element has for a stride means nothing."""
    fill = -(-array.shape[3] * array.dtype.itemsize // 16) * 16
    sequence, row, head = (step if size > 1 else fill for size, step in
                           zip(array.shape[:3], array.strides[:3], strict=True))
    return row, head, sequence
