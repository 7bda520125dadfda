"""Numbers that name their own place, in every element type, and memory images that hold them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from gpukit.layout.shared import SharedTile

DTYPES: dict[str, Any] = {
    "bf16": ml_dtypes.bfloat16, "f16": np.float16, "tf32": np.float32,
    "e4m3": ml_dtypes.float8_e4m3fn, "s8": np.int8}
#: Digits of place numbers: 1 to this, which the type and D hold exactly; 0 means nothing was read.
BASE = {"bf16": 256, "f16": 256, "tf32": 256, "e4m3": 16, "s8": 127}
SPLIT = 16  # rows and columns are 16 high + low: small enough for every type


def digits(dtype: str, places: int) -> list[Any]:
    """Arrays [places] of the digits of 0, 1, ..., lowest first, each in the element type."""
    base, found, rest = BASE[dtype], [], np.arange(places)
    while True:
        found.append((rest % base + 1).astype(DTYPES[dtype]))
        rest = rest // base
        if not rest.any():
            return found


def numbers(dtype: str, read: Any) -> Any:
    """The places whose digits were read, int64 [...]; -1 where one is missing. Digits first."""
    values = np.asarray(read).astype(np.int64) - 1
    powers = BASE[dtype] ** np.arange(len(values)).reshape(-1, *[1] * (values.ndim - 1))
    return np.where((values < 0).any(axis=0), -1, (values * powers).sum(axis=0))


def numbered(dtype: str, count: int, k: int) -> tuple[Any, Any]:
    """[count, k] with 16 high + low of the row number in its first two columns; and the other
    operand's row that adds them up."""
    rows, weights = np.zeros((count, k)), np.zeros(k)
    rows[:, 0], rows[:, 1] = np.divmod(np.arange(count), SPLIT)
    weights[:2] = SPLIT, 1
    return rows.astype(DTYPES[dtype]), weights.astype(DTYPES[dtype])


@dataclass(frozen=True)
class Operand:
    """A matrix's tile in the image, of which columns from ``first`` on are multiplied."""

    tile: SharedTile
    dtype: str
    first: int

    @property
    def bytes(self) -> int:
        """From the tile's start to where the next may begin."""
        return self.tile.end - self.tile.start

    def places(self, k: int) -> Any:
        """Bytes of the image [row, k] by the layout algebra."""
        return self.tile.places()[0][:, self.first : self.first + k]

    def put(self, image: Any, matrix: Any) -> None:
        """Write a matrix [row, k] where the algebra says."""
        elements = image.view(DTYPES[self.dtype])
        elements[self.places(matrix.shape[1]) // elements.itemsize] = matrix

    def fill(self, image: Any, elements: Any) -> None:
        """Write elements in the order of memory."""
        size = elements.itemsize
        image.view(DTYPES[self.dtype])[self.tile.start // size : self.tile.end // size] = elements
