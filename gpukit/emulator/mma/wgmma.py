"""wgmma: asynchronous multiplication by a warpgroup, accumulators in registers.

Counters (``Counters.extra``; mma.sync counts ``mma.sync`` per warp and the same FLOPs):
``wgmma`` per warpgroup, ``flops f16`` (bf16, tf32, f8, i8, b1: 2 * M * N * K), and ``wgmma shared
wavefronts`` beside ``wgmma shared wavefronts ideal``: passes over the banks to read the operands in
shared memory, one per core matrix of 8 x 16 bytes unless its chunks meet in a bank.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpukit.emulator.errors import CollectiveError
from gpukit.emulator.instructions import Modifiers, Op, Unsupported, op
from gpukit.emulator.mma import arithmetic
from gpukit.emulator.mma.formats import Format
from gpukit.emulator.mma.operands import matrix
from gpukit.emulator.mma.registers import WgmmaRegisters
from gpukit.emulator.mma.warpgroup import Arguments, Warpgroup, warpgroup_of, warps_of
from gpukit.emulator.mma.wgmma_form import Form
from gpukit.emulator.outcomes import DISSOLVE
from gpukit.emulator.ptx.ir import Imm, Instr, Not, Operand, Vec
from gpukit.emulator.ptx.types import TYPES
from gpukit.emulator.warp.collective import aligned
from gpukit.emulator.warps import Gang

if TYPE_CHECKING:
    from gpukit.emulator.assembler import Assembler
    from gpukit.emulator.lanes import Lanes
    from gpukit.emulator.outcomes import Outcome

U64, PRED = TYPES["u64"], TYPES["pred"]
_M = 64


class MmaAsync:
    """One ``wgmma.mma_async`` instruction of a kernel."""

    def __init__(self, instr: Instr, modifiers: Modifiers, assembler: Assembler) -> None:
        if assembler.module.target != "sm_90a":
            raise Unsupported(f"wgmma needs .target sm_90a, not {assembler.module.target}")
        if len(instr.operands) < 4:
            raise Unsupported("needs D, A, B and scale-d")
        self.form = form = Form(instr, modifiers)
        d, a, b, scale = instr.operands[:4]
        self.dtype = arithmetic.ACCUMULATORS[form.result]
        self.registers = assembler.analysis(WgmmaRegisters)
        self.d = _fragment(assembler, d, form.n * self.dtype.itemsize // 8)
        self.key = self.d.tobytes() + form.result.encode()
        self.d_columns = self.registers.claim(_items(d))
        self.a: Any = None
        self.a_slot = 0
        if form.a_in_registers:
            self.a = _fragment(assembler, a, 4)
        else:
            self.a_slot = assembler.src(a, U64)
        self.a_columns = self.registers.claim(_items(a)) if form.a_in_registers else None
        self.b_slot = assembler.src(b, U64)
        self.inverted = isinstance(scale, Not)
        self.scale_slot = assembler.src(scale.operand if isinstance(scale, Not) else scale, PRED)
        self.kind = form.n * 1000 + form.k  # the shape, as a number
        self.flops = 2 * _M * form.n * form.k

    # Issue

    def issue(self, lanes: Lanes) -> None:
        """Every warp of the unit issues."""
        warps = slice(lanes.lo // 32, lanes.hi // 32)
        use = lanes.wave.state(self.registers)
        bs = self._uniform(lanes, self.b_slot, "the descriptor of B")
        scales = self._uniform(lanes, self.scale_slot, "scale-d")
        as_ = None if self.a is not None else self._uniform(lanes, self.a_slot, "that of A")
        use.issue(self.d_columns, self.a_columns, self.kind, warps)
        form, end = self.form, lanes.wave.shared.end
        for i, warp in enumerate(warps_of(lanes)):
            b = matrix(bs[i], form.b_k_major, form.n, end)
            a = None if as_ is None else matrix(as_[i], form.a_k_major, _M, end)
            arguments = Arguments(a, b, bool(scales[i]) != self.inverted)
            warpgroup_of(warp).issue(warp, lanes, self, arguments)

    @staticmethod
    def _uniform(lanes: Lanes, slot: int, what: str) -> list[Any]:
        """The value of an operand per warp."""
        values = lanes.V[slot].reshape(-1, 32)
        if np.count_nonzero(values != values[:, :1]):
            raise CollectiveError(f"{what} of wgmma differs between the lanes of a warp")
        found: list[Any] = values[:, 0].tolist()
        return found

    # Execution

    def perform(self, group: Warpgroup, arguments: Arguments) -> None:
        """D = A * B (+ D), on what registers and shared memory hold now."""
        form, cta = self.form, group.cta
        file = cta.wave.files[32]
        if arguments.a is None:
            left = form.a.widen(_fragment_words(file[self.a, group.lanes]))
        else:
            left = _rows(arguments.a.fetch(cta.shared), form.a, form.a_k_major)
        right = _rows(arguments.b.fetch(cta.shared), form.b, form.b_k_major)
        sums = arithmetic.product(left, right.T)
        if form.negative:
            np.negative(sums, out=sums)
        old = group.held(self.key)
        if old is None and arguments.add:
            old = _load(file[self.d, group.lanes], self.dtype)
        add = old if arguments.add else None
        result = arithmetic.accumulate(sums, add, self.dtype, form.saturate)
        group.hold(self.key, result, self.release)
        self._count(group, arguments)

    def release(self, group: Warpgroup, values: Any) -> None:
        """Put the accumulators into the registers."""
        group.cta.wave.files[32][self.d, group.lanes] = _spread(values)

    def _count(self, group: Warpgroup, arguments: Arguments) -> None:
        launch = group.cta.wave.launch
        launch.count("wgmma")
        launch.count(f"flops {self.form.a.family}", self.flops)
        for operand in (arguments.a, arguments.b):
            if operand is not None:
                launch.count("wgmma shared wavefronts", operand.layout.wavefronts)
                launch.count("wgmma shared wavefronts ideal", operand.layout.ideal)


def _items(operand: Operand) -> tuple[Operand, ...]:
    return operand.items if isinstance(operand, Vec) else (operand,)


def _fragment(assembler: Assembler, operand: Operand, count: int) -> Any:
    rows = assembler.register_rows(_items(operand), 32)
    if rows.size != count:
        raise Unsupported(f"a fragment has {rows.size} registers, not {count}")
    return rows


def _rows(words: Any, format_: Format, k_major: bool) -> Any:
    """float64 [row of M or N, K] of an operand fetched from shared memory."""
    elements = format_.widen(words)
    return elements if k_major else elements.T


# Registers of a warpgroup hold a 64-row matrix: the warp (w) and the group of four lanes (g) number
# its rows, and every second register is 8 rows further down.


def _fragment_words(block: Any) -> Any:
    """A: [register, lane] to [row, 32-bit word of K]."""
    axes = block.reshape(2, 2, 4, 8, 4)  # word / 4, row / 8, warp, group, lane of the group
    return axes.transpose(2, 1, 3, 0, 4).reshape(_M, 8)


def _load(block: Any, dtype: np.dtype[Any]) -> Any:
    """D: [register, lane] to [row, column]."""
    if dtype.itemsize == 2:
        axes = block.view(dtype).reshape(-1, 2, 4, 8, 4, 2)  # column / 8, row / 8, w, g, lane, pair
        return axes.transpose(2, 1, 3, 0, 4, 5).reshape(_M, -1)
    axes = block.view(dtype).reshape(-1, 2, 2, 4, 8, 4)  # column / 8, row / 8, pair, w, g, lane
    return axes.transpose(3, 1, 4, 0, 5, 2).reshape(_M, -1)


def _spread(values: Any) -> Any:
    """D: [row, column] to uint32 [register, lane]."""
    axes = values.reshape(4, 2, 8, -1, 4, 2)  # w, row / 8, g, column / 8, lane, pair
    if values.dtype.itemsize == 2:
        packed = np.ascontiguousarray(axes.transpose(3, 1, 0, 2, 4, 5))
        return packed.view(np.uint32).reshape(-1, 128)
    return axes.view(np.uint32).transpose(3, 1, 5, 0, 2, 4).reshape(-1, 128)


# Instructions


@op("wgmma.mma_async")
def mma_async(instr: Instr, modifiers: Modifiers, assembler: Assembler) -> Op:
    made = MmaAsync(instr, modifiers, assembler)
    return aligned("wgmma", made.issue)


@op("wgmma.mma_async.sp")
def sparse(instr: Instr, modifiers: Modifiers, assembler: Assembler) -> Op:
    raise Unsupported("wgmma with a sparse A is not emulated")


@op("wgmma.fence.sync.aligned")
def fence(instr: Instr, modifiers: Modifiers, assembler: Assembler) -> Op:
    registers = assembler.analysis(WgmmaRegisters)

    def body(lanes: Lanes) -> Outcome:
        use = lanes.wave.state(registers)
        use.fence(slice(lanes.lo // 32, lanes.hi // 32))
        return None

    return aligned("wgmma sync", body)


@op("wgmma.commit_group.sync.aligned")
def commit_group(instr: Instr, modifiers: Modifiers, assembler: Assembler) -> Op:
    def body(lanes: Lanes) -> Outcome:
        for warp in warps_of(lanes):
            warpgroup_of(warp).commit(warp)
        return None

    return aligned("wgmma sync", body)


@op("wgmma.wait_group.sync.aligned")
def wait_group(instr: Instr, modifiers: Modifiers, assembler: Assembler) -> Op:
    registers = assembler.analysis(WgmmaRegisters)
    (count,) = instr.operands
    if not isinstance(count, Imm) or not 0 <= int(count.value) <= 7:
        raise Unsupported("the number of groups must be a constant from 0 to 7")
    newest = int(count.value)

    def body(lanes: Lanes) -> Outcome:
        use = lanes.wave.state(registers)
        due = [
            (warp, group := warpgroup_of(warp), group.due(warp, newest)) for warp in warps_of(lanes)
        ]
        late = [(group, number) for _, group, number in due if not group.ready(number)]
        if late:
            return DISSOLVE if isinstance(lanes, Gang) else late[0][0].park(late[0][1])
        for warp, group, number in due:
            use.wait(warp.lo // 32, number)
            group.passed(warp, newest, number)
        return None

    return aligned("wgmma sync", body)
