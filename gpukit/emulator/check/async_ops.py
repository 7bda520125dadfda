"""Asynchronous operations as the checks see them: who issued what, and which bytes it touches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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


@dataclass(eq=False, slots=True)
class AsyncOp:
    """One asynchronous operation, hashed by identity.

    ``id`` counts from 0 within the issuing warp's cluster. ``kind``: "cp_async", "bulk_load",
    "bulk_store", "bulk_copy" (shared to shared::cluster), "bulk_reduce", "tma_load", "tma_store",
    "tma_reduce", "st_async", "red_async", "wgmma", ... ``warp`` issued it at ``pc`` with the
    lanes of ``mask`` (None: all 32). ``proxy`` is "async", or "generic" for cp.async, st.async and
    red.async. ``read_done`` is set when its sources may be
    reused, ``done`` when all its values have moved.
    """

    id: int
    kind: str
    warp: Warp
    mask: Mask = None
    pc: int = 0
    proxy: str = "async"
    reads: tuple[Range, ...] = ()
    writes: tuple[Range, ...] = ()
    read_done: bool = False
    done: bool = False

    @property
    def place(self) -> str:
        """Source line and text of the instruction, for messages."""
        return self.warp.wave.program.place(self.pc)
