"""The reductions of bulk and tensor copies: which operation goes with which type."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpukit.emulator.alu.floats import extremum
from gpukit.emulator.alu.sums import memory_sum
from gpukit.emulator.instructions import Modifiers, Unsupported
from gpukit.emulator.ptx.types import TYPES, PtxType

OPERATIONS = ("add", "min", "max", "inc", "dec", "and", "or", "xor")
_INTEGER: dict[str, Callable[[Any, Any], Any]] = {
    "add": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "inc": lambda old, b: np.where(old >= b, 0, old + 1),
    "dec": lambda old, b: np.where((old == 0) | (old > b), b, old - 1),
}
_WORDS = ("u32", "s32", "u64")
_TO_SHARED = {"add": _WORDS, "min": ("u32", "s32"), "max": ("u32", "s32"), "inc": ("u32",),
              "dec": ("u32",), "and": ("b32",), "or": ("b32",), "xor": ("b32",)}  # fmt: skip
_ORDERED = (*_WORDS, "s64", "f16", "bf16")
_BITS = ("b32", "b64")
_TO_GLOBAL = {"add": (*_WORDS, "f32", "f64", "f16", "bf16"), "min": _ORDERED, "max": _ORDERED,
              "inc": ("u32",), "dec": ("u32",),
              "and": _BITS, "or": _BITS, "xor": _BITS}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Reduction:
    """``combine(old, new)`` of arrays of ``type.dtype``."""

    type: PtxType
    combine: Callable[[Any, Any], Any]


def take_reduction(modifiers: Modifiers, to_space: str) -> Reduction:
    """Take operation and type of a bulk reduction."""
    operation = modifiers.pick(*OPERATIONS)
    noftz = modifiers.flag("noftz")
    type_ = modifiers.type()
    allowed = _TO_GLOBAL if to_space == "global" else _TO_SHARED
    if type_.name not in allowed[operation]:
        raise Unsupported(f".{operation} of .{type_.name} to .{to_space} does not exist")
    if noftz != (operation == "add" and type_.name in ("f16", "bf16")):
        raise Unsupported(".noftz goes with .add of .f16 and .bf16, and they need it")
    return reduction(operation, type_)


def reduction(operation: str, type_: PtxType) -> Reduction:
    """The reduction of a type. No sum flushes subnormals."""
    if type_.is_float and operation in ("min", "max"):
        return Reduction(type_, extremum(Modifiers(()), type_, operation).fn)
    if type_.is_float and operation == "add":
        return Reduction(type_, memory_sum(type_.dtype, atomic=False))
    return Reduction(type_, _INTEGER[operation])


def tensor_reduction(operation: str, type_name: str) -> Reduction:
    """The reduction of a tensor map's elements. Raises ``Unsupported`` if there is none.

    Bitwise operations take s32 for its bits, but s64 has only .min and .max: an H200 performs
    .or of s32 and answers .xor of s64 with an illegal instruction.
    """
    names = {type_name}
    if operation in ("and", "or", "xor") and type_name in _WORDS:
        names.add(f"b{type_name[1:]}")
    allowed = names & set(_TO_GLOBAL[operation]) - {"f64"}
    if not allowed:
        raise Unsupported(f".{operation} of elements of type {type_name} does not exist")
    return reduction(operation, TYPES[type_name])
