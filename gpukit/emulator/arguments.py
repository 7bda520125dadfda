"""Kernel arguments: arrays become pointers, scalars and structs go by value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpukit.emulator.errors import LaunchError
from gpukit.emulator.layout import pack
from gpukit.emulator.mem.allocations import GlobalMemory
from gpukit.emulator.ptx.ir import Function, Var
from gpukit.emulator.tensormap import TensorMap


@dataclass(frozen=True, slots=True)
class Uninitialized:
    """An array whose contents count as never written: reading it before writing is an error."""

    array: np.ndarray[Any, Any]


def pack_arguments(kernel: Function, args: Sequence[Any], memory: GlobalMemory) -> bytes:
    """The parameter buffer. Raises ``LaunchError`` naming the argument that does not fit."""
    if len(args) != len(kernel.params):
        raise LaunchError(
            f"args: {kernel.name} takes {len(kernel.params)} arguments, {len(args)} were given"
        )
    offsets, end = pack(kernel.params)
    buffer = bytearray(end)
    for number, (param, value) in enumerate(zip(kernel.params, args, strict=True)):
        raw = _bytes(f"args[{number}] of {kernel.name}", param, value, memory)
        if len(raw) != param.size:
            raise LaunchError(
                f"args[{number}] of {kernel.name}: {_name(value)} has {len(raw)} bytes, the "
                f"parameter {param.size} ({_declared(param)})"
            )
        buffer[offsets[param] : offsets[param] + len(raw)] = raw
    return bytes(buffer)


def _declared(param: Var) -> str:
    array = f"[{param.count}]" if param.count is not None else ""
    return f".{param.type.name}{array}"


def _name(value: Any) -> str:
    if isinstance(value, np.ndarray | np.generic):
        return f"{type(value).__name__} of dtype {value.dtype}"
    return type(value).__name__


def _bytes(what: str, param: Var, value: Any, memory: GlobalMemory) -> bytes:
    if isinstance(value, Uninitialized):
        return _pointer(what, value.array, memory, written=False)
    if isinstance(value, np.ndarray):
        return _pointer(what, value, memory, written=True)
    if isinstance(value, TensorMap):
        return value.encode(memory)
    if value is None:
        return bytes(8)
    if isinstance(value, np.generic):
        return value.tobytes()
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if isinstance(value, bool | int) and param.count is None and not param.type.is_float:
        return _integer(what, param, int(value))
    if isinstance(value, float) and param.type.is_float and param.count is None:
        return np.asarray(value, param.type.dtype).tobytes()
    raise LaunchError(
        f"{what}: {type(value).__name__} cannot be passed as {_declared(param)}; pass a NumPy "
        "array (pointer), a NumPy scalar or structured scalar (by value), or bytes"
    )


def _integer(what: str, param: Var, value: int) -> bytes:
    bits = param.type.bits
    if not -(1 << (bits - 1)) <= value < 1 << bits:
        raise LaunchError(f"{what}: {value} does not fit into {bits} bits")
    return (value & ((1 << bits) - 1)).to_bytes(bits // 8, "little")


def _pointer(what: str, array: np.ndarray[Any, Any], memory: GlobalMemory, written: bool) -> bytes:
    if not (array.flags.c_contiguous or array.flags.f_contiguous):
        raise LaunchError(f"{what}: the array is not contiguous; pass np.ascontiguousarray(...)")
    if array.dtype.hasobject or not array.dtype.isnative:
        raise LaunchError(f"{what}: dtype {array.dtype} cannot live in device memory")
    return memory.map(array, what, written=written).to_bytes(8, "little")
