"""Kernel arguments: arrays become pointers, scalars and structs go by value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpukit.emulator.argument_types import check_array, check_scalar, declared
from gpukit.emulator.errors import LaunchError
from gpukit.emulator.inputs import shown
from gpukit.emulator.layout import pack
from gpukit.emulator.mem.allocations import GlobalMemory, host_array
from gpukit.emulator.ptx.ir import Function, Var
from gpukit.emulator.tensormap import TensorMap


@dataclass(frozen=True, slots=True)
class Uninitialized:
    """An array whose contents count as never written: reading it before writing is an error."""

    array: np.ndarray[Any, Any]


def pack_arguments(
    kernel: Function, args: Sequence[Any], memory: GlobalMemory, types: Sequence[str] = ()
) -> bytes:
    """The parameter buffer. Raises ``LaunchError`` naming the argument that does not fit.

    ``types`` are the parameters' C++ types where known (``signature.parameter_types``).
    """
    if len(args) != len(kernel.params):
        raise LaunchError(
            f"args: {kernel.name} takes {len(kernel.params)} arguments, {len(args)} were given"
        )
    offsets, end = pack(kernel.params)
    buffer = bytearray(end)
    c_types = types or ("",) * len(args)
    for number, (param, value, c_type) in enumerate(zip(kernel.params, args, c_types, strict=True)):
        raw = _Parameter(f"args[{number}] of {kernel.name}", param, c_type).bytes_of(value, memory)
        buffer[offsets[param] : offsets[param] + len(raw)] = raw
    return bytes(buffer)


@dataclass(frozen=True, slots=True)
class _Parameter:
    """One parameter, and what messages call the argument for it."""

    what: str
    param: Var
    c_type: str

    def bytes_of(self, value: Any, memory: GlobalMemory) -> bytes:
        """The parameter's bytes for this value."""
        raw = self._convert(value, memory)
        if len(raw) != self.param.size:
            raise LaunchError(
                f"{self.what}: {_name(value)} has {len(raw)} bytes, the parameter "
                f"{self.param.size} ({declared(self.param, self.c_type)})"
            )
        if isinstance(value, np.generic):
            check_scalar(self.what, value, self.param, self.c_type)
        return raw

    def _convert(self, value: Any, memory: GlobalMemory) -> bytes:
        if isinstance(value, Uninitialized):
            return self._pointer(value.array, memory, written=False)
        if isinstance(value, np.ndarray):
            return self._pointer(value, memory, written=True)
        if isinstance(value, TensorMap):
            return self._tensor_map(value, memory)
        if value is None:
            return bytes(8)
        if isinstance(value, np.generic):
            return value.tobytes()
        if isinstance(value, bytes | bytearray | memoryview):
            return bytes(value)
        return self._number(value)

    def _pointer(self, array: Any, memory: GlobalMemory, written: bool) -> bytes:
        check_array(self.what, host_array(array, self.what).dtype, self.param, self.c_type)
        return memory.map(array, self.what, written=written).to_bytes(8, "little")

    def _tensor_map(self, value: TensorMap, memory: GlobalMemory) -> bytes:
        try:
            return value.encode(memory)
        except LaunchError as why:
            raise LaunchError(f"{self.what}: {why}") from None

    def _number(self, value: Any) -> bytes:
        """A Python number."""
        scalar = self.param.count is None
        if isinstance(value, int) and scalar and not self.param.type.is_float:
            return self._integer(int(value))
        if isinstance(value, float) and scalar and self.param.type.is_float:
            return self._float(value)
        raise LaunchError(
            f"{self.what}: {_name(value)} cannot be passed as "
            f"{declared(self.param, self.c_type)}; {self._advice(value)}"
        )

    def _advice(self, value: Any) -> str:
        if isinstance(value, int | float) and self.param.count is None:
            return f"pass {'a float' if self.param.type.is_float else 'an integer'}"
        return (
            "pass a NumPy array (pointer), a NumPy scalar or structured scalar (by value), or bytes"
        )

    def _integer(self, value: int) -> bytes:
        bits = self.param.type.bits
        if not -(1 << (bits - 1)) <= value < 1 << bits:
            raise LaunchError(f"{self.what}: {shown(value)} does not fit into {bits} bits")
        return (value & ((1 << bits) - 1)).to_bytes(bits // 8, "little")

    def _float(self, value: float) -> bytes:
        with np.errstate(over="ignore"):
            converted = np.asarray(value, self.param.type.dtype)
        if np.isinf(converted) and not np.isinf(value):
            raise LaunchError(f"{self.what}: {value!r} does not fit into .{self.param.type.name}")
        return converted.tobytes()


def _name(value: Any) -> str:
    if isinstance(value, np.ndarray | np.generic):
        return f"{type(value).__name__} of dtype {value.dtype}"
    return "a null pointer (None)" if value is None else type(value).__name__
