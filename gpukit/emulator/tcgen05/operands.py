"""A and B in shared memory: which 16-byte chunks a descriptor selects, and what reading them costs.

In units of T elements = 16 bytes the canonical layouts (9.7.16.3.3 of the PTX ISA) are

    K-major,  no swizzle    ((8, m), (T, 2)) : ((1T, SBO), (1, LBO))
    K-major,  w * 16 B      ((8, m), (T, 2)) : ((wT, SBO), (1, T))
    MN-major, no swizzle    ((T, 1, m), (8, k)) : ((1, T, SBO), (1T, LBO))
    MN-major, w * 16 B      ((T, w, m), (8, k)) : ((1, T, LBO), (wT, SBO))
    MN-major, 32-byte atoms ((T, 8, m), (4, k)) : ((1, T, LBO), (8T, SBO))

and the swizzle XORs the number of the chunk (or of the 32-byte atom) in its 128-byte line with the
number of the line, both taken from the shared address.

Reads are counted per core matrix of 128 bytes: 8 rows by 16 bytes, or with 32-byte atoms 4 rows by
32 bytes. Each costs one wavefront unless some of its chunks lie in the same banks.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from gpukit.emulator.mma.operands import CHUNK, PERIOD, Layout, SharedMatrix
from gpukit.emulator.tcgen05.descriptors import Descriptor, check, decode
from gpukit.emulator.tcgen05.elements import Element

K_BYTES = 32  # of one instruction, for every kind


class Operand(SharedMatrix):
    """``rows`` rows (of M or N) by 32 bytes of K of one operand, in a CTA's shared memory.

    The first is row number ``skip`` of the matrix that the descriptor describes.
    """

    def __init__(
        self, descriptor: Descriptor, element: Element, k_major: bool, rows: int, end: int,
        skip: int = 0,
    ) -> None:  # fmt: skip
        row_bytes = K_BYTES if k_major else (skip + rows) * element.bits // 8
        check(descriptor, k_major, row_bytes, element.bits == 32)
        self.descriptor = descriptor
        self.element, self.k_major, self.used = element, k_major, element.used
        self._rows = slice(skip % element.per_chunk, skip % element.per_chunk + rows)
        phase = descriptor.start % PERIOD
        self.origin = descriptor.start - phase
        d = descriptor
        self.layout = _layout(d.span, d.atom, d.leading, d.stride, d.base, phase, k_major, rows,
                              skip, element.per_chunk)  # fmt: skip
        self._ranges = {}
        self._check_bounds(end)

    def values(self, store: Any) -> Any:
        """float64 [row, K] of what lies in a CTA's shared memory now."""
        elements = self.element.from_shared(self.fetch(store))
        return elements if self.k_major else elements.T[self._rows]


@lru_cache(maxsize=4096)
def operand(
    raw: int, element: Element, k_major: bool, rows: int, end: int, skip: int = 0
) -> Operand:
    """The operand that a descriptor means. Raises ``DescriptorError``."""
    return Operand(decode(raw), element, k_major, rows, end, skip)


@lru_cache(maxsize=1024)
def _layout(
    span: int, atom: int, leading: int, stride: int, base: int, phase: int, k_major: bool,
    rows: int, skip: int, per_chunk: int,
) -> Layout:  # fmt: skip
    stop = skip + rows
    whole = -(-stop // 8) * 8
    if k_major:
        plain = _k_major(span, leading, stride, whole)
    else:
        plain = _mn_major(span, atom, leading, stride, -(-whole // per_chunk), 2 * per_chunk)
    addresses = _swizzle(phase + plain, span, atom, base)
    cores = _cores(addresses, k_major, atom)
    if k_major:
        used = addresses[skip:stop]
    else:
        used = addresses[:, skip // per_chunk : -(-stop // per_chunk)]
    return Layout(
        used // CHUNK, int(used.min()), int(used.max()) + CHUNK, wavefronts(cores), len(cores)
    )


def _k_major(span: int, leading: int, stride: int, rows: int) -> Any:
    """Byte offsets [row, chunk of K] from the start, before the swizzle."""
    row, chunk = np.ogrid[:rows, :2]
    return row % 8 * span + row // 8 * stride + chunk * (leading if span == CHUNK else CHUNK)


def _mn_major(span: int, atom: int, leading: int, stride: int, chunks: int, depth: int) -> Any:
    """Byte offsets [k, chunk of M or N]; ``depth`` elements of K."""
    k, chunk = np.ogrid[:depth, :chunks]
    if span == CHUNK:
        return k % 8 * CHUNK + k // 8 * leading + chunk * stride
    wide, deep = span // CHUNK, 4 if atom == 32 else 8
    return k % deep * span + k // deep * stride + chunk % wide * CHUNK + chunk // wide * leading


def _swizzle(addresses: Any, span: int, atom: int, base: int) -> Any:
    """XOR the number of the atom in its line with the line's number, as far as ``span``."""
    lines = (addresses >> 7) - base
    return addresses ^ (lines * atom & span - atom)


def _cores(addresses: Any, k_major: bool, atom: int) -> Any:
    """Core matrices [n, 8 chunks]."""
    if k_major:
        return addresses.reshape(-1, 8, 2).swapaxes(1, 2).reshape(-1, 8)
    deep = 4 if atom == 32 else 8
    depth, chunks = addresses.shape
    wide = 8 // deep  # an odd number of chunks cannot be cut into pairs: N is a multiple of 8
    cut = addresses.reshape(depth // deep, deep, chunks // wide, wide)
    return cut.swapaxes(1, 2).reshape(-1, 8)


def wavefronts(cores: Any) -> int:
    """Passes over the banks: per core matrix [n, 8 chunks], as many as chunks share four banks."""
    banks = cores // CHUNK % 8
    per_bank = (banks[:, :, None] == np.arange(8)).sum(axis=1)
    return int(per_bank.max(axis=1).sum())
