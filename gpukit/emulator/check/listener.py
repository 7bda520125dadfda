"""What a check can hear. Without listeners none of this costs anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpukit.emulator.instructions import Mask
    from gpukit.emulator.lanes import Lanes
    from gpukit.emulator.mem.access import Access
    from gpukit.emulator.warps import Warp
    from gpukit.emulator.wave import Wave


class Listener:
    """Override what you need; raise a ``KernelFault`` to report.

    ``lanes`` may be one warp or a gang: lane i of it is lane ``lanes.lo + i`` of the wave.
    """

    def wave_started(self, wave: Wave) -> None:
        """New CTAs took the slots."""

    def wave_ended(self, wave: Wave) -> None:
        """All threads of the wave have exited."""

    def accessed(self, lanes: Lanes, access: Access, kind: str, order: str) -> None:
        """A generic-proxy access. ``kind``: read, write or atomic; ``order``: "acquire.gpu", ..."""

    def fenced(self, lanes: Lanes, mask: Mask, kind: str) -> None:
        """``kind`` is the opcode: "membar.gl", "fence.proxy.async", ..."""

    def barrier_arrived(self, warp: Warp, mask: Mask, barrier: object, phase: int) -> None:
        """Lanes arrived at a barrier: the release side, before the phase completes."""

    def barrier_passed(self, warp: Warp, mask: Mask, barrier: object, phase: int) -> None:
        """Lanes that waited for this phase go on: the acquire side."""

    def lanes_ended(self, warp: Warp, mask: Mask) -> None:
        """Lanes exited."""
