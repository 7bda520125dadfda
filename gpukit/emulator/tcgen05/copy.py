"""What ``tcgen05.cp`` moves: rows of shared memory, the lanes that receive them, decompression.

The source is K-major as A and B are (``operands.py``). A chunk of 16 bytes fills four cells of a
lane. Compressed chunks hold 16 elements of 4 or 6 bits in their first 8 or 12 bytes, and fill as
many cells with containers of 8 bits: those of 6 bits are the low ones, those of 4 bits the middle
ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from gpukit.emulator.mma.operands import CHUNK, PERIOD, Layout, SharedMatrix
from gpukit.emulator.tcgen05.descriptors import Descriptor, check, decode, refuse
from gpukit.emulator.tcgen05.operands import _k_major, _swizzle
from gpukit.emulator.tcgen05.tmem import LANES

CELLS = CHUNK // 4  # of a chunk
_LANE = np.arange(LANES)


@dataclass(frozen=True, slots=True)
class Shape:
    """``rows`` rows of ``chunks`` chunks; ``sources`` names the row that each lane receives.

    Without ``sources`` row i goes to one lane of warp i, the one that the address names.
    """

    rows: int
    chunks: int
    sources: Any = None

    @property
    def columns(self) -> int:
        """Cells of a lane that are written."""
        return CELLS * self.chunks


# By shape and multicast, as in the instruction.
SHAPES = {
    "128x256b": Shape(128, 2, _LANE),
    "128x128b": Shape(128, 1, _LANE),
    "4x256b": Shape(4, 2),
    "64x128b.warpx2::02_13": Shape(64, 1, _LANE % 64),
    "64x128b.warpx2::01_23": Shape(64, 1, _LANE // 64 * 32 + _LANE % 32),
    "32x128b.warpx4": Shape(32, 1, _LANE % 32),
}


def _from_four_bits(chunks: Any) -> Any:
    pairs = np.stack([chunks[..., :8] & 15, chunks[..., :8] >> 4], axis=-1)
    return (pairs << 2).reshape(chunks.shape)


def _from_six_bits(chunks: Any) -> Any:
    groups = chunks[..., :12].astype(np.uint32).reshape(*chunks.shape[:-1], 4, 3)
    joined = groups[..., 0] | groups[..., 1] << 8 | groups[..., 2] << 16  # four elements
    codes = joined[..., None] >> np.arange(0, 24, 6, dtype=np.uint32) & 63
    return codes.astype(np.uint8).reshape(chunks.shape)


@dataclass(frozen=True, slots=True)
class Packing:
    """How a chunk is packed: its first ``used`` bytes count; ``unpack`` takes uint8 [..., 16]."""

    used: int
    unpack: Callable[[Any], Any] | None


PLAIN = Packing(CHUNK, None)
PACKINGS = {"b4x16_p64": Packing(8, _from_four_bits), "b6x16_p32": Packing(12, _from_six_bits)}


class CopySource(SharedMatrix):
    """The rows that a descriptor selects in a CTA's shared memory."""

    def __init__(self, descriptor: Descriptor, shape: Shape, packing: Packing, end: int) -> None:
        if descriptor.atom != CHUNK:
            raise refuse(descriptor, "a swizzle with 32-byte atoms is for M- or N-major tf32")
        check(descriptor, True, shape.chunks * CHUNK, False)
        self.descriptor = descriptor
        self.k_major, self.packing, self.used = True, packing, packing.used
        phase = descriptor.start % PERIOD
        self.origin = descriptor.start - phase
        self.layout = _layout(descriptor, phase, shape)
        self._ranges = {}
        self._check_bounds(end)

    def cells(self, store: Any) -> Any:
        """uint32 [row, cell]: what lies in a CTA's shared memory now, decompressed."""
        words = self.fetch(store)
        if self.packing.unpack is None:
            return words
        chunks = words.view(np.uint8).reshape(*self.layout.chunks.shape, CHUNK)
        return self.packing.unpack(chunks).reshape(len(words), -1).view(np.uint32)


def _layout(descriptor: Descriptor, phase: int, shape: Shape) -> Layout:
    d = descriptor
    plain = phase + _k_major(d.span, d.leading, d.stride, shape.rows)[:, : shape.chunks]
    addresses = _swizzle(plain, d.span, d.atom, d.base)
    high = int(addresses.max()) + CHUNK
    return Layout(addresses // CHUNK, int(addresses.min()), high, 0, 0)


@lru_cache(maxsize=1024)
def source_of(raw: int, shape: str, packing: str, end: int) -> CopySource:
    """The rows that a descriptor means. Raises ``DescriptorError``."""
    return CopySource(decode(raw), SHAPES[shape], PACKINGS.get(packing, PLAIN), end)
