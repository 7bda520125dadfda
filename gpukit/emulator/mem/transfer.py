"""ld, st and ldu: registers to and from every state space."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpukit.emulator.errors import KernelFault
from gpukit.emulator.instructions import Mask, Modifiers, Op, Unsupported, op
from gpukit.emulator.mem.access import Access
from gpukit.emulator.mem.patterns import LOADS, STORES
from gpukit.emulator.mem.spaces import Place, take_space
from gpukit.emulator.ptx.ir import Addr, Instr, Operand, Sym, Var, Vec
from gpukit.emulator.ptx.types import TYPES, PtxType
from gpukit.emulator.spin_loops import SpinLoops
from gpukit.emulator.spins import note_poll

if TYPE_CHECKING:
    from gpukit.emulator.assembler import Assembler
    from gpukit.emulator.lanes import Lanes
    from gpukit.emulator.outcomes import Outcome

_ORDERS = ("relaxed", "acquire", "release", "acq_rel", "volatile", "mmio", "weak")
_SCOPES = ("cta", "cluster", "gpu", "sys")
_HINTS = ("nc", "ca", "cg", "cs", "lu", "cv", "wb", "wt", "unified", "noftz")


def take_order(modifiers: Modifiers) -> str:
    """Take memory order, scope and cache hints; returns "order.scope" or "weak"."""
    modifiers.words = [w for w in modifiers.words if not w.startswith(("L1::", "L2::", "level::"))]
    modifiers.drop(*_HINTS)
    order = modifiers.pick(*_ORDERS, default="weak")
    if modifiers.flag("mmio"):
        order = "mmio"
    scope = modifiers.pick(*_SCOPES, default="")
    return f"{order}.{scope}" if scope else order


class Elements:
    """The registers of a (vector) transfer: one slot per element of ``type``."""

    def __init__(self, type_: PtxType, slots: list[int], columns: bool) -> None:
        # A 128-bit register moves as its two 64-bit halves.
        self.dtype = TYPES["u64"].dtype if columns else _storage(type_)
        self.slots = slots
        self.columns = columns
        self.size = type_.bytes * len(slots)

    def pieces(self, lanes: Lanes) -> list[Any]:
        """The register rows, in memory order."""
        rows = [lanes.V[slot] for slot in self.slots]
        return [row[:, c] for row in rows for c in (0, 1)] if self.columns else rows


def _storage(type_: PtxType) -> Any:
    return TYPES[f"{'s' if type_.signed else 'u'}{type_.bits}"].dtype


def items_of(operand: Operand, count: int) -> list[Operand]:
    items: list[Operand] = list(operand.items) if isinstance(operand, Vec) else [operand]
    if len(items) != count:
        raise Unsupported(f"needs {count} registers, has {len(items)}")
    return items


def take_vector(modifiers: Modifiers) -> int:
    return int(modifiers.pick("v2", "v4", "v8", default="v1")[1:])


def raw(type_: PtxType) -> PtxType:
    """The type as plain bits (loads and stores do not look at the value)."""
    if type_.pack > 1 and type_.bits != 128:
        return TYPES[f"u{type_.bits}"]
    return TYPES[f"u{type_.bits}"] if type_.is_float else type_


@op("ld", "ldu")
def load(instr: Instr, modifiers: Modifiers, assembler: Assembler) -> Op:
    order, space = take_order(modifiers), take_space(modifiers)
    count, type_ = take_vector(modifiers), raw(modifiers.type())
    targets = items_of(instr.operands[0], count)
    slots = [assembler.dst(target, type_) for target in targets]
    elements = Elements(type_, slots, type_.bits == 128)
    source = instr.operands[1]
    if space == "param" and _is_kernel_param(source, assembler):
        return _load_param(source, elements, assembler)
    if space == "param" and _is_framed(source, assembler):
        space = "local"
    place = Place(assembler, source, space, elements.size)
    polls = order != "weak"
    if polls:
        assembler.analysis(SpinLoops).add(assembler.pc, place, LOADS)

    def run(lanes: Lanes, mask: Mask) -> Outcome:
        for access in place.accesses(lanes, mask):
            if polls:
                note_poll(lanes, access)
            _fetch(lanes, access, elements, order)
            for listener in lanes.wave.listeners:
                listener.accessed(lanes, access, "read", order)
        return None

    return Op("load", handler=run, wide=True)


def _fetch(lanes: Lanes, access: Access, elements: Elements, order: str) -> None:
    access.pattern.hits[LOADS] += 1
    access.check_read(lanes, "read", order)
    mask, dtype = access.mask, elements.dtype
    for k, row in enumerate(elements.pieces(lanes)):
        if mask is None:
            row[...] = access.read(dtype, k)
        else:
            row[mask] = access.read(dtype, k)


def _is_kernel_param(operand: Operand, assembler: Assembler) -> bool:
    base = operand.base if isinstance(operand, Addr) else None
    target = base.target if isinstance(base, Sym) else None
    return isinstance(target, Var) and target in assembler.program.param_offsets


def _is_framed(operand: Operand, assembler: Assembler) -> bool:
    base = operand.base if isinstance(operand, Addr) else None
    return isinstance(base, Sym) and assembler.is_framed(base)


def _load_param(source: Operand, elements: Elements, assembler: Assembler) -> Op:
    """Kernel parameters are constants of the launch: a plain register move."""
    assert isinstance(source, Addr)
    assert isinstance(source.base, Sym)
    start = assembler.program.param_offsets[source.base.target] + source.offset  # type: ignore[index]
    if elements.columns:
        raise Unsupported("128-bit parameters are not supported")
    moves = [
        (slot, assembler.param(start + k * elements.dtype.itemsize, elements.dtype))
        for k, slot in enumerate(elements.slots)
    ]

    def full(v: list[Any]) -> None:
        for to, value in moves:
            v[to][...] = v[value]

    def masked(v: list[Any], mask: Mask) -> None:
        for to, value in moves:
            v[to][mask] = v[value][mask]

    return Op("load", full, masked)


@op("st")
def store(instr: Instr, modifiers: Modifiers, assembler: Assembler) -> Op:
    order, space = take_order(modifiers), take_space(modifiers)
    count, type_ = take_vector(modifiers), raw(modifiers.type())
    sources = items_of(instr.operands[1], count)
    slots = [assembler.src(source, type_) for source in sources]
    elements = Elements(type_, slots, type_.bits == 128)
    target = instr.operands[0]
    if space == "param" and _is_framed(target, assembler):
        space = "local"
    place = Place(assembler, target, space, elements.size)

    def run(lanes: Lanes, mask: Mask) -> Outcome:
        for access in place.accesses(lanes, mask):
            _put(lanes, access, elements)
            for listener in lanes.wave.listeners:
                listener.accessed(lanes, access, "write", order)
        return None

    return Op("store", handler=run, wide=True)


def _put(lanes: Lanes, access: Access, elements: Elements) -> None:
    require_writable(access)
    access.pattern.hits[STORES] += 1
    mask, dtype = access.mask, elements.dtype
    for k, row in enumerate(elements.pieces(lanes)):
        access.write(dtype, k, row if mask is None else row[mask])
    access.mark_written(lanes)


def require_writable(access: Access) -> None:
    """Constants and kernel parameters cannot be stored to."""
    if not getattr(access.store, "writable", True):
        address = access.address(0)
        lane = 0 if access.mask is None else int(access.mask.argmax())
        name = getattr(access.store, "name", "memory")
        raise KernelFault(f"writes to {name}, which is read-only", lane=lane, address=address)
