"""tcgen05.ld and st between registers and Tensor Memory, and the waits for them.

Both move their data when they are issued. That they may do so until ``tcgen05.wait`` is what the
checks hold other accesses to the same cells to. Registers that a ld fills may be used at once: a
true dependency on them is respected (ISA 9.7.16.6.4.5).

Counters (``Counters.extra``): ``tmem_load_bytes`` and ``tmem_store_bytes``, 4 per cell.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from gpukit.emulator.aio import engine
from gpukit.emulator.check.async_ops import AsyncOp, Cells
from gpukit.emulator.errors import CollectiveError, KernelFault, TensorMemoryError
from gpukit.emulator.instructions import Modifiers, Op, Unsupported, op
from gpukit.emulator.mma.warpgroup import warps_of
from gpukit.emulator.outcomes import Outcome
from gpukit.emulator.ptx.ir import Imm, Instr, Operand, Vec
from gpukit.emulator.ptx.types import TYPES
from gpukit.emulator.tcgen05.shapes import Fragment, take_fragment
from gpukit.emulator.tcgen05.target import require_target
from gpukit.emulator.tcgen05.tmem import Tmem, column_of, lane_of, tmem_of
from gpukit.emulator.warp.collective import aligned

if TYPE_CHECKING:
    from gpukit.emulator.assembler import Assembler
    from gpukit.emulator.cta import Cta
    from gpukit.emulator.lanes import Lanes
    from gpukit.emulator.warps import Warp

U32 = TYPES["u32"]
_QUARTER = 32  # lanes that a warp can access
_LOW = np.uint32(0xFFFF)


class Outstanding:
    """The ld and st operations of a CTA's warps that nobody has waited for."""

    def __init__(self, cta: Cta) -> None:
        self.ops: dict[tuple[Warp, str], list[AsyncOp]] = {}


class Transfer:
    """One tcgen05.ld or st instruction of a kernel."""

    def __init__(
        self, assembler: Assembler, modifiers: Modifiers, address: Operand, registers: Operand,
        split: Operand | None, kind: str,
    ) -> None:  # fmt: skip
        self.kind = kind
        self.fragment = take_fragment(modifiers, _constant(split))
        self.rows = _rows(assembler, registers, self.fragment.registers)
        self._base, self._offset = assembler.address(address)
        cells = self.fragment.lanes * self.fragment.width * len(self.fragment.parts)
        self.bytes = 4 * cells
        self._blocks: dict[tuple[int, int, int], tuple[Cells, ...]] = {}

    def places(self, lanes: Lanes) -> list[int]:
        """The address of each warp. Raises ``CollectiveError`` if its lanes disagree."""
        values = lanes.V[self._base].reshape(-1, 32)
        if np.count_nonzero(values != values[:, :1]):
            raise CollectiveError(f"the address of {self.kind} differs between the lanes of a warp")
        offset = 0 if self._offset is None else lanes.V[self._offset].item(0)
        return [address + offset for address in values[:, 0].tolist()]

    def announce(self, warp: Warp, address: int, pc: int) -> Tmem:
        """Check the address and tell the listeners; returns the memory."""
        tmem = tmem_of(warp.cta)
        blocks = self._find(warp, tmem, address)
        if warp.wave.listeners:
            reads, writes = ((), blocks) if self.kind == "tcgen05.st" else (blocks, ())
            made = engine.issue(
                warp, None, self.kind, (), (), cells_read=reads, cells_written=writes, pc=pc
            )
            key = warp, self.kind
            warp.cta.state(Outstanding).ops.setdefault(key, []).append(made)
        return tmem

    def _find(self, warp: Warp, tmem: Tmem, address: int) -> tuple[Cells, ...]:
        key = warp.cta.slot, warp.index % 4, address
        found = self._blocks.get(key)
        if found is None:
            lane, column = self.lane(warp, address), column_of(address)
            found = self._blocks[key] = tuple(
                Cells(warp.cta.slot, lane, self.fragment.lanes, column + part, self.fragment.width)
                for part in self.fragment.parts
            )
        for block in found:
            tmem.require(block)
        return found

    def lane(self, warp: Warp, address: int) -> int:
        """The first lane that a warp accesses. Raises ``TensorMemoryError`` unless it is its own.

        Kernels that run on B200 also leave the number of the quarter out, or count the lanes of a
        pair through; the hardware ignores these bits.
        """
        quarter, offset = divmod(lane_of(address), _QUARTER)
        own = warp.index % 4
        accepted = (own, 0, own + 4 * (warp.cta.rank & 1))
        if quarter not in accepted or offset % self.fragment.lanes:
            first = own * _QUARTER
            starts = range(first, first + _QUARTER, self.fragment.lanes)
            raise TensorMemoryError(
                f"{self.kind} of warp {warp.index} at lane {lane_of(address)} of Tensor Memory: "
                f"this warp may access lanes {first} to {first + _QUARTER - 1}, and the shape "
                f"begins at {' or '.join(map(str, starts))}",
                address=address,
            )
        return own * _QUARTER + offset


def _constant(split: Operand | None) -> int | None:
    if split is None:
        return None
    if not isinstance(split, Imm):
        raise Unsupported("the second column offset must be a constant")
    return int(split.value)


def _rows(assembler: Assembler, registers: Operand, count: int) -> Any:
    """Rows of the register file: a slice if they are consecutive, else int64 numbers."""
    items = registers.items if isinstance(registers, Vec) else (registers,)
    rows = assembler.register_rows(items, 32)
    if rows.size != count:
        raise Unsupported(f"has {rows.size} registers, the shape needs {count}")
    first = int(rows[0])
    return slice(first, first + count) if (np.diff(rows) == 1).all() else rows


def _load(transfer: Transfer, warp: Warp, address: int, pc: int) -> None:
    tmem = transfer.announce(warp, address, pc)
    lane, column, part = transfer.lane(warp, address), column_of(address), transfer.fragment
    if part.plain:
        block = tmem.read(slice(lane, lane + 32), slice(column, column + part.width)).T
    else:
        block = _gather(tmem, part, part.rows + lane, part.columns + column)
    warp.registers(32)[transfer.rows] = block


def _gather(tmem: Tmem, part: Fragment, rows: Any, columns: Any) -> Any:
    low = tmem.read(rows, columns)
    if not part.packed:
        return low
    return low & _LOW | tmem.read(rows, columns + 1) << np.uint32(16)


def _store(transfer: Transfer, warp: Warp, address: int, pc: int) -> None:
    tmem = transfer.announce(warp, address, pc)
    lane, column, part = transfer.lane(warp, address), column_of(address), transfer.fragment
    values = warp.registers(32)[transfer.rows].view(np.uint32)
    if part.plain:
        tmem.write(slice(lane, lane + 32), slice(column, column + part.width), values.T)
        return
    rows, columns = part.rows + lane, part.columns + column
    if part.packed:
        tmem.write(rows, columns + 1, values >> np.uint32(16))
        values = values & _LOW
    tmem.write(rows, columns, values)


def _operation(
    transfer: Transfer, move: Callable[[Transfer, Warp, int, int], None], counter: str
) -> Op:
    def body(lanes: Lanes) -> Outcome:
        places = transfer.places(lanes)
        for warp, address in zip(warps_of(lanes), places, strict=True):
            try:
                move(transfer, warp, address, lanes.current.pc)
            except KernelFault as fault:
                fault.locate(lanes.where(warp.lo - lanes.lo))
                raise
        lanes.wave.launch.count(counter, transfer.bytes * len(places))
        return None

    return aligned("tcgen05", body)


@op("tcgen05.ld")
def load(instr: Instr, modifiers: Modifiers, assembler: Assembler) -> Op:
    require_target(assembler)
    registers, address, *split = instr.operands
    offset = split[0] if split else None
    transfer = Transfer(assembler, modifiers, address, registers, offset, "tcgen05.ld")
    return _operation(transfer, _load, "tmem_load_bytes")


@op("tcgen05.ld.red")
def load_and_reduce(instr: Instr, modifiers: Modifiers, assembler: Assembler) -> Op:
    raise Unsupported("tcgen05.ld.red is not part of sm_100a")


@op("tcgen05.st")
def store(instr: Instr, modifiers: Modifiers, assembler: Assembler) -> Op:
    require_target(assembler)
    address, *split, registers = instr.operands
    offset = split[0] if split else None
    transfer = Transfer(assembler, modifiers, address, registers, offset, "tcgen05.st")
    return _operation(transfer, _store, "tmem_store_bytes")


@op("tcgen05.wait::ld.sync.aligned", "tcgen05.wait::st.sync.aligned")
def wait(instr: Instr, modifiers: Modifiers, assembler: Assembler) -> Op:
    require_target(assembler)
    kind = f"tcgen05.{instr.mods[0][-2:]}"

    def body(lanes: Lanes) -> Outcome:
        if lanes.wave.listeners:
            for warp in warps_of(lanes):
                _observe(warp, kind)
        return None

    return aligned("tcgen05", body)


def _observe(warp: Warp, kind: str) -> None:
    ops = warp.cta.state(Outstanding).ops.pop((warp, kind), ())
    for made in ops:
        engine.performed(made)
    if ops:
        for listener in warp.wave.listeners:
            listener.group_waited(warp, None, ops, False)
