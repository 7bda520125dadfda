"""One ``tcgen05.mma`` in flight: what it touches, and D = A * B (+ D) when its time has come."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gpukit.emulator.check.async_ops import Cells, Range
from gpukit.emulator.mma import arithmetic
from gpukit.emulator.tcgen05.idesc import InstructionDescriptor
from gpukit.emulator.tcgen05.layouts import Block
from gpukit.emulator.tcgen05.operands import Operand
from gpukit.emulator.tcgen05.scales import Scales, per_element
from gpukit.emulator.tcgen05.tmem import LANES, Tmem, tmem_of

if TYPE_CHECKING:
    from gpukit.emulator.cta import Cta

A_CELLS = 8  # columns of A in tensor memory: 32 bytes of K, for every kind
F16 = arithmetic.ACCUMULATORS["f16"]


@dataclass(eq=False, slots=True)
class Multiplication:
    """Everything is captured at issue but the contents of memory.

    ``ctas`` are the one or two members of the group, ``blocks`` the parts of D. ``a`` is None if A
    lies in tensor memory, from column ``a_column`` on. ``add`` says that D is read as well, scaled
    by 2 to the power of minus ``input_shift``. Bits of ``disabled`` are lanes that keep what they
    hold: 128 of each member. Columns of B that are ``zero`` (a bool each) count as zero.
    """

    idesc: InstructionDescriptor
    ctas: list[Cta]
    blocks: tuple[Block, ...]
    d_column: int
    a: Operand | None
    a_column: int
    b: Operand
    add: bool
    disabled: int = 0
    scales: tuple[Scales, Scales] | None = None
    input_shift: int = 0
    zero: Any = None

    # What it touches

    def reads(self) -> tuple[Range | Cells, ...]:
        """Operands and scale factors."""
        found: list[Range | Cells] = []
        for cta in self.ctas:
            found.append(self.b.range(cta.slot))
            if self.a is not None:
                found.append(self.a.range(cta.slot))
        for block in self.blocks:
            slot = self.ctas[block.member].slot
            if self.a is None:
                found += block.cells(slot, self.a_column, A_CELLS)
            if self.scales is not None:
                of_a, of_b = self.scales
                found += of_a.cells(block, self._height, slot)
                found += of_b.cells(block, block.width, slot)
        return tuple(found)

    def writes(self) -> tuple[Cells, ...]:
        """The accumulator."""
        return tuple(
            Cells(self.ctas[block.member].slot, first, count, self.d_column, block.width)
            for block in self.blocks
            for first, count in self._enabled_runs(block)
        )

    def columns_read(self) -> list[tuple[str, int, int]]:
        """Operands in tensor memory but D: name, first column, number of columns."""
        found = [("A", self.a_column, A_CELLS)] if self.a is None else []
        if self.scales is not None:
            rows = (self._height, self.blocks[0].width)
            for scales, count in zip(self.scales, rows, strict=True):
                name = f"scale factors of {scales.name}"
                found.append((name, scales.column, scales.columns(count)))
        return found

    @property
    def _height(self) -> int:
        """Rows of A in each CTA."""
        return self.idesc.m // len(self.ctas)

    def _enabled_runs(self, block: Block) -> list[tuple[int, int]]:
        if not self.disabled:
            return list(block.runs)
        lanes = _lanes_of(block)[self._enabled(block)]
        starts = np.flatnonzero(np.diff(lanes, prepend=-2) != 1)
        ends = np.append(starts[1:], lanes.size)
        return [(int(lanes[s]), int(e - s)) for s, e in zip(starts, ends, strict=True)]

    def _enabled(self, block: Block) -> Any:
        """bool per row: whether D changes there."""
        mask = self.disabled >> LANES * block.member & (1 << LANES) - 1
        bits = np.unpackbits(
            np.frombuffer(mask.to_bytes(16, "little"), np.uint8), bitorder="little"
        )
        return bits[_lanes_of(block)] == 0

    # Execution

    def perform(self) -> None:
        """Read what memory holds now, multiply, and change D."""
        b = [self.b.values(cta.shared) for cta in self.ctas]
        right = b[0] if len(b) == 1 else np.concatenate(b)
        if self.zero is not None:
            right = np.where(self.zero[:, None], 0.0, right)
        left = None if self.a is None else [self.a.values(cta.shared) for cta in self.ctas]
        for block in self.blocks:
            tmem = tmem_of(self.ctas[block.member])
            mine = self._a_of(block, tmem) if left is None else left[block.member]
            self._one_block(block, tmem, mine, right[block.columns])

    def _a_of(self, block: Block, tmem: Tmem) -> Any:
        cells = tmem.read(block.lanes, slice(self.a_column, self.a_column + A_CELLS))
        return self.idesc.a.from_tensor(np.ascontiguousarray(cells))

    def _one_block(self, block: Block, tmem: Tmem, left: Any, right: Any) -> None:
        """D of one block: ``left`` [row, K] times ``right`` [column, K]."""
        if self.scales is not None:
            of_a, of_b = self.scales
            k = left.shape[1]
            left = left * per_element(of_a.values(tmem, block, len(left)), k)
            right = right * per_element(of_b.values(tmem, block, len(right)), k)
        lanes = block.lanes
        if self.disabled:
            rows = self._enabled(block)
            lanes, left = _lanes_of(block)[rows], left[rows]
        columns = slice(self.d_column, self.d_column + block.width)
        sums = arithmetic.serial_product(left, right.T)
        if self.idesc.negative:
            np.negative(sums, out=sums)
        old = self._old(tmem, lanes, columns) if self.add else None
        dtype = arithmetic.ACCUMULATORS[self.idesc.result]
        result = arithmetic.accumulate(sums, old, dtype, self.idesc.saturate)
        tmem.write(lanes, columns, _as_cells(result))

    def _old(self, tmem: Tmem, lanes: Any, columns: slice) -> Any:
        """D as it is; halves lie in the low 16 bits of their cells."""
        cells = tmem.read(lanes, columns)
        dtype = arithmetic.ACCUMULATORS[self.idesc.result]
        values = cells.astype(np.uint16).view(F16) if dtype == F16 else cells.view(dtype)
        if self.input_shift:
            return np.ldexp(values.astype(np.float64), -self.input_shift)
        return values


def _as_cells(values: Any) -> Any:
    return values.view(np.uint16).astype(np.uint32) if values.dtype == F16 else values


def _lanes_of(block: Block) -> Any:
    return np.concatenate([np.arange(first, first + count) for first, count in block.runs])
