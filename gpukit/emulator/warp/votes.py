"""vote, match, redux, elect and activemask."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpukit.emulator.alu.floats import extremum
from gpukit.emulator.instructions import Mask, Modifiers, Op, Unsupported, op
from gpukit.emulator.ptx.ir import Instr, Not, Operand, Pair
from gpukit.emulator.ptx.types import TYPES
from gpukit.emulator.warp.collective import collective

if TYPE_CHECKING:
    from gpukit.emulator.assembler import Assembler
    from gpukit.emulator.lanes import Lanes
    from gpukit.emulator.outcomes import Outcome

U32, PRED = TYPES["u32"], TYPES["pred"]


def ballots(holds: Any) -> Any:
    """uint32 per warp: bit i is lane i's value. ``holds`` is a bool row."""
    return np.packbits(holds.reshape(-1, 32), axis=1, bitorder="little").view(np.uint32).ravel()


def _spread(per_warp: Any) -> Any:
    """One value per warp, repeated for its lanes."""
    return np.repeat(per_warp, 32)


def _store(lanes: Lanes, d: int, group: Mask, values: Any) -> None:
    if group is None:
        lanes.V[d][...] = values
    else:
        lanes.V[d][group] = values[group]


def _pair(first: Operand) -> tuple[Operand, Operand | None]:
    return (first.first, first.second) if isinstance(first, Pair) else (first, None)


@op("vote.sync")
def vote(instr: Instr, modifiers: Modifiers, assembler: Assembler) -> Op:
    mode = modifiers.pick("all", "any", "uni", "ballot")
    type_ = modifiers.type()
    target, predicate, mask = instr.operands
    negated = isinstance(predicate, Not)
    source = predicate.operand if isinstance(predicate, Not) else predicate
    d, a = assembler.dst(target, type_), assembler.src(source, PRED)
    members = assembler.src(mask, U32)

    def body(lanes: Lanes, group: Mask) -> None:
        holds = lanes.V[a] ^ negated
        taking_part = np.ones(lanes.width, np.bool_) if group is None else group
        yes, no = ballots(holds & taking_part), ballots(~holds & taking_part)
        per_warp = {"ballot": yes, "any": yes != 0, "all": no == 0, "uni": (yes == 0) | (no == 0)}
        _store(lanes, d, group, _spread(per_warp[mode]))

    return collective("vote", members, body)


@op("match.any.sync", "match.all.sync")
def match(instr: Instr, modifiers: Modifiers, assembler: Assembler) -> Op:
    type_ = TYPES[f"u{modifiers.type().bits}"]
    first, value, mask = instr.operands
    target, agree = _pair(first)
    d, a = assembler.dst(target, U32), assembler.src(value, type_)
    p = assembler.dst(agree, PRED) if agree is not None else None
    members = assembler.src(mask, U32)
    find = _match_any if "any" in instr.mods else _match_all

    def body(lanes: Lanes, group: Mask) -> None:
        taking_part = np.ones(lanes.width, np.bool_) if group is None else group
        found = find(lanes.V[a].reshape(-1, 32), taking_part.reshape(-1, 32))
        _store(lanes, d, group, found)
        if p is not None:
            _store(lanes, p, group, found != 0)

    return collective("vote", members, body)


def _match_any(values: Any, taking_part: Any) -> Any:
    same = (values[:, :, None] == values[:, None, :]) & taking_part[:, None, :]
    return ballots(same.reshape(-1))


def _match_all(values: Any, taking_part: Any) -> Any:
    first = np.take_along_axis(values, taking_part.argmax(axis=1)[:, None], axis=1)
    agree = ((values == first) | ~taking_part).all(axis=1)
    return _spread(np.where(agree, ballots(taking_part.reshape(-1)), 0))


# Reductions

_UFUNCS: dict[str, Any] = {
    "add": np.add, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
    "min": np.minimum, "max": np.maximum,
}  # fmt: skip


@op("redux.sync")
def redux(instr: Instr, modifiers: Modifiers, assembler: Assembler) -> Op:
    kind = modifiers.pick(*_UFUNCS)
    type_ = modifiers.type()
    if type_.is_float:
        reduce = _float_reduction(kind, modifiers)
    else:
        ufunc = _UFUNCS[kind]
        reduce = lambda rows: ufunc.reduce(rows, axis=1, dtype=rows.dtype)  # noqa: E731
    target, value, mask = instr.operands
    d, a = assembler.dst(target, type_), assembler.src(value, type_)
    members = assembler.src(mask, U32)

    def body(lanes: Lanes, group: Mask) -> None:
        if group is None:
            lanes.V[d][...] = _spread(reduce(lanes.V[a].reshape(-1, 32)))
        else:
            lanes.V[d][group] = reduce(lanes.V[a][group][None, :])[0]

    return collective("reduction", members, body)


def _float_reduction(kind: str, modifiers: Modifiers) -> Any:
    if kind not in ("min", "max"):
        raise Unsupported(f"redux.sync.{kind} has no float form")
    magnitude = modifiers.flag("abs")
    pick = extremum(modifiers, TYPES["f32"], kind).fn

    def reduce(rows: Any) -> Any:
        columns = np.abs(rows) if magnitude else rows
        result = columns[:, 0]
        for k in range(columns.shape[1]):  # the first one twice: a NaN alone becomes canonical
            result = pick(result, columns[:, k])
        return result

    return reduce


# Who is here


@op("elect.sync")
def elect(instr: Instr, modifiers: Modifiers, assembler: Assembler) -> Op:
    first, mask = instr.operands
    target, leader = _pair(first)
    d = assembler.dst(target, U32)
    p = assembler.dst(leader, PRED) if leader is not None else assembler.scratch(PRED)
    members = assembler.src(mask, U32)

    def body(lanes: Lanes, group: Mask) -> None:
        chosen = 0 if group is None else int(group.argmax())
        where = slice(None) if group is None else group
        lanes.V[d][where] = chosen
        lanes.V[p][where] = (np.arange(lanes.width) & 31 == chosen)[where]

    return collective("vote", members, body)


@op("activemask")
def activemask(instr: Instr, modifiers: Modifiers, assembler: Assembler) -> Op:
    modifiers.type()
    d = assembler.dst(instr.operands[0], U32)

    def run(lanes: Lanes, mask: Mask) -> Outcome:
        here = np.ones(lanes.width, np.bool_) if mask is None else mask
        _store(lanes, d, mask, _spread(ballots(here)))
        return None

    return Op("vote", handler=run, wide=True)
