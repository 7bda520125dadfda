"""A CTA ends: nobody may use its shared memory any more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gpukit.emulator.check import places
from gpukit.emulator.check.clocks import MOMENT, WARP_SHIFT, Clocks
from gpukit.emulator.check.shadow import Shadow
from gpukit.emulator.errors import PendingAsyncError, RemoteAccessError

if TYPE_CHECKING:
    from gpukit.emulator.check.async_ops import AsyncOp
    from gpukit.emulator.cta import Cta
    from gpukit.emulator.wave import Wave


class Exits:
    """What uses each CTA's shared memory besides its own warps."""

    def __init__(self, wave: Wave, clocks: Clocks) -> None:
        self._wave = wave
        self._clocks = clocks
        self._users: dict[int, list[tuple[int, bool, AsyncOp]]] = {}  # by CTA slot

    def restart(self) -> None:
        self._users.clear()

    def uses(self, slot: int, bit: int, writes: bool, op: AsyncOp) -> None:
        """An asynchronous operation reads or writes this CTA's shared memory."""
        self._users.setdefault(slot, []).append((bit, writes, op))

    def matters(self, cta: Cta) -> bool:
        """Whether anything can be wrong with the end of this CTA."""
        return cta.slot in self._users or self._wave.cluster_size > 1

    def cta_ended(self, cta: Cta, shadow: Shadow | None) -> None:
        """All warps of the CTA have exited."""
        self._check_operations(cta)
        if shadow is not None and self._wave.cluster_size > 1:
            self._check_peers(cta, shadow)

    def _check_operations(self, cta: Cta) -> None:
        done = read = 0
        for warp in cta.warps:
            clock = self._clocks.of_warp[warp.lo // 32]
            done |= clock.done
            read |= clock.read
        for bit, writes, op in self._users.get(cta.slot, ()):
            if not bit & (done if writes else read):
                raise PendingAsyncError(
                    f"CTA {cta.position} exits while a {op.kind} may still "
                    f"{'write' if writes else 'read'} its shared memory "
                    f"({places.shortened(op.place)}); wait for it first"
                )

    def _check_peers(self, cta: Cta, shadow: Shadow) -> None:
        """Accesses by other CTAs of the cluster must have been waited for."""
        shared, clocks = self._wave.shared, self._clocks
        start = shared.start_of(cta.slot) // shadow.granule
        region = slice(start, start + shared.stride // shadow.granule)
        first = cta.slot * clocks.warps_per_cta
        seen = clocks.seen[first : first + clocks.warps_per_cta].max(axis=0)
        for prior in [*shadow.written(region), *shadow.strangers(region)]:
            warps = (prior >> WARP_SHIFT) - clocks.first
            late = (warps >= 0) & (prior != 0)
            late &= (prior & MOMENT) >= seen[np.where(late, warps, 0)]
            if late.any():
                position = int(late.argmax())
                address = shadow.address(shared, start + position)
                stamp = int(prior[position])
                raise RemoteAccessError(
                    f"CTA {cta.position} exits although nothing orders that after the access of "
                    f"{places.of_stamp(self._wave, stamp)} to its shared memory at 0x{address:x}; "
                    "a cluster barrier is missing",
                    address=address,
                )
