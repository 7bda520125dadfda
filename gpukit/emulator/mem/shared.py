"""Shared memory of all CTAs of a wave, addressed with the CTA rank in bits 24 and up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpukit.emulator.errors import OutOfBoundsError
from gpukit.emulator.instructions import Mask
from gpukit.emulator.mem import windows
from gpukit.emulator.mem.access import Access
from gpukit.emulator.mem.allocations import misaligned
from gpukit.emulator.mem.patterns import Pattern, PatternCache, shared_cost
from gpukit.emulator.mem.store import Store
from gpukit.emulator.program import SHARED_START

if TYPE_CHECKING:
    from gpukit.emulator.lanes import Lanes
    from gpukit.emulator.wave import Wave

POISON = 0xCB


class SharedMemory(Store):
    """One array for the wave: CTA slot s owns ``stride`` bytes from ``s * stride``."""

    __slots__ = ("_wave", "end", "patterns", "stride")

    def __init__(self, wave: Wave, end: int) -> None:
        self._wave = wave
        self.end = end  # first byte offset beyond a CTA's allocation
        self.stride = -(-end // 1024) * 1024
        slots = wave.lanes // wave.lanes_per_cta
        used = end > SHARED_START
        data = np.full(slots * self.stride if used else 0, POISON, np.uint8)
        super().__init__(data, np.zeros(data.size, np.uint8) if wave.launch.checks else None)
        self.patterns = PatternCache()

    def reset(self) -> None:
        """New CTAs: contents are undefined again."""
        self.data.fill(POISON)
        if self.init is not None:
            self.init.fill(0)

    def own_base(self) -> Any:
        """int64 row: each lane's own CTA rank, shifted into place."""
        ranks = [cta.rank << windows.RANK_SHIFT for cta in self._wave.ctas]
        return np.repeat(np.array(ranks, np.int64), self._wave.lanes_per_cta)

    def address_of(self, index: int) -> int:
        slot, offset = divmod(index, self.stride)
        return slot % self._wave.cluster_size << windows.RANK_SHIFT | offset

    def start_of(self, slot: int) -> int:
        """Byte index in ``data`` of offset 0 of a CTA slot."""
        return slot * self.stride

    def locate(self, lanes: Lanes, addresses: Any, mask: Mask, size: int) -> Access:
        """Check ``size`` bytes a lane at shared (or shared::cluster) ``addresses``."""
        key = (lanes.lo, addresses.tobytes(), size, None if mask is None else mask.tobytes())
        pattern = self.patterns.get(key)
        if pattern is None:
            pattern = self._learn(lanes, addresses.astype(np.int64), mask, size)
            self.patterns.put(key, pattern)
        return Access(self, pattern, 0, mask, "shared")

    def _learn(self, lanes: Lanes, addresses: Any, mask: Mask, size: int) -> Pattern:
        active = np.arange(lanes.width) if mask is None else np.flatnonzero(mask)
        chosen = addresses[active]
        offsets = chosen & windows.OFFSET_MASK
        ranks = chosen >> windows.RANK_SHIFT
        inside = (offsets >= SHARED_START) & (offsets + size <= self.end)
        inside &= (ranks >= 0) & (ranks < self._wave.cluster_size)
        if not inside.all():
            lane = int(active[inside.argmin()])
            raise self._outside(int(addresses[lane]), lane, size)
        if (offsets % size).any():
            raise misaligned(addresses, mask, size, "shared")
        slots = (active + lanes.lo) // self._wave.lanes_per_cta
        slots += ranks - slots % self._wave.cluster_size
        indices = slots * self.stride + offsets
        return Pattern(indices, size, shared_cost(offsets, size, active))

    def _outside(self, address: int, lane: int, size: int) -> OutOfBoundsError:
        offset, rank = address & windows.OFFSET_MASK, address >> windows.RANK_SHIFT
        if not 0 <= rank < self._wave.cluster_size:
            why = f"the cluster has no CTA of rank {rank}"
        else:
            why = f"the CTA has {self.end - SHARED_START} bytes from 0x{SHARED_START:x}"
        return OutOfBoundsError(
            f"accesses {size} bytes of shared memory at offset 0x{offset:x}: {why}",
            lane=lane,
            address=address,
        )
