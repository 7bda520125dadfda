"""What `gpukit bench matmul` calls a dtype: how operands are stored, and how they are multiplied.

8-bit floats lie in bytes on a GPU, since CuPy has no dtype for them, and in arrays of ml_dtypes
where they are emulated.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from gpukit import dtypes
from gpukit.dtypes import DType

#: Random 8-bit operands are rounded in parts of so many elements: a whole one has no room to spare.
_PART = 1 << 24


@dataclass(frozen=True)
class Kind:
    """One value of the dtype axis; ``out`` is the type of C unless asked otherwise."""

    name: str
    stored: DType
    out: str

    @property
    def eight_bit(self) -> bool:
        """Whether operands have scales and sums may be fast."""
        return self.stored.itemsize == 1

    def array_dtype(self, emulated: bool) -> np.dtype[Any]:
        """The dtype of arrays that hold such operands."""
        return self.stored.value_dtype if emulated else self.stored.numpy

    def words(self, fast: bool) -> dict[str, Any]:
        """What `gpukit.matmul` must be told besides the arrays."""
        if self.eight_bit:
            return {"dtype_a": self.name, "dtype_b": self.name, "fast_accum": fast}
        return {"tf32": True} if self.name == "tf32" else {}

    def multiply(self, fast: bool) -> str:
        """What `gpukit.reference.matmul.bound` calls it."""
        if self.eight_bit:
            return "fp8_fast" if fast else "fp8"
        return "tf32" if self.name == "tf32" else "exact"


KINDS = {kind.name: kind for kind in (
    Kind("f32", dtypes.F32, "f32"), Kind("tf32", dtypes.F32, "f32"),
    Kind("f16", dtypes.F16, "f16"), Kind("bf16", dtypes.BF16, "bf16"),
    Kind("e4m3", dtypes.E4M3, "bf16"), Kind("e5m2", dtypes.E5M2, "bf16"),
)}  # fmt: skip


def normal(xp: Any, rng: Any, shape: tuple[int, int], factor: float, kind: Kind,
           emulated: bool) -> Any:
    """Normal values, times ``factor`` where the type has mantissa to spare."""
    if kind.eight_bit:
        return _rounded_normal(xp, rng, shape, kind).view(kind.array_dtype(emulated))
    values = rng.standard_normal(shape, dtype=xp.float32)
    values *= factor
    return values.astype(kind.stored.numpy, copy=False)


def wide(xp: Any, words: Any, stored: DType) -> Any:
    """Words of an array as the float32 values they hold, where they are.

    bf16 widens much faster on a GPU than on its host.
    """
    if stored.itemsize > 1:
        return words.view(stored.numpy).astype(np.float32)
    return xp.take(xp.asarray(_values(stored)), words.astype(np.int32))


def _rounded_normal(xp: Any, rng: Any, shape: tuple[int, int], kind: Kind) -> Any:
    """Bytes: the nearest of the type's numbers, the largest one beyond it."""
    codes = xp.empty(shape[0] * shape[1], np.uint8)
    for start in range(0, codes.size, _PART):
        part = codes[start:start + _PART]
        part[...] = encode(xp, rng.standard_normal(part.size, dtype=xp.float32), kind)
    return codes.reshape(shape)


def encode(xp: Any, values: Any, kind: Kind) -> Any:
    """float32 values as bytes of an 8-bit type. A tie goes to the smaller magnitude."""
    magnitudes = xp.searchsorted(xp.asarray(_midpoints(kind.stored)), xp.abs(values))
    return magnitudes.astype(np.uint8) | (values < 0).astype(np.uint8) << 7


@cache
def _values(stored: DType) -> Any:
    """The float32 value of every byte."""
    return np.arange(256).astype(np.uint8).view(stored.value_dtype).astype(np.float32)


@cache
def _midpoints(stored: DType) -> Any:
    """Where rounding goes from one finite magnitude, in the order of its code, to the next."""
    magnitudes = _values(stored)[:128]
    finite = magnitudes[np.isfinite(magnitudes)]
    return (finite[1:] + finite[:-1]) / 2
