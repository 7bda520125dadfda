"""A small CuTe-style layout algebra: where the tests take the layouts of tcgen05 from.

A layout maps coordinates to offsets: ``Layout((8, (4, 2)), (4, (1, 32)))``. Nested shapes count
colexicographically, the first mode fastest. Nothing here knows of the emulator.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


def product(shape):
    """Number of coordinates."""
    return int(np.prod([product(part) for part in shape])) if isinstance(shape, tuple) else shape


def flatten(nested):
    """The leaves of a nested tuple, in order."""
    if not isinstance(nested, tuple):
        return (nested,)
    return tuple(leaf for part in nested for leaf in flatten(part))


@dataclass(frozen=True)
class Layout:
    """``shape`` : ``stride``, two nested tuples (or numbers) of the same profile."""

    shape: tuple | int
    stride: tuple | int

    @property
    def size(self):
        return product(self.shape)

    @property
    def cosize(self):
        """One more than the largest offset."""
        return int(self(np.arange(self.size)).max()) + 1

    def __call__(self, index):
        """The offset of a linear index (a number or an array)."""
        index = np.asarray(index)
        offset = np.zeros_like(index)
        for extent, step in zip(flatten(self.shape), flatten(self.stride), strict=True):
            offset = offset + index % extent * step
            index = index // extent
        return offset

    def mode(self, i):
        """One mode of the outermost tuple."""
        return Layout(self.shape[i], self.stride[i])

    def table(self):
        """Offsets [first mode, second mode] of a layout of two modes."""
        rows, columns = self.mode(0), self.mode(1)
        return rows(np.arange(rows.size))[:, None] + columns(np.arange(columns.size))


def compose(outer, inner):
    """``outer`` after ``inner`` as a function of an index: the functional composition."""
    return lambda index: outer(inner(index))


def swizzle(bits, base, shift, index):
    """Swizzle<bits, base, shift>: XOR ``bits`` bits at base + shift into those at base."""
    mask = (1 << bits) - 1 << base + shift
    return index ^ (index & mask) >> shift


def tile_to_shape(atom, shape, order=(0, 1)):
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


# Shared memory: the swizzle atoms of a matrix [M or N, K], in bits


ATOMS = {  # mode -> Swizzle<b, m, s> on bytes, bits of a row of the pattern, K steps if MN-major
    "none": ((0, 4, 3), 128, 8),
    "32": ((1, 4, 3), 256, 8),
    "64": ((2, 4, 3), 512, 8),
    "128": ((3, 4, 3), 1024, 8),
    "128/32": ((2, 5, 2), 1024, 4),
}
SWIZZLE_CODES = {"none": 0, "128/32": 1, "128": 2, "64": 4, "32": 6}


def atom(mode, k_major, bits):
    """The layout atom [M or N, K] in elements of ``bits`` bits, before the swizzle."""
    _, span, deep = ATOMS[mode]
    wide = span // bits
    return Layout((8, wide), (wide, 1)) if k_major else Layout((wide, deep), (1, wide))


@dataclass(frozen=True)
class SharedTile:
    """A matrix [rows, K] tiled by an atom, from byte ``start`` of shared memory.

    ``order`` as for ``tile_to_shape``; ``bits`` per element, padding included.
    """

    mode: str
    k_major: bool
    rows: int
    k: int
    bits: int
    start: int
    order: tuple = (0, 1)

    @property
    def layout(self):
        return tile_to_shape(atom(self.mode, self.k_major, self.bits), (self.rows, self.k),
                             self.order)  # fmt: skip

    def plain(self):
        """Bit offsets [row, k] before the swizzle, relative to the start."""
        return self.layout.table()[: self.rows, : self.k] * self.bits

    def places(self):
        """Bytes of shared memory [row, k], and the bit within them."""
        at = self.plain() + 8 * self.start
        return swizzle(*ATOMS[self.mode][0], at // 8), at % 8

    def steps(self):
        """(LBO, SBO) in bytes, from the strides of the layout."""
        (_, rows), (_, ks) = self.layout.stride
        row_step, k_step = rows * self.bits // 8, ks * self.bits // 8
        if self.k_major:
            return (k_step, row_step) if self.mode == "none" else (16, row_step)
        return (k_step, row_step) if self.mode == "none" else (row_step, k_step)

    def descriptor(self, k=0):
        """The 64-bit word for one instruction that begins at column ``k``."""
        lbo, sbo = self.steps()
        start = self.start + int(self.plain()[0, k]) // 8
        return (start >> 4 | lbo >> 4 << 16 | sbo >> 4 << 32 | 1 << 46
                | SWIZZLE_CODES[self.mode] << 61)  # fmt: skip

    @property
    def end(self):
        """First byte behind it, a multiple of 1024."""
        return -(-(self.start + self.layout.cosize * self.bits // 8) // 1024) * 1024


# Tensor memory: [row, column] -> lane + 128 * column


def accumulator(m, n, group=1, ws=False):
    """Of the rows that one CTA has."""
    rows = m // group
    if rows == 64 and group == 1 and not ws:
        return Layout(((16, 4), n), ((1, 32), 128))
    parts = 128 // rows
    return Layout((rows, (n // parts, parts)), (1, (128, rows)))


def scale_factors(rows):
    """[row, copy] of scale factors: 32 rows a column, a copy in every quarter of the lanes."""
    return Layout(((32, -(-rows // 32)), 4), ((1, 128), 32))


def split_scale_factors(rows):
    """[row, copy] of B's where lanes 64 to 127 compute the second half of the columns."""
    half = rows // 2
    assert half % 32 == 0
    return Layout(((32, half // 32, 2), 2), ((1, 128, 64), 32))
