"""Shared memory of all CTAs of a wave, addressed with the CTA rank in bits 24 and up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpukit.emulator.errors import BarrierError, OutOfBoundsError, RemoteAccessError
from gpukit.emulator.instructions import Mask
from gpukit.emulator.mem import windows
from gpukit.emulator.mem.access import Access
from gpukit.emulator.mem.allocations import misaligned
from gpukit.emulator.mem.patterns import Pattern, PatternCache, shared_cost
from gpukit.emulator.mem.store import Store
from gpukit.emulator.program import SCRATCH_BARRIERS, SCRATCH_START, SHARED_START

if TYPE_CHECKING:
    from gpukit.emulator.lanes import Lanes
    from gpukit.emulator.wave import Wave

POISON = 0xCB
BARRIER = 8  # bytes of an mbarrier
NOWHERE = 1 << 30


class SharedMemory(Store):
    """One array for the wave: CTA slot s owns ``stride`` bytes from ``s * stride``."""

    __slots__ = (
        "_wave", "barriers", "end", "guard_high", "guard_low", "patterns", "start", "stride",
    )  # fmt: skip

    def __init__(self, wave: Wave, end: int) -> None:
        self._wave = wave
        scratch = wave.program.reads("reserved_smem_offset_1")
        self.start = SCRATCH_START if scratch else SHARED_START  # first byte a kernel may use
        self.end = end  # first byte offset beyond a CTA's allocation
        self.stride = -(-end // 1024) * 1024
        slots = wave.lanes // wave.lanes_per_cta
        used = end > self.start
        data = np.full(slots * self.stride if used else 0, POISON, np.uint8)
        super().__init__(data, np.zeros(data.size, np.uint8) if wave.launch.marks_writes else None)
        self.patterns = PatternCache()
        self.barriers: set[int] = set()  # indices in ``data`` of live mbarriers
        self.guard_low, self.guard_high = NOWHERE, 0  # offsets between which these lie

    def reset(self) -> None:
        """New CTAs: contents are undefined again."""
        self.barriers.clear()
        self.guard_low, self.guard_high = NOWHERE, 0
        self.data.fill(POISON)
        if self.init is not None:
            self.init.fill(0)
        if self.start < SHARED_START:
            self._clear_scratch()

    def _clear_scratch(self) -> None:
        """The barriers of cooperative groups are zero when a CTA starts."""
        barriers = slice(self.start, self.start + SCRATCH_BARRIERS)
        self.data.reshape(-1, self.stride)[:, barriers] = 0
        if self.init is not None:
            self.init.reshape(-1, self.stride)[:, barriers] = 1

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
        key = (distances.tobytes(), offset & 127, size, lanes.lo, lanes.hi, rank,
               None if mask is None else mask.tobytes())  # fmt: skip
        pattern = self.patterns.get(key)
        if pattern is None:
            pattern = self._learn(lanes, addresses.astype(np.int64), mask, size)
            self.patterns.put(key, pattern)
        if offset + pattern.low < self.start or offset + pattern.high > self.end:
            raise self._outside(addresses, mask, size)
        if not pattern.aligned or offset & (size - 1):
            raise misaligned(addresses, mask, size, "shared")
        if offset + pattern.high > self.guard_low and offset + pattern.low < self.guard_high:
            self._check_barriers(pattern.offsets + offset, mask, size)
        if pattern.strangers:
            self._check_running(pattern, offset, mask)
        return Access(self, pattern, offset, mask, "shared")

    def _check_running(self, pattern: Pattern, base: int, mask: Mask) -> None:
        """Shared memory of another CTA of the cluster lives as long as that CTA runs."""
        for slot in pattern.strangers:
            home = self._wave.ctas[slot]
            if home.ended:
                indices = pattern.offsets + base
                position = int((indices // self.stride == slot).argmax())
                fault = RemoteAccessError(
                    f"accesses shared memory of the CTA of rank {home.rank}, which has exited",
                    lane=position if mask is None else int(np.flatnonzero(mask)[position]),
                    address=self.address_of(int(indices[position])),
                )
                self._wave.launch.rules.report("exits", fault)

    # mbarriers

    def guard(self, index: int) -> None:
        """The 8 bytes at ``index`` become an mbarrier: ordinary accesses are errors from now on."""
        self.barriers.add(index)
        offset = index % self.stride
        self.guard_low = min(self.guard_low, offset)
        self.guard_high = max(self.guard_high, offset + BARRIER)

    def release(self, index: int) -> None:
        """The mbarrier at ``index`` is ordinary, undefined memory again."""
        self.barriers.discard(index)
        if self.init is not None:
            self.init[index : index + BARRIER] = 0

    def check_range(self, index: int, size: int) -> None:
        """Raise if a live mbarrier lies in these bytes."""
        for barrier in self.barriers:
            if index < barrier + BARRIER and barrier < index + size:
                raise self._on_barrier(barrier)

    def _check_barriers(self, indices: Any, mask: Mask, size: int) -> None:
        for position, index in enumerate(indices.tolist()):
            for word in range(index & ~7, index + size, BARRIER):
                if word in self.barriers:
                    lane = position if mask is None else int(np.flatnonzero(mask)[position])
                    raise self._on_barrier(word, lane)

    def _on_barrier(self, index: int, lane: int | None = None) -> BarrierError:
        address = self.address_of(index)
        return BarrierError(
            f"an ordinary access touches the live mbarrier at shared 0x{address:x}; "
            "mbarrier.inval it first",
            lane=lane,
            address=address,
        )

    def _learn(self, lanes: Lanes, addresses: Any, mask: Mask, size: int) -> Pattern:
        active = np.arange(lanes.width) if mask is None else np.flatnonzero(mask)
        offsets = addresses[active] & windows.OFFSET_MASK
        ranks = addresses[active] >> windows.RANK_SHIFT
        if ((ranks < 0) | (ranks >= self._wave.cluster_size)).any():
            raise self._outside(addresses, mask, size)
        own = (active + lanes.lo) // self._wave.lanes_per_cta
        slots = own + ranks - own % self._wave.cluster_size
        distances = offsets - offsets[0]
        indices = slots * self.stride + distances
        pattern = Pattern(indices, distances, size, shared_cost(offsets, size, active))
        pattern.strangers = tuple(np.unique(slots[slots != own]).tolist())
        return pattern

    def _outside(self, addresses: Any, mask: Mask, size: int) -> OutOfBoundsError:
        active = np.arange(addresses.size) if mask is None else np.flatnonzero(mask)
        chosen = addresses[active].astype(np.int64)
        offsets, ranks = chosen & windows.OFFSET_MASK, chosen >> windows.RANK_SHIFT
        wrong_rank = (ranks < 0) | (ranks >= self._wave.cluster_size)
        wrong = wrong_rank | (offsets < self.start) | (offsets + size > self.end)
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
