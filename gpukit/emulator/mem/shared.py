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

    def part(self, slot: int) -> Store:
        """The bytes of one CTA slot; offset 1024 is the first that a kernel can use."""
        own = slice(self.start_of(slot), self.start_of(slot + 1))
        return Store(self.data[own], None if self.init is None else self.init[own])

    def locate(self, lanes: Lanes, addresses: Any, mask: Mask, size: int) -> Access:
        """Check ``size`` bytes a lane at shared (or shared::cluster) ``addresses``."""
        active = addresses if mask is None else addresses[mask]
        first = active.item(0)
        distances = active - active[0]
        rank, offset = first >> windows.RANK_SHIFT, first & windows.OFFSET_MASK
        key = (distances.tobytes(), offset & 127, size, lanes.lo, rank,
               None if mask is None else mask.tobytes())  # fmt: skip
        pattern = self.patterns.get(key)
        if pattern is None:
            pattern = self._learn(lanes, addresses.astype(np.int64), mask, size)
            self.patterns.put(key, pattern)
        if offset + pattern.low < SHARED_START or offset + pattern.high > self.end:
            raise self._outside(addresses, mask, size)
        if not pattern.aligned or offset & (size - 1):
            raise misaligned(addresses, mask, size, "shared")
        return Access(self, pattern, offset, mask, "shared")

    def _learn(self, lanes: Lanes, addresses: Any, mask: Mask, size: int) -> Pattern:
        active = np.arange(lanes.width) if mask is None else np.flatnonzero(mask)
        offsets = addresses[active] & windows.OFFSET_MASK
        ranks = addresses[active] >> windows.RANK_SHIFT
        if ((ranks < 0) | (ranks >= self._wave.cluster_size)).any():
            raise self._outside(addresses, mask, size)
        slots = (active + lanes.lo) // self._wave.lanes_per_cta
        slots += ranks - slots % self._wave.cluster_size
        distances = offsets - offsets[0]
        indices = slots * self.stride + distances
        return Pattern(indices, distances, size, shared_cost(offsets, size, active))

    def _outside(self, addresses: Any, mask: Mask, size: int) -> OutOfBoundsError:
        active = np.arange(addresses.size) if mask is None else np.flatnonzero(mask)
        chosen = addresses[active].astype(np.int64)
        offsets, ranks = chosen & windows.OFFSET_MASK, chosen >> windows.RANK_SHIFT
        wrong_rank = (ranks < 0) | (ranks >= self._wave.cluster_size)
        wrong = wrong_rank | (offsets < SHARED_START) | (offsets + size > self.end)
        at = int(wrong.argmax())
        if wrong_rank[at]:
            why = f"the cluster has no CTA of rank {ranks[at]}"
        else:
            why = f"the CTA has {self.end - SHARED_START} bytes from 0x{SHARED_START:x}"
        return OutOfBoundsError(
            f"accesses {size} bytes of shared memory at offset 0x{offsets[at]:x}: {why}",
            lane=int(active[at]),
            address=int(chosen[at]),
        )
