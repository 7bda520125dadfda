"""Where splits sleep until something they wait for changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpukit.emulator.lanes import Lanes, Split


class WaitQueue:
    """Parked splits. Whoever changes the awaited state calls ``wake``."""

    __slots__ = ("_sleepers",)

    def __init__(self) -> None:
        self._sleepers: list[tuple[Lanes, Split]] = []

    def __len__(self) -> int:
        return len(self._sleepers)

    def add(self, warp: Lanes, split: Split) -> None:
        self._sleepers.append((warp, split))

    def discard(self, split: Split) -> None:
        """Forget one split without waking it."""
        self._sleepers = [entry for entry in self._sleepers if entry[1] is not split]

    def wake(self) -> None:
        """Make every parked split runnable again."""
        sleepers, self._sleepers = self._sleepers, []
        for warp, split in sleepers:
            split.park = None
            warp.wave.scheduler.ready(warp)
