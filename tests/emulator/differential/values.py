"""Inputs: corners of every type, and reproducible random bit patterns."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from .model import Array


def random_bits(seed: str, count: int) -> Array:
    """uint64: a counter-based generator (splitmix64), the same on every machine."""
    start = np.uint64(zlib.crc32(seed.encode()) << 32)
    with np.errstate(over="ignore"):
        z = (start + np.arange(1, count + 1, dtype=np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def integers(seed: str, low: int, high: int, count: int) -> Array:
    """int64 in [low, high)."""
    return low + (random_bits(seed, count) >> np.uint64(8)).astype(np.int64) % (high - low)


@dataclass(frozen=True)
class Kind:
    """A PTX type as this suite sees it: storage, float shape and corner values (raw bits)."""

    bits: int
    exponent: int = 0  # bits; 0 for integers
    mantissa: int = 0
    corners: tuple[int, ...] = ()
    pack: int = 1

    @property
    def storage(self) -> np.dtype[Any]:
        return np.dtype(f"u{max(self.bits, 8) // 8}")

    @property
    def element(self) -> np.dtype[Any]:
        return np.dtype(f"u{max(self.bits // self.pack, 8) // 8}")


def _integer_corners(bits: int) -> tuple[int, ...]:
    top, half = 1 << (bits - 1), bits // 2
    values = [0, 1, top, -1, top - 1, 2, -2, top + 1, (1 << half) - 1, 1 << half, 3, -7,
              0x5555555555555555, 0xAAAAAAAAAAAAAAAA, 0x80, 0xFF, 0x7F, 31, 32, 63, 64,
              100]  # fmt: skip
    return tuple(dict.fromkeys(v & ((1 << bits) - 1) for v in values))


def _float_corners(exponent: int, mantissa: int) -> tuple[int, ...]:
    """Core corners first (cross products take those), then halfway cases and integers' edges."""
    sign = 1 << (exponent + mantissa)
    inf, bias = ((1 << exponent) - 1) << mantissa, (1 << (exponent - 1)) - 1
    one, quiet = bias << mantissa, 1 << (mantissa - 1)
    core = [0, sign, one, sign | one, inf, inf | quiet, 1, sign | 1, sign | inf, inf - 1,
            inf | 1, 1 << mantissa, (1 << mantissa) - 1, one + 1]  # fmt: skip
    more = [sign | (inf - 1), sign | inf | quiet | 5, sign | inf | 3, sign | 1 << mantissa,
            sign | ((1 << mantissa) - 1), one - 1, 3, quiet, sign | one + 1]  # fmt: skip
    for power in (-1, 1, 7, 8, 15, 16, 31, 32, 63, 64, 10, -14, -15, -24, -25, -6, -7, -9, -10, -16,
                  -17, 23, 24, 52, 53, -126, -127, -133, -134, -149, -150):  # fmt: skip
        base = (bias + power) << mantissa
        if 0 < base < inf:
            more += [base, sign | base, base + 1, base - 1, base | quiet, sign | base | quiet,
                     base | quiet | quiet >> 1]  # fmt: skip
    return tuple(dict.fromkeys([*core, *more]))


def _float(bits: int, exponent: int, mantissa: int, pack: int = 1) -> Kind:
    return Kind(bits * pack, exponent, mantissa, _float_corners(exponent, mantissa), pack)


KINDS: dict[str, Kind] = {
    **{f"{k}{b}": Kind(b, corners=_integer_corners(b)) for k in "usb" for b in (8, 16, 32, 64)},
    "f16": _float(16, 5, 10),
    "bf16": _float(16, 8, 7),
    "f32": _float(32, 8, 23),
    "f64": _float(64, 11, 52),
    "f16x2": _float(16, 5, 10, 2),
    "bf16x2": _float(16, 8, 7, 2),
    "e4m3x2": Kind(16, corners=tuple(range(256)), pack=2),
    "e5m2x2": Kind(16, corners=tuple(range(256)), pack=2),
    **{n: Kind(32, corners=_integer_corners(16), pack=2) for n in ("u16x2", "s16x2")},
    "pred": Kind(8, corners=(0, 1)),
    "count": Kind(  # a u32 shift amount, position or length
        32, corners=(0, 1, 31, 32, 33, 7, 8, 16, 15, 63, 64, 65, 255, 256, 1 << 31, 0xFFFFFFFF)
    ),
    "trig": Kind(32),  # f32 in [-2 pi, 2 pi], where the documented error holds
    "lane": Kind(32),  # u32 below 32
}


def random_of(name: str, seed: str, count: int) -> Array:
    """Raw patterns of the kind's elements: any bits, moderate values, and few-bit mantissas."""
    kind = KINDS[name]
    raw = random_bits(seed, count)
    if name == "pred":
        return (raw & np.uint64(1)).astype(np.uint8)
    if name in ("count", "lane"):
        return (raw % np.uint64(70 if name == "count" else 32)).astype(np.uint32)
    if name == "trig":
        return (raw.astype(np.int64) / 2.0**63 * 6.2831).astype(np.float32).view(np.uint32)
    if kind.exponent:
        return _random_floats(kind, seed, raw)
    shifts = random_bits(seed + "shift", count) % np.uint64(kind.bits // kind.pack)
    narrowed = (raw & np.uint64(2 ** (kind.bits // kind.pack) - 1)) >> shifts
    return np.where(np.arange(count) % 2, raw, narrowed).astype(kind.element)


def _random_floats(kind: Kind, seed: str, raw: Array) -> Array:
    m, e = np.uint64(kind.mantissa), np.uint64(kind.exponent)
    more = random_bits(seed + "more", raw.size)
    mantissa = more & ((np.uint64(1) << m) - np.uint64(1))
    few = mantissa & ~((np.uint64(1) << (m - np.uint64(3))) - np.uint64(1))  # ties are frequent
    bias = (1 << (kind.exponent - 1)) - 1
    reach = min(bias - 2, kind.mantissa + 3)
    exponent = bias - reach + raw % np.uint64(2 * reach)
    sign = (more >> np.uint64(63)) << (e + m)
    which = np.arange(raw.size) % 3
    chosen = np.where(which == 1, mantissa, few) | exponent << m | sign
    return np.where(which == 0, raw, chosen).astype(kind.element)


def columns(names: tuple[str, ...], seed: str, count: int) -> list[Array]:
    """One array of storage words per operand: all combinations of corners, then random bits."""
    core = {1: 300, 2: 18, 3: 8, 4: 4}[len(names)]
    pools = [KINDS[name].corners[:core] or (0,) for name in names]
    crossed = list(product(*pools))[: count * 3 // 4]
    result = []
    for i, name in enumerate(names):
        kind = KINDS[name]
        corners = np.array([row[i] for row in crossed], np.uint64).astype(kind.element)
        if name in ("trig", "lane"):
            corners = corners[:0]
        parts = [_column(name, corners, f"{seed}/{i}/{part}", count) for part in range(kind.pack)]
        result.append(np.stack(parts, axis=1).reshape(-1).view(kind.storage))
    return result


def _column(name: str, corners: Array, seed: str, count: int) -> Array:
    """``count`` elements; of packed kinds the upper half has the corners in another order."""
    column = np.concatenate([corners, random_of(name, seed, count - corners.size)])
    return np.roll(column[::-1], 7) if seed.endswith("/1") and KINDS[name].pack > 1 else column
