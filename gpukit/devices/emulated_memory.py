"""How the arrays of one emulated launch become device memory, pointers and tensor maps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gpukit.devices.tensor_map import ELEMENTS, TensorMap

if TYPE_CHECKING:
    from gpukit.emulator import GlobalMemory

_ALIGN = 256  # what a GPU's allocator guarantees


@dataclass(frozen=True)
class EmulatedMap:
    """A tensor map to be: its base has an address once a launch maps the array.

    `arch` is that of the model: what tensor maps may say depends on it.
    """

    array: Any
    request: TensorMap
    offset_bytes: int
    arch: str

    def encode(self, array_address: int) -> bytes:
        """The emulator's 128 bytes, with the array's first element at a device address."""
        from gpukit.emulator import tensormap

        r = self.request
        return tensormap.encode(
            ELEMENTS[r.element].long_name, array_address + self.offset_bytes, r.dims, r.strides,
            r.box, swizzle=_bytes_name(r.swizzle), l2_promotion=_bytes_name(r.l2_promotion),
            arch=self.arch)


def _bytes_name(count: int) -> str:
    return f"{count}B" if count else "none"


def map_arrays(args: Sequence[tuple[str, Any]]) -> tuple[GlobalMemory, dict[str, Any]]:
    """The memory of a launch, and by name what the emulator takes for each argument.

    Larger arrays are mapped first, so that an array and a part of it share one allocation, in
    whatever order they come and whether as pointers or as tensor maps.

    Args:
        args: names, and arrays or `EmulatedMap`s.
    """
    from gpukit.emulator import GlobalMemory

    memory, values = GlobalMemory(), {}
    for name, arg in sorted(args, key=_size, reverse=True):
        array = _array(arg)
        low, high = _span(array)
        address = memory.map(_bytes(array, low, high), name) + _address(array) - low
        values[name] = arg.encode(address) if isinstance(arg, EmulatedMap) else np.uint64(address)
    return memory, values


def _size(named: tuple[str, Any]) -> tuple[int, bool]:
    """What orders arguments for mapping; a writable array goes before its read-only view."""
    array = _array(named[1])
    low, high = _span(array)
    return high - low, array.flags.writeable


def root_of(array: Any) -> Any:
    """The array that owns the buffer."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def _array(arg: Any) -> Any:
    return arg.array if isinstance(arg, EmulatedMap) else arg


def _address(array: Any) -> int:
    return int(array.__array_interface__["data"][0])


def _span(array: Any) -> tuple[int, int]:
    """Host addresses of a (strided) view's lowest byte and the one past its highest."""
    low, high = np.lib.array_utils.byte_bounds(array)
    return int(low), int(high)


class _Window:
    """A stretch of an array's memory, kept alive by the array."""

    def __init__(self, array: Any, low: int, size: int) -> None:
        self._array = array
        self.__array_interface__ = {
            "version": 3, "typestr": "|u1", "shape": (size,),
            "data": (low, not array.flags.writeable)}


def _bytes(array: Any, low: int, high: int) -> Any:
    """The bytes of a span, as a view that is as far off alignment as the array's in its buffer."""
    skew = (low - _address(root_of(array))) % _ALIGN
    return np.asarray(_Window(array, low - skew, high - low + skew))[skew:]
