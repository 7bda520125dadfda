"""atom and red: read-modify-write on global and shared memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from gpukit.emulator.alu.floats import extremum
from gpukit.emulator.alu.sums import memory_sum, shared_sum
from gpukit.emulator.instructions import Mask, Modifiers, Op, Unsupported, op
from gpukit.emulator.mem.access import Access
from gpukit.emulator.mem.patterns import ATOMICS
from gpukit.emulator.mem.spaces import Place, take_space
from gpukit.emulator.mem.transfer import require_writable, take_order, take_vector
from gpukit.emulator.ptx.ir import Instr, Operand, Sink, Vec
from gpukit.emulator.ptx.types import PtxType
from gpukit.emulator.spin_loops import SpinLoops, leaves_memory
from gpukit.emulator.spins import note_poll

if TYPE_CHECKING:
    from gpukit.emulator.assembler import Assembler
    from gpukit.emulator.lanes import Lanes
    from gpukit.emulator.outcomes import Outcome

Update = Callable[..., Any]

_PLAIN: dict[str, Update] = {
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "add": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "exch": lambda old, b: b,
    "inc": lambda old, b: np.where(old >= b, 0, old + 1),
    "dec": lambda old, b: np.where((old == 0) | (old > b), b, old - 1),
    "cas": lambda old, b, c: np.where(old == b, c, old),
}


@op("atom")
def atom(instr: Instr, modifiers: Modifiers, assembler: Assembler) -> Op:
    return _build(instr.operands[0], instr.operands[1:], modifiers, assembler)


@op("red")
def red(instr: Instr, modifiers: Modifiers, assembler: Assembler) -> Op:
    return _build(Sink(), instr.operands, modifiers, assembler)


def _build(
    target: Operand, operands: tuple[Operand, ...], modifiers: Modifiers, assembler: Assembler
) -> Op:
    order, space = take_order(modifiers), take_space(modifiers)
    order = order.replace("weak", "relaxed")
    order = order if "." in order else f"{order}.gpu"
    kind, count, type_ = modifiers.pick(*_PLAIN), take_vector(modifiers), modifiers.type()
    update = _update(kind, type_, space)
    values = operands[1 : 3 if kind == "cas" else 2]
    sources = [[assembler.src(item, type_) for item in _items(v, count)] for v in values]
    returned = None
    if not isinstance(target, Sink):
        returned = [assembler.dst(item, type_) for item in _items(target, count)]
    place = Place(assembler, operands[0], space, type_.bytes * count)
    if returned is not None and leaves_memory(kind, operands[1]):
        assembler.analysis(SpinLoops).add(assembler.pc, place, ATOMICS)

    def run(lanes: Lanes, mask: Mask) -> Outcome:
        for access in place.accesses(lanes, mask):
            if returned is not None:
                note_poll(lanes, access)
            require_writable(access)
            access.pattern.hits[ATOMICS] += 1
            access.check_read(lanes, "atomic", order)
            for k in range(count):
                rows = [lanes.V[slots[k]] for slots in sources]
                given = rows if access.mask is None else [row[access.mask] for row in rows]
                before = access.read(type_.dtype, k * type_.pack).tobytes()
                old = modify(access, type_, k * type_.pack, update, given)
                if access.read(type_.dtype, k * type_.pack).tobytes() != before:
                    lanes.wave.scheduler.changed = True
                if returned is not None:
                    where = slice(None) if access.mask is None else access.mask
                    lanes.V[returned[k]][where] = old
            for listener in lanes.wave.listeners:
                listener.accessed(lanes, access, "atomic", order)
        return None

    return Op("atomic", handler=run, wide=True)


def _items(operand: Operand, count: int) -> list[Operand]:
    items: list[Operand] = list(operand.items) if isinstance(operand, Vec) else [operand]
    return items if len(items) == count else items * count


def _update(kind: str, type_: PtxType, space: str) -> Update:
    if type_.bits == 128:
        if kind == "exch":
            return _PLAIN[kind]
        if kind == "cas":
            return lambda old, b, c: np.where((old == b).all(axis=-1)[..., None], c, old)
        raise Unsupported(f"atom.{kind}.b128 is not supported")
    if not type_.is_float:
        return _PLAIN[kind]
    if kind in ("min", "max"):
        return extremum(Modifiers(()), type_, kind).fn
    if kind == "add":
        return shared_sum if space == "shared" else memory_sum(type_.dtype, atomic=True)
    return _PLAIN[kind]


def modify(access: Access, type_: PtxType, k: int, update: Update, given: list[Any]) -> Any:
    """Apply ``update`` lane after lane; returns what each active lane found.

    ``k`` is the first element of ``type_.dtype`` within the lane's bytes.
    """
    size = type_.dtype.itemsize
    words = access.store.words(type_.dtype)
    at = access.elements(size) + k
    if type_.pack > 1:
        at = at[:, None] + np.arange(type_.pack)
    ufunc = isinstance(update, np.ufunc)
    if ufunc and access.pattern.kind == "same" and type_.pack == 1:
        return _accumulate(words, int(at[0]), update, given[0])
    old = np.empty(at.shape, type_.dtype)
    for group in access.pattern.rounds:
        found = words[at[group]]
        old[group] = found
        words[at[group]] = update(found, *(values[group] for values in given))
    return old


def _accumulate(words: Any, at: int, ufunc: Any, values: Any) -> Any:
    """All lanes on one address: the running result is what each lane finds."""
    steps = np.empty(values.size + 1, words.dtype)
    steps[0] = words[at]
    steps[1:] = values
    steps = ufunc.accumulate(steps, dtype=words.dtype)
    words[at] = steps[-1]
    return steps[:-1]
