"""Layouts as functions: shape and stride, composition, swizzles, tiling.

A layout maps coordinates to offsets: ``Layout((8, (4, 2)), (4, (1, 32)))``. Nested shapes count
colexicographically, the first mode fastest; the notation is that of CuTe.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

Nested: TypeAlias = "int | tuple[Nested, ...]"
Array: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"


def product(shape: Nested) -> int:
    """Number of coordinates."""
    return int(np.prod([product(part) for part in shape])) if isinstance(shape, tuple) else shape


def flatten(nested: Nested) -> tuple[int, ...]:
    """The leaves of a nested tuple, in order."""
    if not isinstance(nested, tuple):
        return (nested,)
    return tuple(leaf for part in nested for leaf in flatten(part))


@dataclass(frozen=True)
class Layout:
    """``shape`` : ``stride``, two nested tuples (or numbers) of the same profile."""

    shape: Nested
    stride: Nested

    def __str__(self) -> str:
        return f"{_text(self.shape)}:{_text(self.stride)}"

    @property
    def size(self) -> int:
        """Number of coordinates."""
        return product(self.shape)

    @property
    def cosize(self) -> int:
        """One more than the largest offset."""
        return int(self(np.arange(self.size)).max()) + 1

    def __call__(self, index: Any) -> Any:
        """The offset of a linear index (a number or an array)."""
        index = np.asarray(index)
        offset = np.zeros_like(index)
        for extent, step in zip(flatten(self.shape), flatten(self.stride), strict=True):
            offset = offset + index % extent * step
            index = index // extent
        return offset

    def mode(self, i: int) -> Layout:
        """One mode of the outermost tuple."""
        assert isinstance(self.shape, tuple) and isinstance(self.stride, tuple)
        return Layout(self.shape[i], self.stride[i])

    def table(self) -> Array:
        """Offsets [first mode, second mode] of a layout of two modes."""
        rows, columns = self.mode(0), self.mode(1)
        found: Array = rows(np.arange(rows.size))[:, None] + columns(np.arange(columns.size))
        return found


def _text(nested: Nested) -> str:
    return str(nested).replace(" ", "").replace(",)", ")")


def compose(outer: Callable[[Any], Any], inner: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """``outer`` after ``inner`` as a function of an index: the functional composition."""
    return lambda index: outer(inner(index))


def swizzle(bits: int, base: int, shift: int, index: Any) -> Any:
    """Swizzle<bits, base, shift>: XOR ``bits`` bits at base + shift into those at base."""
    mask = (1 << bits) - 1 << base + shift
    return index ^ (index & mask) >> shift


def tile_to_shape(atom: Layout, shape: tuple[int, int], order: tuple[int, ...] = (0, 1)) -> Layout:
    """Repeat an atom (of two modes) to a shape; ``order`` says which mode the copies follow first.

    The result has modes ((atom, copies), (atom, copies)).
    """
    counts = [-(-shape[i] // atom.mode(i).size) for i in range(2)]
    steps, step = [0, 0], atom.cosize
    for i in order:
        steps[i] = step
        step *= counts[i]
    modes = [atom.mode(i) for i in range(2)]
    return Layout(
        tuple((mode.shape, count) for mode, count in zip(modes, counts, strict=True)),
        tuple((mode.stride, step) for mode, step in zip(modes, steps, strict=True)),
    )
