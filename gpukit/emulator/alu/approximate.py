"""The special-function unit: ex2, lg2, sin, cos, tanh, rcp, sqrt and rsqrt.

The approximate forms are computed in binary64 and rounded once, so they lie within the ISA's
documented error of the true value but need not have the hardware's last bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gpukit.emulator.alu.floats import MODES, finished, reciprocal, square_root
from gpukit.emulator.alu.formats import F64
from gpukit.emulator.instructions import Expr, Modifiers, alu
from gpukit.emulator.ptx.types import PtxType


def _rounded(fn: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def run(a: Any) -> Any:
        return fn(a.astype(F64)).astype(a.dtype)

    return run


def _function(fn: Callable[[Any], Any]) -> Any:
    def build(modifiers: Modifiers) -> Expr:
        modifiers.flag("approx")
        type_ = modifiers.type()
        core = finished(_rounded(fn), modifiers)
        return Expr(core, (type_,), type_, category="special function")

    return build


alu("ex2")(_function(np.exp2))
alu("lg2")(_function(np.log2))
alu("sin")(_function(np.sin))
alu("cos")(_function(np.cos))
alu("tanh")(_function(np.tanh))


@alu("rcp")
def rcp(modifiers: Modifiers) -> Expr:
    approximate = modifiers.flag("approx")
    mode, type_ = modifiers.pick(*MODES, default="rn"), modifiers.type()
    if approximate and type_.dtype == F64:
        return _upper_half(modifiers, type_, lambda a: 1 / a)
    core = finished(reciprocal(type_, mode), modifiers)
    return Expr(core, (type_,), type_, category="special function")


@alu("sqrt")
def sqrt(modifiers: Modifiers) -> Expr:
    modifiers.flag("approx")
    mode, type_ = modifiers.pick(*MODES, default="rn"), modifiers.type()
    core = finished(square_root(type_, mode), modifiers)
    return Expr(core, (type_,), type_, category="special function")


@alu("rsqrt")
def rsqrt(modifiers: Modifiers) -> Expr:
    modifiers.flag("approx")
    type_ = modifiers.type()
    if type_.dtype == F64:
        if modifiers.flag("ftz"):
            modifiers.words.insert(0, "ftz")
            return _upper_half(modifiers, type_, lambda a: 1 / np.sqrt(a))
        return Expr(lambda a: 1 / np.sqrt(a), (type_,), type_, category="special function")
    core = finished(_rounded(lambda a: 1 / np.sqrt(a)), modifiers)
    return Expr(core, (type_,), type_, category="special function")


def _upper_half(modifiers: Modifiers, type_: PtxType, fn: Callable[[Any], Any]) -> Expr:
    """The gross binary64 approximations look at, and return, only the upper 32 bits."""
    high = np.uint64(0xFFFFFFFF00000000)

    def run(a: Any) -> Any:
        result = fn((a.view(np.uint64) & high).view(F64))
        result = np.where(result != result, np.uint64(0x7FFFFFFF << 32).view(F64), result)
        return (result.view(np.uint64) & high).view(F64)

    return Expr(finished(run, modifiers), (type_,), type_, category="special function")
