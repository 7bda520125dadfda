"""Element formats of tensor-core operands: from packed 32-bit words to exact binary64 numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import ml_dtypes
import numpy as np

_TF32_MASK = np.uint32(0xFFFFE000)  # the hardware ignores the low 13 bits


@dataclass(frozen=True, slots=True)
class Format:
    """How elements of ``bits`` bits lie in words, lowest bits first.

    ``widen`` turns a C-contiguous array (..., n) of uint32 words (uint64 for f64) into float64
    (..., n * elements per word); every value is exact. ``family`` names the FLOP counter.
    """

    name: str
    bits: int
    kind: str  # "float", "int" or "bit"
    family: str
    widen: Callable[[Any], Any]


def _native(dtype: Any) -> Callable[[Any], Any]:
    return lambda words: words.view(dtype).astype(np.float64)


def _bf16(words: Any) -> Any:
    return (words.view(np.uint16).astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def _tf32(words: Any) -> Any:
    return (words & _TF32_MASK).view(np.float32).astype(np.float64)


def _bits(words: Any) -> Any:
    return np.unpackbits(words.view(np.uint8), axis=-1, bitorder="little").astype(np.float64)


def _bytewise(dtype: Any) -> Callable[[Any], Any]:
    return lambda words: _byte_table(dtype).take(words.view(np.uint8))


@lru_cache(maxsize=8)
def _byte_table(dtype: Any) -> Any:
    return np.arange(256, dtype=np.uint8).view(dtype).astype(np.float64)


def _nibbles(signed: bool) -> Callable[[Any], Any]:
    def widen(words: Any) -> Any:
        pairs = _nibble_table(signed)[words.view(np.uint8)]
        return pairs.reshape(*words.shape[:-1], -1)

    return widen


@lru_cache(maxsize=2)
def _nibble_table(signed: bool) -> Any:
    """float64[256, 2]: the two 4-bit numbers of each byte."""
    byte = np.arange(256)
    pairs = np.stack([byte & 15, byte >> 4], axis=1)
    return np.where(signed & (pairs > 7), pairs - 16, pairs).astype(np.float64)


FORMATS: dict[str, Format] = {
    f.name: f
    for f in (
        Format("f16", 16, "float", "f16", _native(np.float16)),
        Format("bf16", 16, "float", "bf16", _bf16),
        Format("tf32", 32, "float", "tf32", _tf32),
        Format("e4m3", 8, "float", "f8", _bytewise(np.dtype(ml_dtypes.float8_e4m3fn))),
        Format("e5m2", 8, "float", "f8", _bytewise(np.dtype(ml_dtypes.float8_e5m2))),
        Format("f64", 64, "float", "f64", lambda words: words.view(np.float64)),
        Format("s8", 8, "int", "i8", _native(np.int8)),
        Format("u8", 8, "int", "i8", _native(np.uint8)),
        Format("s4", 4, "int", "i4", _nibbles(signed=True)),
        Format("u4", 4, "int", "i4", _nibbles(signed=False)),
        Format("b1", 1, "bit", "b1", _bits),
    )
}
