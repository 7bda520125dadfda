"""The PTX type names and the NumPy dtypes that hold them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np


@dataclass(frozen=True, slots=True)
class PtxType:
    """One fundamental type: ``kind`` is u, s, b, f (any float) or p; ``pack`` elements per value.

    ``bits`` is the width of the whole value and ``dtype`` that of one element.
    """

    name: str
    bits: int
    kind: str
    dtype: np.dtype[Any]
    pack: int = 1

    @property
    def is_float(self) -> bool:
        return self.kind == "f"

    @property
    def is_int(self) -> bool:
        return self.kind in "usb"

    @property
    def signed(self) -> bool:
        return self.kind == "s"

    @property
    def bytes(self) -> int:
        return self.bits // 8

    def __str__(self) -> str:
        return f".{self.name}"


def _table() -> dict[str, PtxType]:
    types = [PtxType("pred", 1, "p", np.dtype(np.bool_))]
    for bits in (8, 16, 32, 64):
        unsigned, signed = np.dtype(f"u{bits // 8}"), np.dtype(f"i{bits // 8}")
        types += [
            PtxType(f"u{bits}", bits, "u", unsigned),
            PtxType(f"b{bits}", bits, "b", unsigned),
        ]
        types += [PtxType(f"s{bits}", bits, "s", signed)]
        if bits > 8:
            types.append(PtxType(f"f{bits}", bits, "f", np.dtype(f"f{bits // 8}")))
    bf16 = np.dtype(ml_dtypes.bfloat16)
    types += [
        PtxType("b128", 128, "b", np.dtype(np.uint64), 2),
        PtxType("bf16", 16, "f", bf16),
        PtxType("tf32", 32, "f", np.dtype(np.float32)),
        PtxType("f16x2", 32, "f", np.dtype(np.float16), 2),
        PtxType("bf16x2", 32, "f", bf16, 2),
        PtxType("f32x2", 64, "f", np.dtype(np.float32), 2),
        PtxType("u16x2", 32, "u", np.dtype(np.uint16), 2),
        PtxType("s16x2", 32, "s", np.dtype(np.int16), 2),
        PtxType("u8x4", 32, "u", np.dtype(np.uint8), 4),
        PtxType("s8x4", 32, "s", np.dtype(np.int8), 4),
    ]
    bytewise = {"e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2", "ue8m0": "float8_e8m0fnu"}
    for name, native in bytewise.items():
        dtype = np.dtype(getattr(ml_dtypes, native))
        types += [PtxType(f"{name}x2", 16, "f", dtype, 2), PtxType(f"{name}x4", 32, "f", dtype, 4)]
        types.append(PtxType(name, 8, "f", dtype))
    for name in ("e2m3", "e3m2"):  # six bits, each in its own byte
        dtype = np.dtype(getattr(ml_dtypes, f"float6_{name}fn"))
        types += [PtxType(f"{name}x2", 16, "f", dtype, 2), PtxType(f"{name}x4", 32, "f", dtype, 4)]
    byte = np.dtype(np.uint8)  # two four-bit values a byte
    types += [PtxType("e2m1x2", 8, "f", byte), PtxType("e2m1x4", 16, "f", byte, 2)]
    return {t.name: t for t in types}


TYPES: dict[str, PtxType] = _table()


def bits_type(bits: int) -> PtxType:
    """The untyped-bits type of that width."""
    return TYPES["pred"] if bits == 1 else TYPES[f"b{bits}"]
