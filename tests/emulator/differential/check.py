"""Compares outputs with recorded ones, as the case demands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .model import Array, Comparison, Exact, Ulps

_MANTISSA = {"f2": 10, "f4": 23, "f8": 52, "bf16": 7}


@dataclass(frozen=True)
class Difference:
    """``wrong`` of ``total`` elements differ too much.

    ``worst`` is the largest distance found, in ulp for ``Ulps``, as a fraction of the bound for
    ``Within`` and 0 for ``Exact``; ``example`` shows the first wrong element.
    """

    wrong: int
    total: int
    worst: float
    example: str = ""


def compare(comparison: Comparison, want: list[bytes], got: list[Array]) -> Difference:
    """All outputs of a case."""
    if [len(w) for w in want] != [g.nbytes for g in got]:
        return Difference(1, 1, 0, "sizes differ")
    parts = [_one(comparison, w, g) for w, g in zip(want, got, strict=True)]
    example = next((f"output {k}, {p.example}" for k, p in enumerate(parts) if p.wrong), "")
    return Difference(sum(p.wrong for p in parts), sum(p.total for p in parts),
                      max(p.worst for p in parts), example)  # fmt: skip


def _one(comparison: Comparison, want: bytes, got: Array) -> Difference:
    raw = np.ascontiguousarray(got).reshape(-1)
    raw = raw.view(f"u{raw.dtype.itemsize}")
    if not isinstance(comparison, Exact):
        size = 2 if comparison.dtype == "bf16" else int(comparison.dtype[1])
        raw = raw.view(f"u{size}")
    recorded = np.frombuffer(want, raw.dtype)
    if isinstance(comparison, Exact):
        bad, worst = raw != recorded, 0.0
    else:
        bad, worst = _distances(comparison, recorded, raw)
    at = int(bad.argmax()) if bad.size else 0
    example = f"element {at}: 0x{int(recorded[at]):x} recorded, 0x{int(raw[at]):x} emulated"
    return Difference(int(bad.sum()), bad.size, worst, example if bad.any() else "")


def _distances(comparison: Any, want: Array, got: Array) -> tuple[Array, float]:
    a, b = _numbers(want, comparison.dtype), _numbers(got, comparison.dtype)
    with np.errstate(all="ignore"):
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        error = np.where(same, 0, np.abs(a - b))
        if isinstance(comparison, Ulps):
            ulps = np.where(same, 0, _ulps(want, got))
            close = (ulps <= comparison.ulps) | (error <= comparison.absolute)
            counted = ulps[~(error <= comparison.absolute) | (comparison.absolute == 0)]
            return ~(same | close), float(counted.max(initial=0))
        bound = comparison.absolute + comparison.relative * np.maximum(np.abs(a), np.abs(b))
        share = np.where(same, 0, error / bound)
        return ~(share <= 1), float(np.nan_to_num(share, nan=np.inf).max(initial=0))


def _numbers(bits: Array, dtype: str) -> Array:
    if dtype == "bf16":
        return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)
    return bits.view(dtype).astype(np.float64)


def _ulps(a: Array, b: Array) -> Array:
    """How many representable numbers lie between."""

    def ordered(bits: Array) -> Array:
        top = 8 * bits.dtype.itemsize - 1
        magnitude = (bits & bits.dtype.type((1 << top) - 1)).astype(np.float64)
        return np.where(bits >> bits.dtype.type(top), -magnitude, magnitude)

    return np.abs(ordered(a) - ordered(b))
