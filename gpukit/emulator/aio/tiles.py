"""A box at its two ends: in a tensor in global memory, and in a CTA's shared memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gpukit.emulator.aio.blocks import unwritten
from gpukit.emulator.aio.geometry import UNIT, Geometry, Window
from gpukit.emulator.aio.reductions import Reduction
from gpukit.emulator.alu.formats import flush
from gpukit.emulator.check.async_ops import Range
from gpukit.emulator.mem.allocations import Allocation
from gpukit.emulator.mem.points import require_writable

if TYPE_CHECKING:
    from gpukit.emulator.cta import Cta
    from gpukit.emulator.wave import Wave

_NAN_FILL = 0x7FF7  # every 16 bits of an out-of-bounds element in NaN mode, whatever its type
_TF32_DROPPED, _TF32_NAN = 13, 0x7FFFE000  # mantissa bits that tf32 does not have; its only NaN


@dataclass(frozen=True, slots=True)
class TensorTile:
    """The box at some coordinates; ``origin`` is where its window begins in the allocation."""

    geometry: Geometry
    window: Window
    held: Allocation | None
    origin: int

    @classmethod
    def find(cls, wave: Wave, geometry: Geometry, coords: list[int]) -> TensorTile:
        """Raises ``OutOfBoundsError`` if the tensor map describes memory that does not exist."""
        window = geometry.window(coords)
        if window.elements == 0:
            return cls(geometry, window, None, 0)
        memory, size = wave.launch.memory, window.end - window.start
        first = geometry.encoded.address + window.start  # the tensor itself may start elsewhere
        held = memory.find(first)
        if held is None or first + size > held.end:
            raise memory.outside(first, size)
        return cls(geometry, window, held, first - held.base)

    @property
    def bytes(self) -> int:
        """Those inside the tensor."""
        return self.window.elements * self.geometry.item

    @property
    def ranges(self) -> tuple[Range, ...]:
        """The bytes inside the tensor, as checks see them."""
        if self.held is None:
            return ()
        row = self.window.shape[-1] * self.geometry.item
        if self.bytes == self.window.end - self.window.start:
            return (Range("global", self.held, self.origin, self.bytes),)
        starts = self.geometry.row_starts(self.window, self.origin)
        return (Range("global", self.held, self.origin, row, starts),)

    def require_writable(self) -> None:
        if self.held is not None:
            require_writable(self.held)

    def load(self) -> tuple[Any, Any]:
        """The box's bytes, and which of them hold values (None: all). uint8, in box order."""
        geometry, window = self.geometry, self.window
        box = np.empty(geometry.shape, geometry.dtype)
        if not window.whole:
            box.view(np.uint16)[...] = _NAN_FILL if geometry.encoded.oob_fill == "nan" else 0
        if self.held is not None:
            inside = geometry.view(window, self.held.data, self.origin)
            box[window.slices] = _convert(inside, geometry.encoded.data_type)
        return geometry.padded(box.reshape(-1).view(np.uint8)), self._initialised()

    def _initialised(self) -> Any:
        geometry, window = self.geometry, self.window
        init = None if self.held is None else self.held.init
        if init is None and not geometry.unit.padded:
            return None
        marks = np.ones((*geometry.shape, geometry.item), np.uint8)
        if init is not None:
            marks[window.slices] = geometry.view(window, init, self.origin, raw=True)
        return geometry.padded(marks.reshape(-1))

    def store(self, data: Any, reduction: Reduction | None) -> None:
        """Write (or combine) the box's bytes into the tensor, as far as they are inside."""
        if self.held is None:
            return
        geometry, window = self.geometry, self.window
        box = data.view(geometry.dtype).reshape(geometry.shape)[window.slices]
        there = geometry.view(window, self.held.data, self.origin)
        marks = None
        if self.held.init is not None:
            marks = geometry.view(window, self.held.init, self.origin, raw=True)
        if reduction is None:
            there[...] = box
        else:
            if marks is not None and not marks.all():
                raise unwritten(self.held, self.origin)
            there[...] = reduction.combine(there, box)
        if marks is not None:
            marks[...] = 1


def _convert(box: Any, data_type: str) -> Any:
    """Flush subnormals (ftz types) and round to tf32, to nearest even."""
    if data_type.endswith("_ftz"):
        box = flush(box)
    if data_type.startswith("tfloat32"):
        bits = box.view(np.uint32)
        half = np.uint32((1 << (_TF32_DROPPED - 1)) - 1) + (bits >> _TF32_DROPPED & 1)
        rounded = (bits + half) & np.uint32(0xFFFFFFFF << _TF32_DROPPED & 0xFFFFFFFF)
        box = np.where(np.isnan(box), np.uint32(_TF32_NAN), rounded).view(np.float32)
    return box


@dataclass(frozen=True, slots=True)
class SharedTile:
    """The box in a CTA's shared memory, swizzled."""

    geometry: Geometry
    cta: Cta
    offset: int

    @property
    def range(self) -> Range:
        """The bytes, as checks see them; a swizzle stays within the rows' own lines."""
        geometry = self.geometry
        if geometry.pitch == geometry.row:
            return Range("shared", self.cta.slot, self.offset, geometry.laid)
        starts = geometry.places(self.offset) * UNIT
        return Range("shared", self.cta.slot, int(starts.min()), UNIT, starts)

    def put(self, data: Any, init: Any) -> None:
        """Lay a box down; ``init`` says which bytes hold values (None: all)."""
        store = self.cta.shared
        self.geometry.put(data, store.data, self.offset)
        if store.init is not None:
            marks = np.ones(data.size, np.uint8) if init is None else init
            self.geometry.put(marks, store.init, self.offset)

    def get(self, window: Window) -> Any:
        """The box's bytes; those inside the window must have been written."""
        store, geometry = self.cta.shared, self.geometry
        if store.init is not None:
            marks = geometry.get(store.init, self.offset).reshape((*geometry.shape, geometry.item))
            if not marks[window.slices].all():
                flat = np.ones(marks.shape, np.uint8)
                flat[window.slices] = marks[window.slices]
                raise self._unwritten(int(flat.reshape(-1).argmin()))
        return geometry.get(store.data, self.offset)

    def _unwritten(self, byte: int) -> Exception:
        geometry = self.geometry
        places = geometry.places(self.offset)
        at = int(places[byte // UNIT]) * UNIT + byte % UNIT
        return unwritten(self.cta.shared, at)
