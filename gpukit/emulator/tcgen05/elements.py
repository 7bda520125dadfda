"""Elements of A and B as the fifth-generation tensor core finds them: bits to binary64 numbers.

In shared memory K (or M, N) runs over chunks of 16 bytes. Kinds f8f6f4 and mxf8f6f4 give every
chunk 16 elements: those of 6 bits fill its first 12 bytes, those of 4 bits its first 8, the rest is
padding. Kinds mxf4 and mxf4nvf4 pack 32 elements of 4 bits into a chunk.

In tensor memory 32-bit cells hold elements of 4 and 6 bits in containers of 8 bits (6 bits: the
low ones, 4 bits: the middle ones), except that mxf4 and mxf4nvf4 pack eight of 4 bits into a cell.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import ml_dtypes
import numpy as np

from gpukit.emulator.mma.formats import FORMATS

Widen = Callable[[Any], Any]
CHUNK = 16


@dataclass(frozen=True, eq=False, slots=True)
class Element:
    """One element type of one kind of MMA.

    ``from_shared`` turns uint32 words (..., 4 * chunks) into float64 (..., per_chunk * chunks),
    ``from_tensor`` cells (..., n) into (..., per_cell * n). Every value is exact.
    """

    name: str
    per_chunk: int
    per_cell: int
    from_shared: Widen
    from_tensor: Widen

    @property
    def bits(self) -> int:
        """Bits of shared memory that an element takes, padding included."""
        return 8 * CHUNK // self.per_chunk

    @property
    def used(self) -> int:
        """Bytes of a chunk that hold elements; the rest is padding."""
        return self.per_chunk * _SMALL.get(self.name, self.bits) // 8


@lru_cache(maxsize=4)
def small_floats(name: str) -> Any:
    """float64[2**bits]: the value of every pattern of a type of 4 or 6 bits."""
    dtype = np.dtype(getattr(ml_dtypes, f"float{_SMALL[name]}_{name}fn"))
    return np.arange(1 << _SMALL[name], dtype=np.uint8).view(dtype).astype(np.float64)


_SMALL = {"e2m1": 4, "e2m3": 6, "e3m2": 6}


def _chunk_bytes(words: Any) -> Any:
    return words.view(np.uint8).reshape(*words.shape[:-1], -1, CHUNK)


def _nibbles(name: str, packed: Any) -> Any:
    table = small_floats(name)
    pairs = np.stack([table[packed & 15], table[packed >> 4]], axis=-1)
    return pairs.reshape(*packed.shape[:-1], -1)


def _padded_nibbles(name: str) -> Widen:
    def widen(words: Any) -> Any:
        values = _nibbles(name, _chunk_bytes(words)[..., : CHUNK // 2])
        return values.reshape(*words.shape[:-1], -1)

    return widen


def _padded_six_bits(name: str) -> Widen:
    def widen(words: Any) -> Any:
        groups = _chunk_bytes(words)[..., :12].astype(np.uint32).reshape(*words.shape[:-1], -1, 3)
        joined = groups[..., 0] | groups[..., 1] << 8 | groups[..., 2] << 16  # four elements
        codes = joined[..., None] >> (6 * np.arange(4, dtype=np.uint32)) & 63
        return small_floats(name)[codes].reshape(*words.shape[:-1], -1)

    return widen


def _containers(name: str) -> Widen:
    shift = 2 if _SMALL[name] == 4 else 0
    codes = np.arange(256) >> shift & (1 << _SMALL[name]) - 1
    return lambda cells: small_floats(name)[codes].take(cells.view(np.uint8))


def _packed_nibbles(name: str) -> Widen:
    return lambda words: _nibbles(name, words.view(np.uint8))


def _plain(name: str) -> Element:
    known = FORMATS[name]
    return Element(name, 128 // known.bits, 32 // known.bits, known.widen, known.widen)


PLAIN = {n: _plain(n) for n in ("f16", "bf16", "tf32", "e4m3", "e5m2", "s8", "u8")}
PADDED = {
    "e2m1": Element("e2m1", 16, 4, _padded_nibbles("e2m1"), _containers("e2m1")),
    "e2m3": Element("e2m3", 16, 4, _padded_six_bits("e2m3"), _containers("e2m3")),
    "e3m2": Element("e3m2", 16, 4, _padded_six_bits("e3m2"), _containers("e3m2")),
}
PACKED_E2M1 = Element("e2m1", 32, 8, _packed_nibbles("e2m1"), _packed_nibbles("e2m1"))
