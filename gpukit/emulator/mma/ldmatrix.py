"""ldmatrix, stmatrix and movmatrix: 8 x 8 matrices of 16-bit elements, four lanes to a row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpukit.emulator.errors import KernelFault
from gpukit.emulator.instructions import Modifiers, Op, Unsupported, op
from gpukit.emulator.mem.access import Access
from gpukit.emulator.mem.patterns import LOADS, STORES
from gpukit.emulator.mem.spaces import Place, take_space
from gpukit.emulator.ptx.ir import Instr, Operand, Vec
from gpukit.emulator.warp.collective import aligned

if TYPE_CHECKING:
    from gpukit.emulator.assembler import Assembler
    from gpukit.emulator.lanes import Lanes
    from gpukit.emulator.outcomes import Outcome

_ROW_BYTES = 16
_U32 = np.dtype(np.uint32)
_LANE = np.arange(32)


class _Transfer:
    """What ldmatrix and stmatrix share: registers, addresses and the arrangement of matrices."""

    def __init__(
        self, registers: Operand, address: Operand, modifiers: Modifiers, assembler: Assembler
    ) -> None:
        if not modifiers.flag("aligned"):
            raise Unsupported("needs .aligned")
        if not modifiers.flag("m8n8"):
            raise Unsupported("only .m8n8 with .b16 is emulated")
        self.count = int(modifiers.pick("x1", "x2", "x4")[1:])
        self.transposed = modifiers.flag("trans")
        space = take_space(modifiers)
        if space not in ("shared", "generic"):
            raise Unsupported(f"the matrices must be in .shared, not .{space}")
        modifiers.pick("b16")
        items = registers.items if isinstance(registers, Vec) else (registers,)
        if len(items) != self.count:
            raise Unsupported(f"needs {self.count} registers, has {len(items)}")
        self.rows = assembler.register_rows(items, 32)
        self._place = Place(assembler, address, space, _ROW_BYTES)

    def access(self, lanes: Lanes) -> Access:
        """The rows that the first 8 lanes per matrix point at, found in bounds and aligned."""
        givers = None if self.count == 4 else np.tile(self.count * 8 > _LANE, lanes.width // 32)
        accesses = self._place.accesses(lanes, givers)
        if len(accesses) > 1 or accesses[0].space != "shared":
            raise KernelFault("ldmatrix and stmatrix need addresses of shared memory")
        return accesses[0]

    def arrange(self, words: Any) -> Any:
        """uint32 [warp, matrix, 32] between memory order and register order: its own inverse."""
        return _transpose(words) if self.transposed else words


def _transpose(words: Any) -> Any:
    halves = words.view(np.uint16).reshape(*words.shape[:-1], 8, 8)
    return np.ascontiguousarray(halves.swapaxes(-1, -2)).view(np.uint32).reshape(words.shape)


def _word_indices(access: Access) -> Any:
    """[row, 4]: where the 32-bit words of each row are."""
    return access.elements(4)[:, None] + np.arange(4)


@op("ldmatrix.sync")
def ldmatrix(instr: Instr, modifiers: Modifiers, assembler: Assembler) -> Op:
    transfer = _Transfer(instr.operands[0], instr.operands[1], modifiers, assembler)

    def body(lanes: Lanes) -> Outcome:
        access = transfer.access(lanes)
        access.pattern.hits[LOADS] += 1
        access.check_read(lanes, "read", "weak")
        words = access.store.words(_U32)[_word_indices(access)].reshape(-1, transfer.count, 32)
        block = transfer.arrange(words).swapaxes(0, 1).reshape(transfer.count, -1)
        lanes.registers(32)[transfer.rows] = block
        for listener in lanes.wave.listeners:
            listener.accessed(lanes, access, "read", "weak")
        return None

    return aligned("load", body)


@op("stmatrix.sync")
def stmatrix(instr: Instr, modifiers: Modifiers, assembler: Assembler) -> Op:
    transfer = _Transfer(instr.operands[1], instr.operands[0], modifiers, assembler)

    def body(lanes: Lanes) -> Outcome:
        access = transfer.access(lanes)
        access.pattern.hits[STORES] += 1
        block = lanes.registers(32)[transfer.rows].reshape(transfer.count, -1, 32)
        words = transfer.arrange(np.ascontiguousarray(block.swapaxes(0, 1)))
        access.store.words(_U32)[_word_indices(access)] = words.reshape(-1, 4)
        access.mark_written(lanes)
        for listener in lanes.wave.listeners:
            listener.accessed(lanes, access, "write", "weak")
        return None

    return aligned("store", body)


@op("movmatrix.sync")
def movmatrix(instr: Instr, modifiers: Modifiers, assembler: Assembler) -> Op:
    for word in ("aligned", "m8n8", "trans", "b16"):
        if not modifiers.flag(word):
            raise Unsupported(f"needs .{word}")
    target, source = (assembler.register_rows([operand], 32) for operand in instr.operands)

    def body(lanes: Lanes) -> Outcome:
        registers = lanes.registers(32)
        words = np.ascontiguousarray(registers[source[0]]).reshape(-1, 32)
        registers[target[0]] = _transpose(words).ravel()
        return None

    return aligned("shuffle", body)
