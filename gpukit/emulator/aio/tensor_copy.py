"""cp.async.bulk.tensor: boxes of tensors between global and shared memory (TMA), tile mode."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from gpukit.emulator.aio import engine
from gpukit.emulator.aio.blocks import check_barriers
from gpukit.emulator.aio.bulk import PerLane, count_load, per_lane, store_later, take_direction
from gpukit.emulator.aio.four_rows import ROWS, FourRows
from gpukit.emulator.aio.geometry import Geometry, geometry_of
from gpukit.emulator.aio.reductions import OPERATIONS, Reduction, tensor_reduction
from gpukit.emulator.aio.signals import Signals, receivers, take_completion
from gpukit.emulator.aio.tiles import SharedTile, TensorTile
from gpukit.emulator.architecture import split_arch
from gpukit.emulator.errors import KernelFault, MisalignedError
from gpukit.emulator.instructions import Modifiers, Op, Unsupported, op
from gpukit.emulator.mem.points import Point, global_point, shared_point
from gpukit.emulator.mem.spaces import require
from gpukit.emulator.ptx.ir import Addr, Instr, Operand, Vec
from gpukit.emulator.ptx.types import TYPES
from gpukit.emulator.tensormap import ALIGN, BYTES, decode
from gpukit.emulator.tensormap_rules import LATER, PACKED_BOX
from gpukit.emulator.warps import Warp

if TYPE_CHECKING:
    from gpukit.emulator.assembler import Assembler
    from gpukit.emulator.cta import Cta

U16, S32 = TYPES["u16"], TYPES["s32"]
SHARED_ALIGN, ROW_ALIGN = 128, 16
_DIMS = ("1d", "2d", "3d", "4d", "5d")
_IM2COL = ("im2col", "im2col::w", "im2col::w::128", "im2col_no_offs")


@dataclass(frozen=True, slots=True)
class _Mode:
    """Rank and load mode; ``four`` if four rows are named (of a matrix)."""

    rank: int
    four: bool

    @property
    def coords(self) -> int:
        return 1 + ROWS if self.four else self.rank


def _take_mode(modifiers: Modifiers, assembler: Assembler, four: str) -> _Mode:
    """Take the rank and the load mode: tile, or ``four`` ("gather4", "scatter4")."""
    rank = int(modifiers.pick(*_DIMS)[0])
    modifiers.flag("tile")
    for mode in _IM2COL:
        if mode in modifiers.words:
            raise Unsupported(f"load mode .{mode} is not emulated, only .tile")
    if not modifiers.flag(f"tile::{four}"):
        return _Mode(rank, False)
    require(rank == 2, f".tile::{four} is for matrices (.2d)")
    require(split_arch(assembler.module.target)[0] >= LATER, f".tile::{four} needs sm_100")
    return _Mode(rank, True)


class _Tensor:
    """A ``[tensorMap, {coords}]`` operand."""

    def __init__(self, assembler: Assembler, operand: Operand, mode: _Mode) -> None:
        coords = operand.coords if isinstance(operand, Addr) else None
        items = list(coords.items) if isinstance(coords, Vec) else []
        require(len(items) == mode.coords, f"needs a tensor map and {mode.coords} coordinates")
        self._map = Point(assembler, operand)
        self._coords = [assembler.src(item, S32) for item in items]
        self._mode = mode

    def tile(self, warp: Warp, lane: int, *, stored: bool = False) -> TensorTile | FourRows:
        """The box that one lane means, found in memory; ``stored`` if plainly written."""
        coords = [warp.V[slot].item(lane) for slot in self._coords]
        geometry = self._geometry(warp, self._map.at(warp, lane))
        if geometry.encoded.rank != self._mode.rank:
            raise KernelFault(
                f"{len(coords)} coordinates for a tensor map of rank {geometry.encoded.rank}"
            )
        self._check_start(geometry, coords[0])
        coords[0] //= geometry.unit.elements
        if stored:
            self._check_signs(coords)
        kind = FourRows if self._mode.four else TensorTile
        return kind.find(warp.wave, geometry, coords)

    @staticmethod
    def _check_start(geometry: Geometry, first: int) -> None:
        """Rows must start at a multiple of 16 bytes, or the GPU reports an illegal instruction."""
        if geometry.unit.elements > 1:
            step = PACKED_BOX if geometry.unit.padded else ROW_ALIGN * geometry.unit.elements
            if first % step:
                raise MisalignedError(
                    f"innermost coordinate {first}: must be a multiple of {step} with "
                    f"{geometry.type_name}"
                )
        elif first * geometry.item % ROW_ALIGN:
            raise MisalignedError(
                f"innermost coordinate {first}: {first} elements of {geometry.item} bytes are not "
                f"a multiple of {ROW_ALIGN} bytes"
            )

    @staticmethod
    def _check_signs(coords: list[int]) -> None:
        """Loads clip boxes at both edges of the tensor, stores at the far one only."""
        if min(coords) < 0:
            raise KernelFault(
                f"coordinates {', '.join(map(str, coords))}: an H200 refuses negative coordinates "
                "in tensor stores (illegal instruction); accepted: 0 and up"
            )

    @staticmethod
    def _geometry(warp: Warp, address: int) -> Geometry:
        held, start = global_point(warp.wave, address, BYTES, ALIGN)
        encoded = decode(held.data[start : start + BYTES].tobytes())
        if encoded is None:
            raise KernelFault(
                f"0x{address:x} holds no tensor map made by gpukit.emulator.tensormap (the "
                "driver's format is not public)",
                address=address,
            )
        return geometry_of(encoded)


@dataclass(frozen=True, slots=True)
class _Load:
    """The decoded operands of a load."""

    to: Point
    tensor: _Tensor
    barrier: Point
    mask: int | None
    space: str
    pair: bool


@op("cp.async.bulk.tensor", "cp.reduce.async.bulk.tensor")
def tensor(instr: Instr, modifiers: Modifiers, assembler: Assembler) -> Op:
    to, source = take_direction(modifiers)
    mode = _take_mode(modifiers, assembler, "scatter4" if to == "global" else "gather4")
    signals = take_completion(modifiers)
    hinted = modifiers.flag("L2::cache_hint")
    reduces = instr.mods[0] == "reduce"
    if to == "global":
        require(source == "shared::cta" and not signals, "a store tracks by .bulk_group")
        operation = modifiers.pick(*OPERATIONS) if reduces else None
        require(not (reduces and mode.four), "reductions have no .tile::scatter4")
        return _store_op(instr, assembler, mode, operation)
    require(source == "global" and signals and not reduces, "a load tracks by an mbarrier")
    return _load_op(instr, modifiers, assembler, mode, to, hinted)


def _load_op(
    instr: Instr, modifiers: Modifiers, assembler: Assembler, mode: _Mode, to: str, hinted: bool
) -> Op:
    multicast = modifiers.flag("multicast::cluster")
    pair = modifiers.pick("cta_group::1", "cta_group::2", default="cta_group::1")[-1] == "2"
    target, source, barrier, *rest = instr.operands
    require(len(rest) == multicast + hinted, "has a wrong number of operands")
    load = _Load(
        Point(assembler, target),
        _Tensor(assembler, source, mode),
        Point(assembler, barrier),
        assembler.src(rest[0], U16) if multicast else None,
        to.removeprefix("shared::"),
        pair,
    )
    return per_lane("async copy", lambda warp, lane: _load(warp, lane, load))


def _load(warp: Warp, lane: int, load: _Load) -> None:
    """A box into the shared memory of one CTA or of several; outside the tensor it is filled."""
    source = load.tensor.tile(warp, lane)
    geometry = source.geometry
    home, offset = shared_point(
        warp, load.to.at(warp, lane), load.space, geometry.extent, SHARED_ALIGN
    )
    selected = warp.V[load.mask].item(lane) if load.mask is not None else None
    ctas = receivers(warp, home, selected)
    targets = [_target(geometry, cta, offset) for cta in ctas]
    signals = Signals.find(
        warp, load.barrier.at(warp, lane), load.space, home, ctas, geometry.bytes, load.pair
    )
    reads = source.ranges if warp.wave.listeners else ()
    _count(warp, source)
    count_load(warp, source.bytes, len(ctas))
    warp.wave.launch.count("tma_write_wavefronts", -(-geometry.extent // 128) * len(ctas))
    warp.wave.launch.count("tma_load_rows", geometry.rows)
    load_once = cache(source.load)
    for number, target in enumerate(targets):  # each receives its box at a time of its own
        made = engine.issue(warp, engine.one_lane(lane), "tma_load", reads, (target.range,))
        signals.after(partial(_lay_down, target, load_once), made, number)


def _lay_down(target: SharedTile, load: Callable[[], tuple[Any, Any]]) -> None:
    target.put(*load())


def _target(geometry: Geometry, cta: Cta, offset: int) -> SharedTile:
    check_barriers(cta, offset, geometry.extent)
    return SharedTile(geometry, cta, offset)


def _count(warp: Warp, tile: TensorTile | FourRows) -> None:
    launch = warp.wave.launch
    launch.count("tma_boxes")
    launch.count("tma_oob_bytes", tile.geometry.bytes - tile.bytes)


def _store_op(instr: Instr, assembler: Assembler, mode: _Mode, operation: str | None) -> Op:
    target = _Tensor(assembler, instr.operands[0], mode)
    source = Point(assembler, instr.operands[1])
    return per_lane("async copy", _storing(target, source, operation))


def _storing(target: _Tensor, source: Point, operation: str | None) -> PerLane:
    def run(warp: Warp, lane: int) -> None:
        """A box out of the CTA's shared memory; what is outside the tensor is dropped."""
        tile = target.tile(warp, lane, stored=operation is None)
        tile.require_writable()
        geometry = tile.geometry
        _check_storable(geometry)
        reduction = _reduction(operation, geometry)
        cta, offset = shared_point(
            warp, source.at(warp, lane), "cta", geometry.extent, SHARED_ALIGN
        )
        box = _target(geometry, cta, offset)
        kind = "tma_store" if reduction is None else "tma_reduce"
        writes = tile.ranges if warp.wave.listeners else ()
        made = engine.issue(warp, engine.one_lane(lane), kind, (box.range,), writes)
        _count(warp, tile)
        warp.wave.launch.count("bulk_store_bytes", tile.bytes)
        store_later(
            warp, made, lambda: box.get(tile.window), lambda data: tile.store(data, reduction)
        )

    return run


def _check_storable(geometry: Geometry) -> None:
    """16u4_align16b has no stores; those of 16u6_align16b take another layout."""
    if geometry.unit.padded:
        raise KernelFault(f"tensor stores of {geometry.type_name} are not emulated")


def _reduction(operation: str | None, geometry: Geometry) -> Reduction | None:
    if operation is None:
        return None
    try:
        return tensor_reduction(operation, geometry.type_name)
    except Unsupported as why:
        raise KernelFault(str(why)) from None


@op("cp.async.bulk.prefetch.tensor")
def prefetch(instr: Instr, modifiers: Modifiers, assembler: Assembler) -> Op:
    """A hint for the L2 cache; map and box must be valid."""
    mode = _take_mode(modifiers, assembler, "gather4")
    modifiers.drop("L2", "global", "L2::cache_hint")
    tensor = _Tensor(assembler, instr.operands[0], mode)

    def act(warp: Warp, lane: int) -> Any:
        tensor.tile(warp, lane)

    return per_lane("hint", act)
