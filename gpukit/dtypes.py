"""Element types: one table that ties gpukit's names to NumPy, CUDA C++ and sizes.

fp8 formats are stored as uint8 because CuPy refuses the ml_dtypes fp8 dtypes; the format name
travels beside the array.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from gpukit.errors import ArgumentError


@dataclass(frozen=True)
class DType:
    """One element type.

    Attributes:
        name: gpukit's short name ("bf16").
        storage: NumPy dtype name of arrays that hold it ("bfloat16", "uint8" for fp8).
        ctype: type name in the kernels, as `cuda_src/common/types.cuh` defines it.
        itemsize: bytes per element.
        exact_bits: significand bits including the hidden one; half an ulp is 2**-exact_bits
            relative. 0 for types that are only moved.
    """

    name: str
    storage: str
    ctype: str
    itemsize: int
    exact_bits: int

    @property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy dtype of arrays that store this type."""
        return _numpy_dtype(self.storage)

    @property
    def value_dtype(self) -> np.dtype[Any]:
        """The NumPy dtype that gives the bytes their meaning (ml_dtypes for bf16 and fp8)."""
        return _numpy_dtype({"e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2"}.get(
            self.name, self.storage))


@cache
def _numpy_dtype(name: str) -> np.dtype[Any]:
    if name in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
        import ml_dtypes

        name = getattr(ml_dtypes, name)
    return np.dtype(name)


F32 = DType("f32", "float32", "float", 4, 24)
F16 = DType("f16", "float16", "f16", 2, 11)
BF16 = DType("bf16", "bfloat16", "bf16", 2, 8)
E4M3 = DType("e4m3", "uint8", "u8", 1, 0)
E5M2 = DType("e5m2", "uint8", "u8", 1, 0)

ALL = {d.name: d for d in (F32, F16, BF16, E4M3, E5M2)}
_ALIASES = {"float32": "f32", "float16": "f16", "half": "f16", "bfloat16": "bf16",
            "float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2"}


def parse(name: str) -> DType:
    """Look a type up by gpukit's name or NumPy's.

    Raises:
        ArgumentError: unknown name; lists the known ones.
    """
    dtype = ALL.get(_ALIASES.get(name, name))
    if dtype is None:
        raise ArgumentError(f"dtype {name!r} is unknown; known dtypes: {', '.join(ALL)}")
    return dtype


_BY_STORAGE = {"float32": F32, "float16": F16, "bfloat16": BF16}


@cache
def of(dtype: DTypeLike) -> DType | None:
    """The gpukit type of a native NumPy dtype (or its name, or gpukit's), None for all others.

    uint8 is None: whether it holds integers or an fp8 format, a dtype alone does not say.
    """
    if isinstance(dtype, str) and dtype in ALL:
        return ALL[dtype]
    try:
        resolved = np.dtype(dtype)
    except TypeError:
        return None
    return _BY_STORAGE.get(resolved.name) if resolved.isnative else None
