"""gather4 and scatter4: four rows of a tensor, from anywhere, as one box of four rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from gpukit.emulator.aio.geometry import Geometry, Window, geometry_of
from gpukit.emulator.aio.reductions import Reduction
from gpukit.emulator.aio.tiles import TensorTile
from gpukit.emulator.check.async_ops import Range
from gpukit.emulator.errors import KernelFault

if TYPE_CHECKING:
    from gpukit.emulator.wave import Wave

ROWS = 4


@dataclass(frozen=True, slots=True)
class FourRows:
    """Takes the place of a ``TensorTile``; ``geometry`` is that of the box of four rows."""

    geometry: Geometry
    rows: tuple[TensorTile, ...]

    @classmethod
    def find(cls, wave: Wave, row: Geometry, coords: list[int]) -> FourRows:
        """``coords`` are the column and four rows. Raises as ``TensorTile.find``."""
        if row.encoded.rank != 2 or row.encoded.box[1] != 1:
            raise KernelFault(
                f"a tensor map of box {row.encoded.box}; gather4 and scatter4 need a matrix and "
                "boxes of one row"
            )
        first, *numbers = coords
        tiles = tuple(TensorTile.find(wave, row, [first, number]) for number in numbers)
        box = geometry_of(replace(row.encoded, box=(row.encoded.box[0], ROWS)))
        return cls(box, tiles)

    @property
    def bytes(self) -> int:
        """Those inside the tensor."""
        return sum(row.bytes for row in self.rows)

    @property
    def ranges(self) -> tuple[Range, ...]:
        """The bytes inside the tensor, as checks see them."""
        return tuple(part for row in self.rows for part in row.ranges)

    @property
    def window(self) -> Window:
        """The whole box."""
        return Window((0, 0), self.geometry.shape, 0, 0, True)

    def require_writable(self) -> None:
        for row in self.rows:
            row.require_writable()

    def load(self) -> tuple[Any, Any]:
        """As ``TensorTile.load``."""
        data, marks = zip(*[row.load() for row in self.rows], strict=True)
        if all(part is None for part in marks):
            return np.concatenate(data), None
        full = np.ones(data[0].size, np.uint8)
        return np.concatenate(data), np.concatenate([full if m is None else m for m in marks])

    def store(self, data: Any, reduction: Reduction | None) -> None:
        """As ``TensorTile.store``, one row after the other."""
        for row, part in zip(self.rows, np.split(data, ROWS), strict=True):
            row.store(part, reduction)
