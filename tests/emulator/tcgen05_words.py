"""Instruction descriptors of tcgen05.mma, encoded from tables 42 to 44 of the PTX ISA."""

from __future__ import annotations

EIGHT = {"e4m3": 0, "e5m2": 1, "e2m3": 3, "e3m2": 4, "e2m1": 5}
CODES = {
    "f16": {"f16": 0, "bf16": 1},
    "tf32": {"tf32": 2},
    "f8f6f4": EIGHT,
    "i8": {"u8": 0, "s8": 1},
    "mxf8f6f4": EIGHT,
    "mxf4": {"e2m1": 1},
    "mxf4nvf4": {"e2m1": 1},
}
RESULTS = {"f16": 0, "f32": 1, "s32": 2}
K = {"f16": 16, "tf32": 8, "f8f6f4": 32, "i8": 32, "mxf8f6f4": 32, "mxf4": 64, "mxf4nvf4": 64}


def idesc(kind, m, n, a, b=None, d="f32", negate=(0, 0), transpose=(0, 0), saturate=0, shift=0,
          scale="ue8m0", ids=(0, 0)):  # fmt: skip
    """The 32-bit word; ``shift`` is the code of the maximum shift, ``ids`` the scale factor IDs."""
    codes = CODES[kind]
    word = codes[a] << 7 | codes[b or a] << 10 | negate[0] << 13 | negate[1] << 14
    word |= transpose[0] << 15 | transpose[1] << 16 | n >> 3 << 17
    if kind.startswith("mx"):
        return word | ids[1] << 4 | (scale == "ue8m0") << 23 | m >> 7 << 27 | ids[0] << 29
    return word | saturate << 3 | RESULTS[d] << 4 | m >> 4 << 24 | shift << 30
