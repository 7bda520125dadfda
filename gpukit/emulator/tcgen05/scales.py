"""Scale factors in tensor memory: one byte per row (of M or N) and block of K.

Row r of 32 and more lies in lane r % 32 of column r // 32, in every quarter (32 lanes) of the data
path that uses it: the copies must agree. A cell has four bytes for four blocks of K; the scale
factor ID says at which byte the one, two or four that an instruction needs begin. CUTLASS counts
them in the upper two bits of the address, takes the ID from there and leaves them in it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import ml_dtypes
import numpy as np

from gpukit.emulator.check.async_ops import Cells
from gpukit.emulator.errors import KernelFault
from gpukit.emulator.tcgen05.layouts import Block
from gpukit.emulator.tcgen05.tmem import Tmem, column_of, lane_of

QUARTER = 32  # lanes
_BYTE = 30  # bit of an address from which on CUTLASS names the byte of a cell
_BYTE_MASK = (1 << _BYTE) - 1


class Scales:
    """The scale factors of A (``name`` "A") or B: ``vector`` per row from byte ``first`` on."""

    def __init__(self, name: str, address: int, type_: str, first: int, vector: int) -> None:
        byte, lane = address >> _BYTE, lane_of(address & _BYTE_MASK)
        if lane:
            raise KernelFault(
                f"scale factors of {name} at lane {lane}; accepted: lane 0", address=address
            )
        if byte not in (0, first):
            raise KernelFault(
                f"scale factors of {name} at byte {byte} by bits 30 and 31 of their address; "
                f"accepted: 0, or the {first} of the instruction descriptor",
                address=address,
            )
        self.name, self.type = name, type_
        self.column = column_of(address)
        self.bytes = slice(first, first + vector)

    def cells(self, block: Block, rows: int, slot: int) -> tuple[Cells, ...]:
        """What a block of D reads for ``rows`` rows."""
        return tuple(
            Cells(slot, QUARTER * quarter, min(rows, QUARTER), self.column, self.columns(rows))
            for quarter in quarters(block)
        )

    @staticmethod
    def columns(rows: int) -> int:
        """Columns that the scale factors of so many rows take."""
        return -(-rows // QUARTER)

    def values(self, tmem: Tmem, block: Block, rows: int) -> Any:
        """float64 [row, vector] as a block of D finds them. Copies that differ are an error."""
        row = np.arange(rows)
        lanes = QUARTER * np.array(quarters(block))[:, None] + row % QUARTER
        cells = tmem.read(lanes, self.column + row // QUARTER)
        codes = cells.astype("<u4").view(np.uint8).reshape(*cells.shape, 4)[..., self.bytes]
        self._check_copies(codes, lanes)
        return self._decode(codes[0])

    def _check_copies(self, codes: Any, lanes: Any) -> None:
        wrong = (codes != codes[:1]).any(axis=-1)
        if wrong.any():
            copy, row = np.argwhere(wrong)[0].tolist()
            raise KernelFault(
                f"scale factors of {self.name} must be the same in all quarters of tensor memory; "
                f"those of row {row} differ in lanes {lanes[0, row]} and {lanes[copy, row]} of "
                f"column {self.column + row // QUARTER}"
            )

    def _decode(self, codes: Any) -> Any:
        if self.type == "ue8m0":
            return _ue8m0()[codes]
        if codes.max() > 127:
            row = int((codes > 127).any(axis=1).argmax())
            raise KernelFault(
                f"scale factor of {self.name}, row {row}: the upper bit of a ue4m3 byte must be 0"
            )
        return _ue4m3()[codes]


def quarters(block: Block) -> list[int]:
    """The quarters of the data path that have lanes of a block."""
    return sorted({
        lane // QUARTER
        for first, count in block.runs
        for lane in range(first, first + count, 16)
    })  # fmt: skip


def per_element(scales: Any, k: int) -> Any:
    """[row, vector] to [row, k]."""
    return np.repeat(scales, k // scales.shape[1], axis=1)


@lru_cache(maxsize=1)
def _ue8m0() -> Any:
    values = np.ldexp(1.0, np.arange(256) - 127)
    values[255] = np.nan
    return values


@lru_cache(maxsize=1)
def _ue4m3() -> Any:
    codes = np.arange(128, dtype=np.uint8)
    return codes.view(np.dtype(ml_dtypes.float8_e4m3fn)).astype(np.float64)
