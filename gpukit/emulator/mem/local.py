"""Local memory: every lane's own bytes (stack frames, spilled arrays, call parameters)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpukit.emulator.errors import OutOfBoundsError
from gpukit.emulator.instructions import Mask
from gpukit.emulator.mem.access import Access
from gpukit.emulator.mem.allocations import misaligned
from gpukit.emulator.mem.patterns import Pattern, PatternCache
from gpukit.emulator.mem.store import Store

if TYPE_CHECKING:
    from gpukit.emulator.lanes import Lanes


class LocalMemory(Store):
    """``stride`` bytes for each lane of the wave; address 0 is the bottom of the stack."""

    __slots__ = ("end", "patterns", "stride")

    def __init__(self, lanes: int, size: int) -> None:
        self.end = size
        self.stride = -(-size // 16) * 16
        data = np.zeros(lanes * self.stride, np.uint8)
        super().__init__(data, np.zeros(data.size, np.uint8))
        self.patterns = PatternCache()

    def reset(self) -> None:
        """New threads: contents are undefined again."""
        self.init.fill(0)

    def address_of(self, index: int) -> int:
        return index % self.stride

    def locate(self, lanes: Lanes, addresses: Any, mask: Mask, size: int) -> Access:
        """Check ``size`` bytes a lane at local ``addresses``."""
        active = addresses if mask is None else addresses[mask]
        first = active.item(0)
        distances = active - active[0]
        key = (distances.tobytes(), size, lanes.lo, lanes.hi,
               None if mask is None else mask.tobytes())  # fmt: skip
        pattern = self.patterns.get(key)
        if pattern is None:
            pattern = self.patterns.put(key, self._learn(lanes, distances, mask, size))
        if first + pattern.low < 0 or first + pattern.high > self.end:
            raise self._outside(addresses, mask, size)
        if not pattern.aligned or first & (size - 1):
            raise misaligned(addresses, mask, size, "local")
        return Access(self, pattern, first, mask, "local")

    def _learn(self, lanes: Lanes, distances: Any, mask: Mask, size: int) -> Pattern:
        active = np.arange(lanes.width) if mask is None else np.flatnonzero(mask)
        steps = distances.astype(np.int64)
        if distances.dtype.kind == "u":
            steps = distances.view(f"i{distances.dtype.itemsize}").astype(np.int64)
        cost = (np.unique(active // 32).size, 0, 0, active.size * size)
        return Pattern((active + lanes.lo) * self.stride + steps, steps, size, cost)

    def _outside(self, addresses: Any, mask: Mask, size: int) -> OutOfBoundsError:
        active = np.arange(addresses.size) if mask is None else np.flatnonzero(mask)
        chosen = addresses[active].astype(np.int64)
        at = int(((chosen < 0) | (chosen + size > self.end)).argmax())
        return OutOfBoundsError(
            f"accesses {size} bytes of local memory at 0x{int(chosen[at]):x}: a thread has "
            f"{self.end} bytes",
            lane=int(active[at]),
            address=int(chosen[at]),
        )
