"""Logits edited in place, and counts kept: bitmasks, penalties, scatters."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gpukit import devices, kernels
from gpukit.errors import ArgumentError
from gpukit.ops import arrays
from gpukit.ops.sampling import inputs, rows
from gpukit.ops.sampling.inputs import Penalties
from gpukit.ops.sampling.rows import Rows

_THREADS = 256
_LARGEST = {"f16": 65504.0, "bf16": (2 - 2.0**-7) * 2.0**127, "f32": (2 - 2.0**-23) * 2.0**127}


def apply_bitmask(logits: Any, bitmask: Any, *, row_indices: Any = None,
                  fill: float = float("-inf")) -> Any:
    """Set the logits of forbidden tokens, in place.

    Args:
        logits: [B, V], float32, float16 or bfloat16, any row stride.
        bitmask: uint32 or int32 [n, ceil(V / 32) or more]; bit v % 32 of word v // 32 allows v.
            Columns beyond the mask's bits do not exist: it covers V.
        row_indices: int32 [n], the row that each mask is for, each at most once (rows that
            do not exist are skipped); without them n is B.
        fill: what forbidden logits become, within the type's range.

    Returns:
        `logits`.
    """
    given = _writable("apply_bitmask", "logits", logits)
    count, fill = given.count, _fill(fill, given)
    if row_indices is not None:
        _, row_indices = devices.adopt("row_indices", row_indices, "apply_bitmask")
        count = row_indices.size
        row_indices = rows.vector("apply_bitmask", "row_indices", row_indices, (count,), "int32",
                                  given.device)
    if bitmask is None:
        raise ArgumentError("apply_bitmask: bitmask is None; accepted: int32 or uint32 "
                            f"[{count}, {-(-given.width // 32)} or more]")
    mask, mask_pitch = inputs.bitmask("apply_bitmask", bitmask, given, count)
    if count and given.count:
        kernel = given.device.compile(kernels.get("sampling.bitmask"), {"dtype": given.dtype.name})
        kernel.launch((-(-given.width // (32 * _THREADS)) * count,), (_THREADS,),
                      (given.array, mask, row_indices, given.pitch, mask_pitch, given.width,
                       given.count, fill))
    return given.array


def apply_penalties(logits: Any, penalties: Penalties) -> Any:
    """Penalise logits in place, as `sample` does: repetition, then frequency and presence.

    Infinite logits and NaN stay.

    Args:
        logits: [B, V], float32, float16 or bfloat16, any row stride.
        penalties: the CSR lists and the strengths.

    Returns:
        `logits`.
    """
    given = _writable("apply_penalties", "logits", logits)
    if penalties is None:
        raise ArgumentError("apply_penalties: penalties must be sampling.Penalties, got NoneType")
    lists, strengths, numbers = inputs.penalties("apply_penalties", penalties, given)
    if given.count:
        kernel = given.device.compile(kernels.get("sampling.penalties"),
                                      {"dtype": given.dtype.name})
        kernel.launch((given.count,), (_THREADS,), (given.array, *lists, *strengths, given.pitch,
                                                    given.width, *numbers))
    return given.array


def update_counts(penalties: Penalties, tokens: Any, *, full: Any = None) -> None:
    """Count each row's new token in the CSR lists, in place: one more, or a free slot (-1).

    Args:
        penalties: the lists, with free slots at each row's end.
        tokens: int64 [B], what was drawn; negative: none.
        full: uint8 [B], written: 1 where a token found no slot and was lost.
    """
    device, drawn = devices.adopt("tokens", tokens, "update_counts")
    if drawn.ndim != 1:
        raise ArgumentError(f"update_counts: tokens has shape {drawn.shape}; accepted: [B]")
    b = drawn.shape[0]
    drawn = rows.vector("update_counts", "tokens", drawn, (b,), "int64", device)
    lists = inputs.lists("update_counts", penalties, b, device)
    for name, array in (("tokens", lists[1]), ("counts", lists[2])):
        arrays.check_writable("update_counts", f"penalties.{name}", array)
    if full is not None:
        full = rows.output("update_counts", "full", full, (b,), "uint8", device)
    if b:
        kernel = device.compile(kernels.get("sampling.count"), {})
        kernel.launch((-(-b // (_THREADS // 32)),), (_THREADS,), (*lists, drawn, full, b))


def scatter(matrix: Any, indices: Any, values: Any) -> Any:
    """Write to (row, column) pairs of a matrix, in place; pairs outside of it are skipped.

    Args:
        matrix: [R, C], float32, float16 or bfloat16, any row stride.
        indices: int32 or int64 [n, 2]. Of values for the same place one is written, whichever.
        values: a number for all, or [n] of the matrix's type.

    Returns:
        `matrix`.
    """
    given = _writable("scatter", "matrix", matrix)
    device, pairs = devices.adopt("indices", indices, "scatter")
    arrays.check_device("scatter", "indices", device, given.device)
    if pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.dtype.name not in ("int32", "int64"):
        raise ArgumentError(f"scatter: indices is {pairs.dtype}{list(pairs.shape)}; accepted: "
                            "int32 or int64 [n, 2]")
    n = pairs.shape[0]
    pairs = rows.vector("scatter", "indices", pairs, (n, 2), pairs.dtype, device)
    number = 0.0
    if isinstance(values, int | float | np.number):
        values, number = None, arrays.check_scalar("scatter", "values", values)
    else:
        values = rows.vector("scatter", "values", values, (n,), given.array.dtype, device)
    if n and given.count:
        kernel = device.compile(kernels.get("sampling.scatter"), {
            "dtype": given.dtype.name, "index": "i64" if pairs.dtype.itemsize == 8 else "i32"})
        kernel.launch((-(-n // _THREADS),), (_THREADS,), (
            given.array, pairs, values, given.pitch, given.count, given.width, n, number))
    return given.array


def _writable(function: str, name: str, array: Any) -> Rows:
    given = rows.adopt(function, name, array)
    arrays.check_writable(function, name, given.array)
    arrays.check_distinct(function, name, given.array)
    return given


def _fill(value: Any, given: Rows) -> float:
    """What forbidden logits become: infinite, or a number that their type can hold."""
    number = arrays.check_scalar("apply_bitmask", "fill", value)
    most = _LARGEST[given.dtype.name]
    if math.isfinite(number) and abs(number) > most:
        raise ArgumentError(f"apply_bitmask: fill={number} does not fit in logits' dtype "
                            f"{given.array.dtype}; accepted: up to {most}, or infinity")
    return number
