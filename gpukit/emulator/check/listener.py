"""What a check can hear. Without listeners none of this costs anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpukit.emulator.check.async_ops import AsyncOp
    from gpukit.emulator.instructions import Mask
    from gpukit.emulator.lanes import Lanes, Split
    from gpukit.emulator.mem.access import Access
    from gpukit.emulator.tcgen05.tmem import Allocated
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

    def barrier_created(self, warp: Warp, barrier: object) -> None:
        """A warp initialised an mbarrier."""

    def barrier_counts(self, warp: Warp, mask: Mask, barrier: object, phase: int) -> None:
        """Lanes changed an mbarrier's tx-count without an arrival: this orders nothing."""

    def barrier_arrived(self, warp: Warp, mask: Mask, barrier: object, phase: int) -> None:
        """Lanes arrived at a barrier: the release side, before the phase completes."""

    def barrier_passed(self, warp: Warp, mask: Mask, barrier: object, phase: int) -> None:
        """Lanes that waited for this phase go on: the acquire side."""

    def barrier_arrived_relaxed(self, warp: Warp, mask: Mask, barrier: object, phase: int) -> None:
        """As ``barrier_arrived`` for ``.relaxed``: no release, unless a fence came before."""

    def barrier_passed_relaxed(self, warp: Warp, mask: Mask, barrier: object, phase: int) -> None:
        """As ``barrier_passed`` for ``.relaxed``: no acquire, unless a fence follows."""

    def async_issued(self, op: AsyncOp) -> None:
        """An asynchronous operation was issued; its bytes may be read and written from now on."""

    def async_performed(self, op: AsyncOp) -> None:
        """Its values have moved; nobody has observed that yet."""

    def barrier_signalled(self, barrier: object, phase: int, op: AsyncOp) -> None:
        """An asynchronous operation's complete-tx or arrive joined this phase of an mbarrier.

        Whoever passes the phase (``barrier_passed``) has observed the operation.
        """

    def group_waited(
        self, warp: Warp, mask: Mask, ops: Sequence[AsyncOp], reads_only: bool
    ) -> None:
        """Lanes waited for groups (cp.async, bulk, wgmma) and so observed these operations.

        ``reads_only``: a ``wait_group.read``, after which only the source may be reused.
        """

    def tensor_allocated(self, warp: Warp, held: Allocated) -> None:
        """A warp's tcgen05.alloc has completed: the columns are its CTA's."""

    def tensor_freed(self, warp: Warp, held: Allocated) -> None:
        """A warp begins tcgen05.dealloc: nobody may use the columns of its CTA any more."""

    def lanes_ended(self, warp: Warp, mask: Mask) -> None:
        """Lanes exited."""

    def parked(self, lanes: Lanes, split: Split) -> None:
        """Lanes of a warp begin to wait (``split.park``)."""

    def woken(self, lanes: Lanes) -> None:
        """Some or all parked splits of a warp may go on: their ``park`` is None."""
