"""setp and set: comparisons, optionally combined with a predicate."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpukit.emulator.alu.formats import flush
from gpukit.emulator.instructions import Expr, Modifiers, alu
from gpukit.emulator.ptx.types import TYPES, PtxType

PRED = TYPES["pred"]

_INTEGER: dict[str, Any] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal,
    "gt": np.greater, "ge": np.greater_equal,
    "lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal,
}  # fmt: skip


def _is_nan(a: Any, b: Any) -> Any:
    return (a != a) | (b != b)


# Ordered comparisons are false on NaN, the ...u ones true.
_FLOAT: dict[str, Any] = {
    "eq": np.equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "ne": lambda a, b: (a != b) & ~_is_nan(a, b),
    "equ": lambda a, b: (a == b) | _is_nan(a, b),
    "neu": np.not_equal,
    "ltu": lambda a, b: ~(a >= b),
    "leu": lambda a, b: ~(a > b),
    "gtu": lambda a, b: ~(a <= b),
    "geu": lambda a, b: ~(a < b),
    "num": lambda a, b: ~_is_nan(a, b),
    "nan": _is_nan,
}  # fmt: skip
_JOIN: dict[str, Any] = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}
_NAMES = tuple({**_INTEGER, **_FLOAT})


def _comparison(modifiers: Modifiers) -> tuple[Any, str, bool]:
    name = modifiers.pick(*_NAMES)
    join = modifiers.pick(*_JOIN, default="")
    return name, join, modifiers.flag("ftz")


def _function(name: str, type_: PtxType, ftz: bool) -> Any:
    if not type_.is_float:
        return _INTEGER[name]
    compare = _FLOAT[name]
    if not ftz:
        return compare
    return lambda a, b: compare(flush(a), flush(b))


@alu("setp")
def setp(modifiers: Modifiers) -> Expr:
    name, join, ftz = _comparison(modifiers)
    type_ = modifiers.type()
    compare = _function(name, type_, ftz)
    category = "float" if type_.is_float else "integer"
    if type_.pack == 2:
        return _packed(compare, join, type_)
    if join:
        combine = _JOIN[join]

        def run(a: Any, b: Any, c: Any) -> Any:
            holds = compare(a, b)
            return combine(holds, c), combine(~holds, c)

        return Expr(run, (type_, type_, PRED), PRED, extra=(PRED,), category=category)
    ufunc = isinstance(compare, np.ufunc)
    return Expr(compare, (type_, type_), PRED, out=ufunc, category=category)


def _packed(compare: Any, join: str, type_: PtxType) -> Expr:
    """Two halves, two predicates."""
    if not join:
        return Expr(
            lambda a, b: tuple(compare(a, b).T), (type_, type_), PRED, extra=(PRED,),
            category="float",
        )  # fmt: skip
    combine = _JOIN[join]
    return Expr(
        lambda a, b, c: tuple(combine(half, c) for half in compare(a, b).T),
        (type_, type_, PRED), PRED, extra=(PRED,), category="float",
    )  # fmt: skip


def _set_halves(compare: Any, join: str, type_: PtxType, result: PtxType) -> Expr:
    """Packed operands, integer result: each half is all ones or zero."""

    def pack(holds: Any) -> Any:
        halves = np.where(holds, np.uint32(0xFFFF), np.uint32(0))
        return (halves[:, 0] | halves[:, 1] << np.uint32(16)).view(result.dtype)

    if not join:
        return Expr(lambda a, b: pack(compare(a, b)), (type_, type_), result)
    combine = _JOIN[join]
    return Expr(lambda a, b, c: pack(combine(compare(a, b), c[:, None])), (type_, type_, PRED),
                result)  # fmt: skip


@alu("set")
def set_(modifiers: Modifiers) -> Expr:
    name, join, ftz = _comparison(modifiers)
    result, type_ = modifiers.type(), modifiers.type()
    compare = _function(name, type_, ftz)
    if type_.pack == 2 and result.pack == 1:
        return _set_halves(compare, join, type_, result)
    true = result.dtype.type(
        1 if result.is_float else -1 if result.signed else ~result.dtype.type(0)
    )
    zero = result.dtype.type(0)
    if not join:
        return Expr(lambda a, b: np.where(compare(a, b), true, zero), (type_, type_), result)
    combine = _JOIN[join]
    return Expr(
        lambda a, b, c: np.where(combine(compare(a, b), c), true, zero),
        (type_, type_, PRED),
        result,
    )
