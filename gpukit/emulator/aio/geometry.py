"""The box of a tensor map: where its elements lie in global and in shared memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from gpukit.emulator.ptx.types import TYPES
from gpukit.emulator.tensormap import Encoded
from gpukit.emulator.tensormap_rules import ALL_SWIZZLES, DATA_TYPES, unit_of

PERIOD = 1024  # bytes after which every swizzle pattern repeats
UNIT = 16  # bytes that a swizzle keeps together
_UNIT_DTYPE = np.dtype(np.complex128)

# Byte address in shared memory -> where the swizzle puts it.
_SWIZZLED: dict[str, Callable[[Any], Any]] = {
    "32B": lambda a: a ^ (a >> 3 & 0x10),
    "64B": lambda a: a ^ (a >> 3 & 0x30),
    "128B": lambda a: a ^ (a >> 3 & 0x70),
    "128B_atom_32B": lambda a: a ^ (a >> 2 & 0x60),
    "128B_atom_32B_flip_8B": lambda a: a ^ (a >> 2 & 0x60),
    "128B_atom_64B": lambda a: a ^ (a >> 1 & 0x40),
}
_FLIPPED = "128B_atom_32B_flip_8B"  # odd lines also swap the two halves of each unit


@dataclass(frozen=True, slots=True)
class Window:
    """The part of a box that lies inside the tensor.

    ``lo`` and ``shape`` are in box units, outermost dimension first; ``start`` is the byte
    offset of its first element from the tensor's first, and ``end`` that behind its last.
    """

    lo: tuple[int, ...]
    shape: tuple[int, ...]
    start: int
    end: int
    whole: bool

    @property
    def elements(self) -> int:
        count = 1
        for extent in self.shape:
            count *= extent
        return count

    @property
    def slices(self) -> tuple[slice, ...]:
        """Where the window is in an array of the box's shape."""
        return tuple(slice(lo, lo + n) for lo, n in zip(self.lo, self.shape, strict=True))


class Geometry:
    """A decoded tensor map. Shapes are NumPy's: outermost dimension first.

    Sizes and coordinates count units (``unit``): elements, or groups of packed ones. ``bytes`` is
    what a box moves, ``laid`` what it takes in shared memory where packed elements are padded.
    """

    def __init__(self, encoded: Encoded) -> None:
        self.encoded = encoded
        self.unit = unit_of(encoded.data_type)
        self.item = self.unit.item
        self.type_name = DATA_TYPES.get(encoded.data_type, (0, encoded.data_type))[1]
        self.dtype = TYPES[self.type_name].dtype if self.type_name in TYPES else _raw(self.item)
        steps = (1, *encoded.element_strides[1:])  # the innermost one is ignored
        box = [-(-n // step) for n, step in zip(encoded.box, steps, strict=True)]
        box[0] //= self.unit.elements
        self.dims = (encoded.dims[0] // self.unit.elements, *encoded.dims[1:])
        self.steps = steps
        self.shape = tuple(box[::-1])
        self.bytes = int(np.prod(box)) * self.item
        self.laid = int(np.prod(box)) * self.unit.width
        self.row = box[0] * self.unit.width
        self.rows = self.laid // self.row
        # Rows shorter than the swizzle span are padded to it.
        self.pitch = max(self.row, ALL_SWIZZLES[encoded.swizzle])
        self.extent = self.rows * self.pitch
        self.strides = (self.item, *encoded.strides)
        self.view_strides = tuple(
            stride * step for stride, step in zip(self.strides, steps, strict=True)
        )[::-1]
        self._places: dict[int, Any] = {}

    @property
    def swizzled(self) -> bool:
        return self.encoded.swizzle != "none"

    def window(self, coords: list[int]) -> Window:
        """The part of the box at these coordinates (innermost first) that is in the tensor."""
        lows, counts, start, end = [], [], 0, self.item
        for c, dim, step, n, stride in zip(
            coords, self.dims, self.steps, self.shape[::-1], self.strides, strict=True
        ):
            low = max(0, -(c // step)) if c < 0 else 0
            high = min(n, -((c - dim) // step)) if c < dim else 0
            lows.append(low)
            counts.append(max(0, high - low))
            start += (c + low * step) * stride
            end += (counts[-1] - 1) * step * stride
        shape = tuple(counts[::-1])
        return Window(tuple(lows[::-1]), shape, start, start + end, shape == self.shape)

    def row_starts(self, window: Window, origin: int) -> Any:
        """int64 array: offset of every row of a window; the window begins at ``origin``."""
        starts = np.array([origin], np.int64)
        for extent, stride in zip(window.shape[:-1], self.view_strides[:-1], strict=True):
            starts = (starts[:, None] + np.arange(extent) * stride).ravel()
        return starts

    def view(self, window: Window, buffer: Any, origin: int, *, raw: bool = False) -> Any:
        """The window's elements in the bytes of an allocation; ``raw`` for its init map."""
        if not raw:
            return np.ndarray(window.shape, self.dtype, buffer, origin, self.view_strides)
        shape, strides = (*window.shape, self.item), (*self.view_strides, 1)
        return np.ndarray(shape, np.uint8, buffer, origin, strides)

    def places(self, offset: int) -> Any:
        """int64 array: index of every unit of the box in a CTA's shared memory."""
        phase = offset % PERIOD
        found = self._places.get(phase)
        if found is None:
            units = np.arange(self.row // UNIT) * UNIT
            flat = (phase + np.arange(self.rows)[:, None] * self.pitch + units).ravel()
            if self.swizzled:
                flat = _SWIZZLED[self.encoded.swizzle](flat)
            found = self._places[phase] = flat // UNIT
        return found + (offset - phase) // UNIT

    def padded(self, data: Any) -> Any:
        """The bytes of packed elements (uint8, in box order) with zeros behind each unit."""
        if not self.unit.padded:
            return data
        spread = np.zeros((data.size // self.item, self.unit.width), np.uint8)
        spread[:, : self.item] = data.reshape(-1, self.item)
        return spread.reshape(-1)

    def put(self, data: Any, buffer: Any, offset: int) -> None:
        """Lay the box's bytes (uint8, in box order) into a CTA's shared memory."""
        if not self.swizzled:
            buffer[offset : offset + self.laid] = data
            return
        whole, places = buffer[: buffer.size // UNIT * UNIT].view(_UNIT_DTYPE), self.places(offset)
        whole[places] = self._flipped(data, places).view(_UNIT_DTYPE)

    def _flipped(self, data: Any, places: Any) -> Any:
        """The units' bytes with their halves swapped on odd lines, if the swizzle does that."""
        if self.encoded.swizzle != _FLIPPED:
            return data
        halves = data.view(np.uint64).reshape(-1, 2)
        odd = places // (PERIOD // 8 // UNIT) % 2 == 1
        return np.where(odd[:, None], halves[:, ::-1], halves).reshape(-1)

    def get(self, buffer: Any, offset: int) -> Any:
        """The box's bytes (uint8, a copy in box order) out of a CTA's shared memory."""
        if not self.swizzled:
            return buffer[offset : offset + self.laid].copy()
        whole, places = buffer[: buffer.size // UNIT * UNIT].view(_UNIT_DTYPE), self.places(offset)
        return self._flipped(whole[places].view(np.uint8), places).view(np.uint8)


def _raw(size: int) -> np.dtype[Any]:
    """The bits of ``size`` bytes."""
    return np.dtype(np.uint8) if size == 1 else np.dtype(f"V{size}")


@lru_cache(maxsize=256)
def geometry_of(encoded: Encoded) -> Geometry:
    """The geometry of a tensor map; kept, with its index arrays."""
    return Geometry(encoded)
