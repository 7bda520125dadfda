"""cvt.rs: the number is rounded away from zero if random bits and what is cut off carry."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpukit.emulator.alu.formats import F64, canonical, limited, neighbours, relu
from gpukit.emulator.instructions import Expr, Modifiers, Unsupported
from gpukit.emulator.ptx.types import TYPES, PtxType

_RANDOM_BITS = {"f16x2": 13, "bf16x2": 16}  # bits that are cut off a normal binary32 number


def stochastic_conversion(modifiers: Modifiers, to: PtxType) -> Expr:
    """Two binary32 numbers into a pair; of ``rbits`` each half is for one of them.

    Subnormal results lose more bits than there are random ones; the upper ones take part then. (The
    ISA does not say; nor does its text say which random bits the types of 8 and fewer bits use.)
    """
    from gpukit.emulator.alu.convert import clamp_finite

    if to.name not in _RANDOM_BITS:
        raise Unsupported(f"stochastic rounding to {to} is not supported")
    modifiers.drop("f32")
    clamp, finite = modifiers.flag("relu"), modifiers.flag("satfinite")
    bits = _RANDOM_BITS[to.name]

    def run(a: Any, b: Any, rbits: Any) -> Any:
        values = np.stack([b, a], axis=-1).astype(F64)
        random = np.stack([rbits & 0xFFFF, rbits >> 16], axis=-1) & (1 << bits) - 1
        pair = limited(_rounded(values, random, bits, to.dtype), to.dtype, "rn")
        pair = clamp_finite(pair) if finite else pair
        return canonical(relu(pair) if clamp else pair)

    f32 = TYPES["f32"]
    return Expr(run, (f32, f32, TYPES["u32"]), to, category="convert")


def _rounded(values: Any, random: Any, bits: int, dtype: Any) -> Any:
    """On the grid of ``dtype``, its upper end apart."""
    size = np.abs(values)
    low, high = neighbours(size, dtype)
    with np.errstate(invalid="ignore"):
        cut = np.floor((size - low) / (high - low) * 2.0**bits)
    up = cut + random >= 2.0**bits  # NaN where nothing is cut off: no carry
    return np.copysign(np.where(up, high, low), values)
