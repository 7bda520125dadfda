"""Which granules an access touches, and who touches them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpukit.emulator.check.clocks import Clocks
from gpukit.emulator.check.granules import touched
from gpukit.emulator.check.shadow import Shadow

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpukit.emulator.instructions import Mask
    from gpukit.emulator.lanes import Lanes
    from gpukit.emulator.mem.access import Access


def warps_of(lanes: Lanes, mask: Mask) -> list[int]:
    """The warps, numbered within the wave, that have active lanes."""
    first = lanes.lo // 32
    if mask is None:
        return list(range(first, lanes.hi // 32))
    active = mask.reshape(-1, 32).any(axis=1)
    return [first + int(number) for number in np.flatnonzero(active)]


class Touch:
    """One access as arrays: granule indices ``at``, and matching ``stamps`` and ``warps``.

    ``at`` is a slice where the lanes lie side by side. For a single warp ``stamps`` and ``warps``
    (numbers in the wave) are plain ints, and ``at`` has each granule only once.
    """

    __slots__ = ("_access", "_shadow", "at", "per_lane", "single", "stamps", "warps")

    def __init__(self, lanes: Lanes, access: Access, shadow: Shadow, clocks: Clocks) -> None:
        self._access, self._shadow = access, shadow
        self.single = lanes.width == 32
        self.per_lane = max(access.pattern.size // shadow.granule, 1)
        base = access.base + shadow.skew
        self.at = touched(access.pattern, base, shadow.granule, self.single)
        if self.single:
            self.warps: Any = lanes.lo // 32
            self.stamps: Any = clocks.lane_stamps.item(lanes.lo) + lanes.current.pc
        else:
            numbers = np.arange(lanes.lo, lanes.hi) >> 5
            self.warps = self._spread(numbers)
            self.stamps = self._spread(clocks.lane_stamps[lanes.lo : lanes.hi]) + lanes.current.pc

    def _spread(self, per_lane: Any) -> Any:
        """One value per lane, shaped to go with ``at``."""
        mask = self._access.mask
        active = per_lane if mask is None else per_lane[mask]
        if self.per_lane == 1:
            return active
        return np.repeat(active, self.per_lane) if isinstance(self.at, slice) else active[:, None]

    @property
    def count(self) -> int:
        """How many granules, counting those of each lane unless ``single``."""
        return int(self.at.stop - self.at.start if isinstance(self.at, slice) else self.at.size)

    def array(self) -> Any:
        """The granule indices as an array in any case."""
        return np.arange(self.at.start, self.at.stop) if isinstance(self.at, slice) else self.at

    def lane(self, position: int) -> int:
        """The (first) lane of the unit that the flat ``position`` in ``at`` belongs to."""
        which, mask = position // self.per_lane, self._access.mask
        if self.single:
            which = self._first_on(self.granule(position))
        return which if mask is None else int(np.flatnonzero(mask)[which])

    def _first_on(self, granule: int) -> int:
        """Which of the active lanes is the first to touch a granule."""
        starts = (self._access.bytes + self._shadow.skew) // self._shadow.granule
        return int(((starts <= granule) & (granule < starts + self.per_lane)).argmax())

    def warp(self, position: int) -> int:
        """Its warp, numbered within the wave."""
        if self.single:
            return int(self.warps)
        return int(np.broadcast_to(self.warps, np.shape(self.array())).flat[position])

    def stamp(self, position: int) -> int:
        """Its stamp."""
        if self.single:
            return int(self.stamps)
        return int(np.broadcast_to(self.stamps, np.shape(self.array())).flat[position])

    def granule(self, position: int) -> int:
        """The granule at the flat ``position``."""
        if isinstance(self.at, slice):
            return int(self.at.start) + position
        return int(self.at.flat[position])

    def shares(self, values: Any) -> Iterator[tuple[int, Any]]:
        """For each warp, where its granules are among ``values``, an array shaped like ``at``."""
        if self.single:
            yield self.warps, slice(None)
            return
        warps = np.broadcast_to(self.warps, values.shape)
        for warp in np.unique(warps).tolist():
            yield warp, warps == warp

    def by_warp(self) -> list[tuple[int, list[int]]]:
        """For each warp the distinct granules that it touches, in order of warps."""
        at = self.array()
        if self.single:
            return [(self.warps, np.unique(at).tolist())]
        warps = np.broadcast_to(self.warps, at.shape)
        return [(int(w), np.unique(at[warps == w]).tolist()) for w in np.unique(warps)]
