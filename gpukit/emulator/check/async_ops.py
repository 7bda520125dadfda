"""Asynchronous operations as the checks see them: who issued what, and which bytes it touches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Hashable

    from gpukit.emulator.instructions import Mask
    from gpukit.emulator.mem.allocations import Allocation
    from gpukit.emulator.warps import Warp


@dataclass(frozen=True, eq=False, slots=True)
class Range:
    """Bytes of one CTA's shared memory, or of one allocation of global memory.

    ``space`` is "shared" or "global"; ``owner`` the CTA's slot in the wave (shared) or the
    ``Allocation`` (global). The bytes are ``size`` from offset ``start``; with ``starts`` (an
    int64 array of offsets, not sorted) they are ``size`` from each of those, and ``start`` is the
    lowest. A ``kept`` range is passed again and again as the same object.
    """

    space: str
    owner: int | Allocation
    start: int
    size: int
    starts: Any = None
    kept: bool = False


@dataclass(frozen=True, slots=True)
class Cells:
    """A block of one CTA's Tensor Memory: ``lanes`` rows from ``lane`` by ``columns`` from
    ``column``. ``slot`` is the CTA's slot in the wave."""

    slot: int
    lane: int
    lanes: int
    column: int
    columns: int

    def meets(self, other: Cells) -> bool:
        """Whether the two have a cell in common."""
        return (
            self.column < other.column + other.columns
            and other.column < self.column + self.columns
            and self.lane < other.lane + other.lanes
            and other.lane < self.lane + self.lanes
            and self.slot == other.slot
        )

    def covers(self, other: Cells) -> bool:
        """Whether every cell of ``other`` is one of these."""
        return (
            self.slot == other.slot
            and self.column <= other.column
            and other.column + other.columns <= self.column + self.columns
            and self.lane <= other.lane
            and other.lane + other.lanes <= self.lane + self.lanes
        )


@dataclass(eq=False, slots=True)
class AsyncOp:
    """One asynchronous operation, hashed by identity.

    ``id`` counts from 0 within the issuing warp's cluster. ``kind``: "cp_async", "bulk_load",
    "bulk_store", "bulk_copy" (shared to shared::cluster), "bulk_reduce", "tma_load", "tma_store",
    "tma_reduce", "st_async", "red_async", "wgmma", "tcgen05.mma", "tcgen05.ld", ... ``warp`` issued
    it at ``pc`` with the lanes of ``mask`` (None: all 32). ``proxy`` is "async", or "generic" for
    cp.async, st.async and red.async. ``read_done`` is set when its sources may be reused, ``done``
    when all its values have moved.

    tcgen05 operations also use Tensor Memory: ``cells_read`` and ``cells_written``. Their ``form``
    is what decides whether two of them are pipelined: of an mma its accumulator and shape, of a cp
    its shape.
    """

    id: int
    kind: str
    warp: Warp
    mask: Mask = None
    pc: int = 0
    proxy: str = "async"
    reads: tuple[Range, ...] = ()
    writes: tuple[Range, ...] = ()
    cells_read: tuple[Cells, ...] = ()
    cells_written: tuple[Cells, ...] = ()
    form: Hashable = None
    read_done: bool = False
    done: bool = False

    @property
    def place(self) -> str:
        """Source line and text of the instruction, for messages."""
        return self.warp.wave.program.place(self.pc)
