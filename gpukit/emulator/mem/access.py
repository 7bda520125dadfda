"""A checked access: which bytes of which store, and moving values in and out of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpukit.emulator.errors import UninitializedReadError
from gpukit.emulator.instructions import Mask
from gpukit.emulator.mem.patterns import Pattern
from gpukit.emulator.mem.store import WRITTEN, Store

if TYPE_CHECKING:
    from gpukit.emulator.lanes import Lanes


class Access:
    """The active lanes' addresses, found in bounds and aligned: ``base`` + pattern offsets."""

    __slots__ = ("base", "mask", "pattern", "space", "store")

    def __init__(self, store: Store, pattern: Pattern, base: int, mask: Mask, space: str) -> None:
        self.store = store
        self.pattern = pattern
        self.base = base  # byte offset in the store that pattern offset 0 stands for
        self.mask = mask
        self.space = space

    @property
    def bytes(self) -> Any:
        """int64 array: first byte offset in the store, one per active lane."""
        return self.pattern.offsets + self.base

    def address(self, position: int) -> int:
        """The address that the active lane at ``position`` used, for messages."""
        return self.store.address_of(int(self.bytes[position]))

    def describe(self) -> str:
        """What the first active lane accesses."""
        return f"{self.space} memory at 0x{self.address(0):x}"

    def active_lanes(self, width: int) -> Any:
        """Positions in the unit of the lanes that take part."""
        return np.arange(width) if self.mask is None else np.flatnonzero(self.mask)

    @property
    def start(self) -> int:
        """The lowest byte offset in the store."""
        return self.base + self.pattern.floor

    def elements(self, size: int) -> Any:
        """int64 array: which element of ``size`` bytes each active lane begins with."""
        return self.pattern.steps(size) + self.start // size

    def read(self, dtype: Any, k: int) -> Any:
        """Element ``k`` of each lane's vector, one per active lane."""
        size = dtype.itemsize
        words, pattern = self.store.words(dtype), self.pattern
        first = (self.base + pattern.floor) // size + k
        if pattern.kind == "mixed":
            return words[first:][pattern.steps(size)]
        if pattern.kind == "same":
            return words[first]
        step = pattern.size // size
        return words[first : first + pattern.offsets.size * step : step]

    def write(self, dtype: Any, k: int, values: Any) -> None:
        """Element ``k`` of each active lane; of lanes with one address the last one wins."""
        size = dtype.itemsize
        words, pattern = self.store.words(dtype), self.pattern
        first = (self.base + pattern.floor) // size + k
        if pattern.kind == "block":
            step = pattern.size // size
            words[first : first + pattern.offsets.size * step : step] = values
        else:
            words[first:][pattern.steps(size)] = values

    def check_written(self) -> None:
        """Raise unless every byte about to be read has been written."""
        store, pattern = self.store, self.pattern
        if store.init is None:
            return
        first, unit = self.base + pattern.floor, min(pattern.size, 8)
        found = pattern.footprint(unit)
        if isinstance(found, int):
            raw = store.init[first : first + found * unit].tobytes()
        else:
            raw = store.marks(unit)[first // unit :][found].tobytes()
        if b"\x00" in raw:
            self._complain()

    def check_read(self, lanes: Lanes, kind: str, order: str) -> None:
        """As ``check_written``, but checks that may know why nothing is there speak first."""
        try:
            self.check_written()
        except UninitializedReadError:
            for listener in lanes.wave.listeners:
                listener.accessed(lanes, self, kind, order)
            raise

    def mark_written(self, lanes: Lanes) -> None:
        """Record that the bytes hold values now."""
        if self.space != "local":
            lanes.wave.scheduler.changed = True
        store, pattern = self.store, self.pattern
        if store.init is None:
            return
        first = self.base + pattern.floor
        if pattern.kind == "block":
            store.init[first : first + pattern.offsets.size * pattern.size] = 1
            return
        unit = min(pattern.size, 8)
        marks, steps = store.marks(unit)[first // unit :], pattern.steps(unit)
        for k in range(pattern.size // unit):
            marks[k:][steps] = WRITTEN[unit]

    def _complain(self) -> None:
        starts = self.bytes
        spans = starts[:, None] + np.arange(self.pattern.size)
        unwritten = (self.store.init[spans] == 0).any(axis=1)
        which = int(unwritten.argmax())
        lane = which if self.mask is None else int(np.flatnonzero(self.mask)[which])
        address = self.address(which)
        raise UninitializedReadError(
            f"reads {self.pattern.size} bytes of {self.space} memory at 0x{address:x} that nothing "
            "has written",
            lane=lane,
            address=address,
        )
