"""From the options of ``gpukit layout`` to the pictures of `gpukit.layout`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpukit.layout.pictures import memory, registers, tensor_memory

if TYPE_CHECKING:
    from gpukit.layout.picture import Picture


def wgmma_a(place: str, dtype: str, swizzle: str, major: str, access: str) -> Picture:
    """A, 64 rows."""
    if place == "registers":
        return registers.wgmma_a(dtype)
    return memory.operand("A", 64, dtype, swizzle, major, access)


def wgmma_b(n: int, dtype: str, swizzle: str, major: str, access: str) -> Picture:
    """B, N rows."""
    return memory.operand("B", n, dtype, swizzle, major, access)


def wgmma_d(n: int, dtype: str) -> Picture:
    """D."""
    return registers.wgmma_d(n, dtype)


def tcgen05_ld(shape: str, repeat: int, split: int) -> Picture:
    """Cells of tensor memory by thread."""
    return tensor_memory.loaded(shape, repeat, split)


def tmem(m: str, n: int, cta_group: str, ws: bool) -> Picture:
    """D in tensor memory."""
    return tensor_memory.accumulator(int(m), n, int(cta_group), ws)


def swizzle(swizzle: str) -> Picture:
    """A period of the pattern."""
    return memory.swizzle(swizzle)


def tma_box(inner: int, outer: int, dtype: str, swizzle: str, access: str) -> Picture:
    """A box in shared memory."""
    return memory.box(inner, outer, dtype, swizzle, access)


def warp_access(pattern: str, width: str, row_bytes: int, swizzle: str) -> Picture:
    """A warp's load or store."""
    return memory.warp_access(pattern, int(width), row_bytes, swizzle)


def mma_a(dtype: str) -> Picture:
    """A of a warp."""
    return registers.mma_a(dtype)


def mma_b(dtype: str) -> Picture:
    """B of a warp."""
    return registers.mma_b(dtype)


def mma_c(dtype: str) -> Picture:
    """C and D of a warp."""
    return registers.mma_c(dtype)


def ldmatrix(show: str, count: str, trans: bool, row_bytes: int, swizzle: str) -> Picture:
    """What it gives, or what it reads."""
    if show == "registers":
        return registers.ldmatrix(int(count), trans)
    return memory.ldmatrix(row_bytes, swizzle, int(count))
