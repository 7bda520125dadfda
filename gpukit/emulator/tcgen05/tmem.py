"""Tensor Memory: 128 lanes by 512 columns of 32-bit cells per CTA, and who has allocated them.

An address has the lane in its upper and the column in its lower 16 bits. Columns are allocated in
units of 32, always with all lanes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gpukit.emulator.check.async_ops import Cells
from gpukit.emulator.errors import OutOfBoundsError, TensorMemoryError, UninitializedReadError
from gpukit.emulator.waits import WaitQueue

if TYPE_CHECKING:
    from gpukit.emulator.check.async_ops import AsyncOp
    from gpukit.emulator.cta import Cta
    from gpukit.emulator.warps import Warp

LANES, COLUMNS = 128, 512
UNIT = 32  # columns
POISON = 0xCBCBCBCB


def lane_of(address: int) -> int:
    """The lane (row) of an address."""
    return address >> 16 & 0xFFFF


def column_of(address: int) -> int:
    """The column of an address."""
    return address & 0xFFFF


@dataclass(eq=False, slots=True)
class Allocated:
    """Columns of a CTA that one ``tcgen05.alloc`` has taken: where, how many, by whom.

    ``noticed`` is set when the instruction has completed. ``partner`` is the same allocation in the
    peer CTA, for pairs.
    """

    column: int
    columns: int
    warp: Warp
    pc: int
    noticed: bool = False
    partner: Allocated | None = None

    def overlaps(self, cells: Cells) -> bool:
        """Whether cells of the same CTA are in these columns."""
        start, end = cells.column, cells.column + cells.columns
        return start < self.column + self.columns and self.column < end

    @property
    def place(self) -> str:
        """Source line and text of the instruction, for messages."""
        return self.warp.wave.program.place(self.pc)


class Tmem:
    """The Tensor Memory of one CTA: ``cta.state(Tmem)``.

    ``words`` is uint32 [lane, column]; ``init`` a bool array of the same shape that says which
    cells have been written, None if nobody checks that. ``allocations`` are in order of time.
    ``users`` are operations in flight that read or write cells.
    """

    def __init__(self, cta: Cta) -> None:
        self.cta = cta
        self.words = np.full((LANES, COLUMNS), POISON, np.uint32)
        checked = cta.wave.launch.marks_writes
        self.init = np.zeros((LANES, COLUMNS), np.bool_) if checked else None
        self.allocations: list[Allocated] = []
        self.allowed: Any = np.zeros(COLUMNS, np.bool_)  # columns that are allocated
        self.users: set[AsyncOp] = set()
        self.queue = WaitQueue()  # of those who wait for columns
        self.smallest = COLUMNS  # allocation so far: later ones must not be larger
        self.relinquished: str | None = None  # where the right to allocate was given up
        self._views: dict[Any, Any] = {np.dtype(np.uint32): self.words}
        self._good: set[Cells] = set()  # blocks known to be allocated
        cta.exit_hooks.append(self._check_exit)

    # Access

    def cells(self, lane: int, lanes: int, column: int, columns: int) -> Cells:
        """A block of this memory. Raises ``OutOfBoundsError`` unless all of it is allocated."""
        found = Cells(self.cta.slot, lane, lanes, column, columns)
        self.require(found)
        return found

    def require(self, cells: Cells) -> None:
        """Raise ``OutOfBoundsError`` unless the block exists and its columns are allocated."""
        if cells in self._good:
            return
        last_lane, end = cells.lane + cells.lanes - 1, cells.column + cells.columns
        if last_lane >= LANES or end > COLUMNS:
            raise OutOfBoundsError(
                f"Tensor Memory lanes {cells.lane} to {last_lane}, columns {cells.column} to "
                f"{end - 1}: there are {LANES} lanes and {COLUMNS} columns",
                address=cells.lane << 16 | cells.column,
            )
        if not self.allowed[cells.column : end].all():
            raise OutOfBoundsError(
                f"Tensor Memory columns {cells.column} to {end - 1} of CTA {self.cta.position}: "
                f"allocated are {self._listing()}",
                address=cells.lane << 16 | cells.column,
            )
        self._good.add(cells)

    def _listing(self) -> str:
        parts = [f"{a.column} to {a.column + a.columns - 1}" for a in self.allocations]
        return ", ".join(parts) or "none"

    def view(self, dtype: Any) -> Any:
        """All words as a type of four bytes, e.g. float32 [128, 512]; writing it changes them."""
        found = self._views.get(dtype)
        if found is None:
            found = self._views[dtype] = self.words.view(dtype)
        return found

    def read(self, lanes: Any, columns: Any) -> Any:
        """uint32 cells; with two slices a view [lane, column] that must not be kept.

        ``lanes`` and ``columns`` are slices, or integer arrays that broadcast against each other.
        Raises ``UninitializedReadError`` where nothing has written a cell.
        """
        if self.init is not None and not self.init[lanes, columns].all():
            self._report_unwritten(lanes, columns)
        return self.words[lanes, columns]

    def write(self, lanes: Any, columns: Any, values: Any) -> None:
        """Store ``values`` (of any type of four bytes) in the cells that ``read`` would give."""
        self.view(values.dtype)[lanes, columns] = values
        if self.init is not None:
            self.init[lanes, columns] = True

    def _report_unwritten(self, lanes: Any, columns: Any) -> None:
        assert self.init is not None
        numbers = np.arange(LANES * COLUMNS).reshape(LANES, COLUMNS)[lanes, columns]
        bad = numbers[~self.init[lanes, columns]]
        lane, column = divmod(int(bad.min()), COLUMNS)
        raise UninitializedReadError(
            f"nothing has written the cell of Tensor Memory in lane {lane}, column {column} of CTA "
            f"{self.cta.position}",
            address=lane << 16 | column,
        )

    # Allocation

    def find_room(self, columns: int) -> int | None:
        """The lowest column from which ``columns`` (a power of two) are free."""
        for start in range(0, COLUMNS - columns + 1, columns):
            if not self.allowed[start : start + columns].any():
                return start
        return None

    def take(self, start: int, columns: int, warp: Warp, pc: int) -> Allocated:
        """Allocate columns; their contents are undefined."""
        made = Allocated(start, columns, warp, pc)
        self.allocations.append(made)
        self.smallest = columns
        self._set(made, True)
        self.words[:, start : start + columns] = POISON
        return made

    def find(self, address: int, columns: int) -> Allocated:
        """The allocation at an address. Raises ``TensorMemoryError`` unless it is just that."""
        for held in self.allocations:
            if lane_of(address) == 0 and held.column == column_of(address):
                if held.columns != columns:
                    raise TensorMemoryError(
                        f"frees {columns} columns of an allocation of {held.columns} "
                        f"({held.place})",
                        address=address,
                    )
                return held
        raise TensorMemoryError(
            f"0x{address:08x} is no address that tcgen05.alloc gave; allocated are columns "
            f"{self._listing()}",
            address=address,
        )

    def give_back(self, held: Allocated) -> None:
        """Free an allocation and wake those who wait for columns."""
        self.allocations.remove(held)
        self._set(held, False)
        self.queue.wake()

    def _set(self, held: Allocated, allocated: bool) -> None:
        part = slice(held.column, held.column + held.columns)
        self.allowed[part] = allocated
        self._good.clear()
        if self.init is not None:
            self.init[:, part] = False
        self.cta.wave.scheduler.changed = True

    def _check_exit(self) -> None:
        if self.allocations and self.cta.ended:
            held = self.allocations[0]
            raise TensorMemoryError(
                f"CTA {self.cta.position} exits without tcgen05.dealloc of columns {held.column} "
                f"to {held.column + held.columns - 1} ({held.place})"
            )


def tmem_of(cta: Cta) -> Tmem:
    """A CTA's Tensor Memory."""
    return cta.state(Tmem)
