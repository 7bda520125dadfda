"""A resident CTA: its place in the grid, its warps and its per-CTA state."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from gpukit.emulator.errors import OutOfBoundsError
from gpukit.emulator.mem import windows
from gpukit.emulator.mem.store import Store

if TYPE_CHECKING:
    from gpukit.emulator.warps import Warp
    from gpukit.emulator.wave import Wave

T = TypeVar("T")


class Cta:
    """One CTA slot of a wave. ``rank`` is its rank in the cluster, ``slot`` its slot in the wave.

    Instruction families keep their state here through ``state(SomeClass)``: made on first use,
    dropped when the slot takes the next CTA.
    """

    def __init__(self, wave: Wave, slot: int, rank: int, first_lane: int) -> None:
        self.wave = wave
        self.slot: int = slot
        self.rank: int = rank
        self.first_lane = first_lane
        self.position: tuple[int, int, int] = (0, 0, 0)
        self.cluster: list[Cta] = []
        self.warps: list[Warp] = []
        self.exit_hooks: list[Callable[[], None]] = []  # called whenever lanes of this CTA exit
        self._state: dict[type, object] = {}
        self.shared: Store = wave.shared.part(slot)  # its shared memory, by offset

    def start(self, position: tuple[int, int, int], threads: int) -> None:
        """Take the next CTA of the grid."""
        self.position = position
        self.exit_hooks = []
        self._state = {}
        for warp in self.warps:
            warp.start(threads - 32 * warp.index)

    @property
    def ended(self) -> bool:
        """Whether all of its threads have exited."""
        return not any(warp.splits for warp in self.warps)

    def state(self, factory: Callable[[Cta], T]) -> T:
        """This CTA's object of a family, e.g. its barriers."""
        found = self._state.get(factory)  # type: ignore[call-overload]
        if found is None:
            found = self._state[factory] = factory(self)  # type: ignore[index]
        return found  # type: ignore[no-any-return]

    def owner(self, address: int) -> tuple[Cta, int]:
        """The CTA of this cluster and the offset that a shared::cluster address means."""
        rank, offset = address >> windows.RANK_SHIFT, address & windows.OFFSET_MASK
        if not 0 <= rank < len(self.cluster):
            raise OutOfBoundsError(
                f"shared address 0x{address:x}: the cluster has no CTA of rank {rank}",
                address=address,
            )
        return self.cluster[rank], offset

    def lanes_ended(self) -> None:
        """Some lanes exited: whoever counts lanes looks again."""
        for hook in self.exit_hooks:
            hook()
