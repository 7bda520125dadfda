"""The opcodes that integers and floats share."""

from __future__ import annotations

import numpy as np

from gpukit.emulator.alu import floats, integers
from gpukit.emulator.instructions import Expr, Modifiers, alu


@alu("add")
def add(modifiers: Modifiers) -> Expr:
    type_ = modifiers.type()
    if type_.is_float:
        return floats.arithmetic("add", modifiers, type_)
    return integers.add_sub(modifiers, type_, np.add)


@alu("sub")
def sub(modifiers: Modifiers) -> Expr:
    type_ = modifiers.type()
    if type_.is_float:
        return floats.arithmetic("sub", modifiers, type_)
    return integers.add_sub(modifiers, type_, np.subtract)


@alu("mul")
def mul(modifiers: Modifiers) -> Expr:
    type_ = modifiers.type()
    if type_.is_float:
        return floats.arithmetic("mul", modifiers, type_)
    return integers.multiply(modifiers, type_)


@alu("mad")
def mad(modifiers: Modifiers) -> Expr:
    type_ = modifiers.type()
    if type_.is_float:
        return floats.fused(modifiers, type_)
    return integers.multiply_add(modifiers, type_)


@alu("fma")
def fma(modifiers: Modifiers) -> Expr:
    return floats.fused(modifiers, modifiers.type())


@alu("min")
def minimum(modifiers: Modifiers) -> Expr:
    type_ = modifiers.type()
    if type_.is_float:
        return floats.extremum(modifiers, type_, "min")
    return integers.minimum_maximum(modifiers, type_, np.minimum)


@alu("max")
def maximum(modifiers: Modifiers) -> Expr:
    type_ = modifiers.type()
    if type_.is_float:
        return floats.extremum(modifiers, type_, "max")
    return integers.minimum_maximum(modifiers, type_, np.maximum)


@alu("abs")
def absolute(modifiers: Modifiers) -> Expr:
    type_ = modifiers.type()
    if type_.is_float:
        return floats.sign_bits(modifiers, type_, "abs")
    return Expr(np.abs, (type_,), type_, out=True)


@alu("neg")
def negative(modifiers: Modifiers) -> Expr:
    type_ = modifiers.type()
    if type_.is_float:
        return floats.sign_bits(modifiers, type_, "neg")
    return integers.negated(type_)
