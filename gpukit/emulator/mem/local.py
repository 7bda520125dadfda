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
        key = (lanes.lo, addresses.tobytes(), size, None if mask is None else mask.tobytes())
        pattern = self.patterns.get(key)
        if pattern is None:
            pattern = self._learn(lanes, addresses.astype(np.int64), mask, size)
            self.patterns.put(key, pattern)
        return Access(self, pattern, 0, mask, "local")

    def _learn(self, lanes: Lanes, addresses: Any, mask: Mask, size: int) -> Pattern:
        active = np.arange(lanes.width) if mask is None else np.flatnonzero(mask)
        chosen = addresses[active]
        outside = (chosen < 0) | (chosen + size > self.end)
        if outside.any():
            lane = int(active[outside.argmax()])
            raise OutOfBoundsError(
                f"accesses {size} bytes of local memory at 0x{int(addresses[lane]):x}: a thread "
                f"has {self.end} bytes",
                lane=lane,
                address=int(addresses[lane]),
            )
        if (chosen % size).any():
            raise misaligned(addresses, mask, size, "local")
        count = np.unique(active // 32).size
        cost = (count, 0, 0, active.size * size)
        return Pattern((active + lanes.lo) * self.stride + chosen, size, cost)
