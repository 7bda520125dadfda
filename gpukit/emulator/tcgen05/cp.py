"""tcgen05.cp and tcgen05.shift: cells of Tensor Memory filled from shared memory, or moved down.

With ``.cta_group::2`` both CTAs of the pair do the same: each fills its own Tensor Memory from its
own shared memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpukit.emulator.aio import engine
from gpukit.emulator.aio.bulk import per_lane
from gpukit.emulator.check.async_ops import Cells
from gpukit.emulator.errors import MisalignedError
from gpukit.emulator.instructions import Modifiers, Op, Unsupported, op
from gpukit.emulator.mem.points import Point
from gpukit.emulator.ptx.ir import Instr
from gpukit.emulator.ptx.types import TYPES
from gpukit.emulator.tcgen05.copy import PACKINGS, SHAPES, CopySource, source_of
from gpukit.emulator.tcgen05.pair import running_members, take_group
from gpukit.emulator.tcgen05.pipe import pipe_of
from gpukit.emulator.tcgen05.target import require_target
from gpukit.emulator.tcgen05.tmem import LANES, column_of, lane_of, tmem_of

if TYPE_CHECKING:
    from gpukit.emulator.assembler import Assembler
    from gpukit.emulator.cta import Cta
    from gpukit.emulator.warps import Warp

CATEGORY = "tcgen05"
WARP_LANES, SHIFTED_COLUMNS = 32, 8


@dataclass(frozen=True, slots=True)
class _Form:
    """What the instruction itself says."""

    group: int
    shape: str
    packing: str


@op("tcgen05.cp")
def cp(instr: Instr, modifiers: Modifiers, assembler: Assembler) -> Op:
    require_target(assembler)
    form = _take_form(modifiers, assembler)
    target = Point(assembler, instr.operands[0])
    descriptor = assembler.src(instr.operands[1], TYPES["u64"])

    def act(warp: Warp, lane: int) -> None:
        raw = warp.V[descriptor].item(lane)
        source = source_of(raw, form.shape, form.packing, warp.wave.shared.end)
        _copy(warp, lane, form, source, target.at(warp, lane))

    return per_lane(CATEGORY, act)


def _take_form(modifiers: Modifiers, assembler: Assembler) -> _Form:
    group = take_group(modifiers, assembler)
    shape = modifiers.pick(*{name.partition(".")[0] for name in SHAPES})
    multicast = modifiers.pick("warpx2::02_13", "warpx2::01_23", "warpx4", default="")
    shape = f"{shape}.{multicast}" if multicast else shape
    if shape not in SHAPES:
        raise Unsupported(f"shape .{shape}; accepted: {', '.join('.' + name for name in SHAPES)}")
    packing = modifiers.pick(*PACKINGS, default="")
    if packing:
        modifiers.pick("b8x16")
    return _Form(group, shape, packing)


def _copy(warp: Warp, lane: int, form: _Form, source: CopySource, address: int) -> None:
    ctas = running_members(warp, form.group)
    written = [_cells(cta, form, address) for cta in ctas]

    def act() -> None:
        for cta, cells in zip(ctas, written, strict=True):
            _fill(cta, form, source, cells)

    warp.wave.launch.count("tcgen05_cp_bytes", 16 * source.layout.chunks.size * len(ctas))
    pipe_of(warp, form.group).submit(
        warp, engine.one_lane(lane), "tcgen05.cp", tuple(source.range(cta.slot) for cta in ctas),
        tuple(part for parts in written for part in parts), act, form.shape,
    )  # fmt: skip


def _cells(cta: Cta, form: _Form, address: int) -> list[Cells]:
    """The cells that a copy fills in one CTA: all lanes, or one of each warp."""
    shape = SHAPES[form.shape]
    first, column, tmem = lane_of(address), column_of(address), tmem_of(cta)
    if shape.sources is None:
        _check_lane(first < WARP_LANES, address, "0 to 31")
        lanes = range(first, LANES, WARP_LANES)
        return [tmem.cells(lane, 1, column, shape.columns) for lane in lanes]
    _check_lane(first == 0, address, "0")
    return [tmem.cells(0, LANES, column, shape.columns)]


def _check_lane(fits: bool, address: int, accepted: str) -> None:
    if not fits:
        raise MisalignedError(
            f"Tensor Memory address 0x{address:08x} has lane {lane_of(address)}; accepted: "
            f"{accepted}",
            address=address,
        )


def _fill(cta: Cta, form: _Form, source: CopySource, cells: list[Cells]) -> None:
    shape, tmem, rows = SHAPES[form.shape], tmem_of(cta), source.cells(cta.shared)
    columns = slice(cells[0].column, cells[0].column + shape.columns)
    if shape.sources is None:
        tmem.write(slice(cells[0].lane, LANES, WARP_LANES), columns, rows)
    else:
        tmem.write(slice(0, LANES), columns, rows[shape.sources])


@op("tcgen05.shift")
def shift(instr: Instr, modifiers: Modifiers, assembler: Assembler) -> Op:
    """Each row of 8 cells of a warp's 32 lanes moves to the next lane; the first one stays."""
    require_target(assembler)
    group = take_group(modifiers, assembler)
    modifiers.pick("down")
    target = Point(assembler, instr.operands[0])

    def act(warp: Warp, lane: int) -> None:
        _shift(warp, lane, group, target.at(warp, lane))

    return per_lane(CATEGORY, act)


def _shift(warp: Warp, lane: int, group: int, address: int) -> None:
    first, column = lane_of(address), column_of(address)
    _check_lane(first % WARP_LANES == 0, address, "multiples of 32")
    memories = [tmem_of(cta) for cta in running_members(warp, group)]
    cells = tuple(tmem.cells(first, WARP_LANES, column, SHIFTED_COLUMNS) for tmem in memories)
    columns, last = slice(column, column + SHIFTED_COLUMNS), first + WARP_LANES - 1

    def move() -> None:
        for tmem in memories:
            rows = tmem.read(slice(first, last), columns).copy()
            tmem.write(slice(first + 1, last + 1), columns, rows)

    pipe_of(warp, group).submit(warp, engine.one_lane(lane), "tcgen05.shift", cells, cells, move)
