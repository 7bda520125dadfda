"""The box of a tensor map: where its elements lie in global and in shared memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from gpukit.emulator.ptx.types import TYPES
from gpukit.emulator.tensormap import DATA_TYPES, SWIZZLES, Encoded

PERIOD = 1024  # bytes after which every swizzle pattern repeats
UNIT = 16  # bytes that a swizzle keeps together
_UNIT_DTYPE = np.dtype(np.complex128)

# Byte address in shared memory -> where the swizzle puts it.
_SWIZZLED: dict[str, Callable[[Any], Any]] = {
    "32B": lambda a: a ^ (a >> 3 & 0x10),
    "64B": lambda a: a ^ (a >> 3 & 0x30),
    "128B": lambda a: a ^ (a >> 3 & 0x70),
}


@dataclass(frozen=True, slots=True)
class Window:
    """The part of a box that lies inside the tensor.

    ``lo`` and ``shape`` are in box elements, outermost dimension first; ``start`` is the byte
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
    """A decoded tensor map. Shapes are NumPy's: outermost dimension first."""

    def __init__(self, encoded: Encoded) -> None:
        self.encoded = encoded
        self.item, self.type_name = DATA_TYPES[encoded.data_type]
        self.dtype = TYPES[self.type_name].dtype
        steps = (1, *encoded.element_strides[1:])  # the innermost one is ignored
        box = [-(-n // step) for n, step in zip(encoded.box, steps, strict=True)]
        self.steps = steps
        self.shape = tuple(box[::-1])
        self.bytes = int(np.prod(box)) * self.item
        self.row = box[0] * self.item
        self.rows = self.bytes // self.row
        # Rows shorter than the swizzle span are padded to it.
        self.pitch = max(self.row, SWIZZLES[encoded.swizzle])
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
            coords, self.encoded.dims, self.steps, self.shape[::-1], self.strides, strict=True
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

    def put(self, data: Any, buffer: Any, offset: int) -> None:
        """Lay the box's bytes (uint8, in box order) into a CTA's shared memory."""
        if not self.swizzled:
            buffer[offset : offset + self.bytes] = data
            return
        whole = buffer[: buffer.size // UNIT * UNIT].view(_UNIT_DTYPE)
        whole[self.places(offset)] = data.view(_UNIT_DTYPE)

    def get(self, buffer: Any, offset: int) -> Any:
        """The box's bytes (uint8, a copy in box order) out of a CTA's shared memory."""
        if not self.swizzled:
            return buffer[offset : offset + self.bytes].copy()
        whole = buffer[: buffer.size // UNIT * UNIT].view(_UNIT_DTYPE)
        return whole[self.places(offset)].view(np.uint8)


@lru_cache(maxsize=256)
def geometry_of(encoded: Encoded) -> Geometry:
    """The geometry of a tensor map; kept, with its index arrays."""
    return Geometry(encoded)
