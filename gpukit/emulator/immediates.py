"""Literals as the bytes of one lane."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpukit.emulator.instructions import Unsupported
from gpukit.emulator.ptx.ir import Imm
from gpukit.emulator.ptx.types import PtxType


def immediate(operand: Imm, type_: PtxType) -> Any:
    """The value of a literal as ``type_``: bytes of one lane."""
    value = operand.value
    if type_.kind == "p":
        return bool(value)
    if operand.float_bits and not type_.is_float:
        if operand.float_bits < type_.bits:
            raise Unsupported(f"a {operand.float_bits}-bit float literal is no {type_}")
        return int(value).to_bytes(operand.float_bits // 8, "little")[: type_.bytes]
    if operand.float_bits:
        raw = int(value).to_bytes(operand.float_bits // 8, "little")
        return np.frombuffer(raw, f"f{operand.float_bits // 8}")[0]
    if isinstance(value, float):
        return np.float64(value)
    if type_.is_float and type_.pack == 1 and type_.bits >= 32:
        return float(value)
    return (value & ((1 << type_.bits) - 1)).to_bytes(type_.bytes, "little")
