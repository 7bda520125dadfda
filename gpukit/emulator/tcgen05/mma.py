"""tcgen05.mma: multiplication by the fifth-generation tensor core, accumulators in tensor memory.

Counters (``Counters.extra``): ``tcgen05.mma`` per instruction, ``flops f16`` (bf16, tf32, f8f6f4,
i8, mxf8f6f4, mxf4, mxf4nvf4: 2 * M * N * K), and ``tcgen05 shared wavefronts`` beside ``tcgen05
shared wavefronts ideal``: passes over the banks to read A and B, as ``operands`` defines them.

Not confirmed by hardware: all of it follows the text of the PTX ISA and the layouts of CUTLASS.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gpukit.emulator.aio.engine import one_lane
from gpukit.emulator.errors import CollectiveError, KernelFault
from gpukit.emulator.instructions import Mask, Modifiers, Op, Unsupported, op
from gpukit.emulator.ptx.ir import Instr
from gpukit.emulator.tcgen05 import zero_columns
from gpukit.emulator.tcgen05.collector import Collectors
from gpukit.emulator.tcgen05.idesc import InstructionDescriptor, decode
from gpukit.emulator.tcgen05.layouts import HALF, blocks
from gpukit.emulator.tcgen05.mma_form import Arguments, Form
from gpukit.emulator.tcgen05.mma_work import Multiplication
from gpukit.emulator.tcgen05.operands import Operand, operand
from gpukit.emulator.tcgen05.pair import running_members
from gpukit.emulator.tcgen05.pipe import pipe_of
from gpukit.emulator.tcgen05.scales import Scales
from gpukit.emulator.tcgen05.tmem import column_of, lane_of
from gpukit.emulator.tcgen05.zero_columns import NO_ZEROS, ZeroColumns
from gpukit.emulator.warps import Warp

if TYPE_CHECKING:
    from gpukit.emulator.assembler import Assembler
    from gpukit.emulator.lanes import Lanes
    from gpukit.emulator.outcomes import Outcome


class Mma:
    """One ``tcgen05.mma`` instruction of a kernel."""

    def __init__(self, form: Form) -> None:
        self.form = form

    def run(self, lanes: Lanes, mask: Mask) -> Outcome:
        """Every active lane issues one."""
        assert isinstance(lanes, Warp)
        active = range(32) if mask is None else np.flatnonzero(mask).tolist()
        seen: dict[Arguments, int] = {}
        for lane in active:
            arguments = self.form.arguments(lanes, lane)
            if arguments in seen:
                raise CollectiveError(
                    f"lanes {seen[arguments]} and {lane} issue the same tcgen05.mma; each lane "
                    "that executes it starts a multiplication, so one must be elected"
                )
            seen[arguments] = lane
            self.issue(lanes, lane, arguments)
        return None

    def issue(self, warp: Warp, lane: int, arguments: Arguments) -> None:
        """One lane starts a multiplication. Raises for descriptors that do not fit."""
        form = self.form
        idesc = decode(arguments.idesc, form.target)
        self._check_lanes(idesc, arguments)
        work = self._work(warp, idesc, arguments)
        self._check_overlap(work)
        key = (arguments.d, idesc.m, idesc.n, form.kind.name, form.ws)
        pipe = pipe_of(warp, form.cta_group)
        kept = arguments.b if form.ws else arguments.a
        pipe.cta.state(Collectors).issue(*form.collector, (kept, form.a_in_tensor_memory))
        pipe.submit(
            warp, one_lane(lane), "tcgen05.mma", work.reads(), work.writes(), work.perform, key
        )
        self._count(warp, work)

    def _work(
        self, warp: Warp, idesc: InstructionDescriptor, arguments: Arguments
    ) -> Multiplication:
        form, group, end = self.form, self.form.cta_group, warp.wave.shared.end
        zeros = self._zeros(idesc, arguments)
        b = operand(arguments.b, idesc.b, idesc.b_k_major, idesc.n // group, end, zeros.shift)
        a: Operand | None = None
        if not form.a_in_tensor_memory:
            a = operand(arguments.a, idesc.a, idesc.a_k_major, idesc.m // group, end)
        return Multiplication(
            idesc, running_members(warp, group),
            blocks(idesc.m, idesc.n, group, form.ws, lane_of(arguments.d)),
            column_of(arguments.d), a, column_of(arguments.a), b, arguments.add,
            arguments.disabled, self._scales(idesc, arguments), form.input_shift,
            zeros.zero,
        )  # fmt: skip

    def _zeros(self, idesc: InstructionDescriptor, arguments: Arguments) -> ZeroColumns:
        if arguments.zeros is None:
            return NO_ZEROS
        return zero_columns.decode(arguments.zeros, idesc.m, idesc.n, idesc.max_shift)

    def _scales(
        self, idesc: InstructionDescriptor, arguments: Arguments
    ) -> tuple[Scales, Scales] | None:
        if arguments.scales is None:
            return None
        at_a, at_b = arguments.scales
        vector = self.form.vector
        return (
            Scales("A", at_a, idesc.scale_type, idesc.a_scale, vector),
            Scales("B", at_b, idesc.scale_type, idesc.b_scale, vector),
        )

    def _check_lanes(self, idesc: InstructionDescriptor, arguments: Arguments) -> None:
        """D, and A beside it, begin at lane 0; with half the data path also at 16."""
        half = idesc.m == 64 and not self.form.ws
        accepted = (0, HALF) if half else (0,)
        lane = lane_of(arguments.d)
        if lane not in accepted:
            raise KernelFault(
                f"D begins at lane {lane} of tensor memory; accepted with M = {idesc.m}: "
                f"{' or '.join(map(str, accepted))}",
                address=arguments.d,
            )
        if self.form.a_in_tensor_memory and lane_of(arguments.a) != lane:
            raise KernelFault(
                f"A begins at lane {lane_of(arguments.a)} of tensor memory, D at {lane}; both must "
                "begin at the same lane",
                address=arguments.a,
            )

    @staticmethod
    def _check_overlap(work: Multiplication) -> None:
        """What is read beside D must not lie in its columns: nothing orders reads and writes."""
        start, end = work.d_column, work.d_column + work.blocks[0].width
        for name, column, width in work.columns_read():
            if column < end and start < column + width:
                raise KernelFault(
                    f"{name} in columns {column} to {column + width - 1} of tensor memory overlap "
                    f"D of the same tcgen05.mma, in columns {start} to {end - 1}",
                    address=column,
                )

    def _count(self, warp: Warp, work: Multiplication) -> None:
        launch, idesc, kind = warp.wave.launch, work.idesc, self.form.kind
        launch.count("tcgen05.mma")
        family = idesc.a.name if kind.name == "f16" else kind.family
        launch.count(f"flops {family}", 2 * idesc.m * idesc.n * kind.k)
        for matrix in (work.a, work.b):
            if matrix is not None:
                times = len(work.ctas)
                launch.count("tcgen05 shared wavefronts", times * matrix.layout.wavefronts)
                launch.count("tcgen05 shared wavefronts ideal", times * matrix.layout.ideal)


@op("tcgen05.mma")
def mma(instr: Instr, modifiers: Modifiers, assembler: Assembler) -> Op:
    return Op("tcgen05", handler=Mma(Form(instr, modifiers, assembler)).run)


@op("tcgen05.mma.ws")
def weight_stationary(instr: Instr, modifiers: Modifiers, assembler: Assembler) -> Op:
    return Op("tcgen05", handler=Mma(Form(instr, modifiers, assembler, ws=True)).run)


@op("tcgen05.mma.sp", "tcgen05.mma.ws.sp")
def sparse(instr: Instr, modifiers: Modifiers, assembler: Assembler) -> Op:
    raise Unsupported("tcgen05.mma with a sparse A is not emulated")
