"""Matrices in shared memory as tensor cores read them: core matrices, swizzle atoms, descriptors.

A matrix is [M or N, K]. K-major means that K runs along memory, MN-major that M or N does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpukit.layout.algebra import Array, Layout, swizzle, tile_to_shape

# mode -> Swizzle<b, m, s> on bytes, bits of a row of the pattern, K steps if MN-major
ATOMS: dict[str, tuple[tuple[int, int, int], int, int]] = {
    "none": ((0, 4, 3), 128, 8),
    "32": ((1, 4, 3), 256, 8),
    "64": ((2, 4, 3), 512, 8),
    "128": ((3, 4, 3), 1024, 8),
    "128/32": ((2, 5, 2), 1024, 4),
}
#: The swizzle field of a tcgen05 descriptor (3 bits at 61), and of a wgmma descriptor (2 at 62).
TCGEN05_CODES = {"none": 0, "128/32": 1, "128": 2, "64": 4, "32": 6}
WGMMA_CODES = {"none": 0, "128": 1, "64": 2, "32": 3}
_TCGEN05 = 1 << 46  # a constant that wgmma does not have


def swizzled(mode: str, address: Any) -> Any:
    """Where a byte really lies that a plain layout puts at this shared address."""
    return swizzle(*ATOMS[mode][0], address)


def atom(mode: str, k_major: bool, bits: int) -> Layout:
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
    order: tuple[int, int] = (0, 1)

    @property
    def layout(self) -> Layout:
        """In elements, before the swizzle."""
        whole = atom(self.mode, self.k_major, self.bits)
        return tile_to_shape(whole, (self.rows, self.k), self.order)

    def plain(self) -> Array:
        """Bit offsets [row, k] before the swizzle, relative to the start."""
        return self.layout.table()[: self.rows, : self.k] * self.bits

    def places(self) -> tuple[Array, Array]:
        """Bytes of shared memory [row, k], and the bit within them."""
        at = self.plain() + 8 * self.start
        return swizzled(self.mode, at // 8), at % 8

    def steps(self) -> tuple[int, int]:
        """(LBO, SBO) in bytes, from the strides of the layout."""
        _, rows, _, ks = _copies(self.layout)
        row_step, k_step = rows * self.bits // 8, ks * self.bits // 8
        if self.k_major:
            return (k_step, row_step) if self.mode == "none" else (16, row_step)
        return (k_step, row_step) if self.mode == "none" else (row_step, k_step)

    def descriptor(self, k: int = 0) -> int:
        """The 64-bit word of tcgen05 for one instruction that begins at column ``k``."""
        return self._word(k) | _TCGEN05 | TCGEN05_CODES[self.mode] << 61

    def wgmma_descriptor(self, k: int = 0) -> int:
        """The 64-bit word of wgmma for one instruction that begins at column ``k``."""
        return self._word(k) | WGMMA_CODES[self.mode] << 62

    def _word(self, k: int) -> int:
        lbo, sbo = self.steps()
        start = self.start + int(self.plain()[0, k]) // 8
        return start >> 4 | lbo >> 4 << 16 | sbo >> 4 << 32

    @property
    def end(self) -> int:
        """First byte behind it, a multiple of 1024."""
        return -(-(self.start + self.layout.cosize * self.bits // 8) // 1024) * 1024


def _copies(layout: Layout) -> tuple[Any, Any, Any, Any]:
    """The four strides of a tiled layout: atom and copies of rows, atom and copies of K."""
    (a, rows), (b, ks) = layout.stride  # type: ignore[misc]
    return a, rows, b, ks


# A descriptor read the other way: what its byte offsets mean for one wgmma, 32 bytes of K.

_WIDTH = {"none": 1, "32": 2, "64": 4, "128": 8}  # of a row of the pattern, in 16 bytes


def canonical(mode: str, k_major: bool, rows: int, itemsize: int, lbo: int, sbo: int) -> Array:
    """Byte offsets [row, k] of the canonical layouts before the swizzle; 32 bytes of K."""
    t, w = 16 // itemsize, _WIDTH[mode]
    lbo, sbo = lbo // itemsize, sbo // itemsize
    if k_major:
        step = lbo if mode == "none" else t
        layout = Layout(((8, rows // 8), (t, 2)), ((w * t, sbo), (1, step)))
    elif mode == "none":
        layout = Layout(((t, 1, rows // t), (8, 2)), ((1, t, sbo), (t, lbo)))
    else:
        whole = -(-rows // (w * t))
        layout = Layout(((t, w, whole), (8, 2)), ((1, t, lbo), (w * t, sbo)))
    return layout.table()[:rows] * itemsize


def addresses(mode: str, k_major: bool, rows: int, itemsize: int, start: int, lbo: int,
              sbo: int) -> Array:
    """Shared addresses [row, k] of the elements of a wgmma operand."""
    found: Array = swizzled(mode, start + canonical(mode, k_major, rows, itemsize, lbo, sbo))
    return found


def descriptor(mode: str, start: int, lbo: int, sbo: int, base: int = 0) -> int:
    """The 64-bit word of wgmma."""
    return start >> 4 | lbo >> 4 << 16 | sbo >> 4 << 32 | base << 49 | WGMMA_CODES[mode] << 62


def dense(mode: str, k_major: bool, rows: int, itemsize: int) -> tuple[int, int, int]:
    """(LBO, SBO, bytes) of a densely packed wgmma operand with one K step."""
    w, t = _WIDTH[mode], 16 // itemsize
    if k_major:
        if mode == "none":
            return rows * 16, 128, rows * 32
        return 16, 128 * w, rows // 8 * 128 * w
    if mode == "none":
        return rows // t * 128, 128, rows * 32
    whole = -(-rows // (w * t))
    return 256 * w, 128 * w, whole * 256 * w
