"""Matrices in shared memory: which 16-byte chunks a descriptor selects.

A tensor core reads core matrices of 8 x 16 bytes: 8 rows of M or N by 16 bytes of K (K-major), or 8
steps of K by 8 elements of M or N (MN-major). In units of T elements = 16 bytes the layouts are

    K-major,  no swizzle   ((8, m), (T, 2)) : ((1T, SBO), (1, LBO))
    K-major,  w * 16 B     ((8, m), (T, 2)) : ((wT, SBO), (1, T))
    MN-major, no swizzle   ((T, m), (8, 2)) : ((1, SBO), (1T, LBO))
    MN-major, w * 16 B     ((T, w, m), (8, 2)) : ((1, T, LBO), (wT, SBO))

and the swizzle then XORs the 16-byte chunk number with the number of the 128-byte line, both taken
from the absolute shared address.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from gpukit.emulator.check.async_ops import Range
from gpukit.emulator.mma.descriptors import Descriptor, check, decode, refuse
from gpukit.emulator.program import SHARED_START

CHUNK = 16
PERIOD = 1024  # bytes after which every swizzle pattern repeats


@dataclass(frozen=True, slots=True)
class Layout:
    """Chunks of one operand, for a start address of ``phase`` below a multiple of 1024.

    ``chunks`` holds chunk numbers relative to that multiple: [row, 2] if K-major, else
    [16, row / 8]. ``wavefronts`` is what reading them costs, ``ideal`` the least for as many bytes.
    """

    chunks: Any
    low: int
    high: int  # bytes; the chunks lie in [low, high)
    wavefronts: int
    ideal: int


class SharedMatrix:
    """One operand of ``rows`` rows (of M or N) by 32 bytes of K, in a CTA's shared memory.

    ``used`` is how many bytes of each chunk hold elements; what follows may be undefined.
    """

    used = CHUNK

    def __init__(self, descriptor: Descriptor, k_major: bool, rows: int, end: int) -> None:
        check(descriptor, k_major, rows)
        self.descriptor = descriptor
        phase = descriptor.start % PERIOD
        self.origin = descriptor.start - phase
        self.layout = _layout(
            descriptor.span, descriptor.leading, descriptor.stride, descriptor.base, phase, k_major,
            rows,
        )  # fmt: skip
        self.k_major = k_major
        self._ranges: dict[tuple[int, int | None], Range] = {}
        self._check_bounds(end)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SharedMatrix) and other.descriptor == self.descriptor

    def __hash__(self) -> int:
        return hash(self.descriptor)

    def _check_bounds(self, end: int) -> None:
        low, high = self.origin + self.layout.low, self.origin + self.layout.high
        if low < SHARED_START or high > end:
            raise refuse(
                self.descriptor,
                f"the matrix takes offsets 0x{low:x} to 0x{high:x}, the CTA has shared memory from "
                f"0x{SHARED_START:x} to 0x{end:x}",
                address=high if high > end else low,
            )

    @property
    def chunks(self) -> Any:
        """Chunk numbers in the CTA's shared memory."""
        return self.layout.chunks + self.origin // CHUNK

    def fetch(self, store: Any) -> Any:
        """The matrix as uint32: [row, 8] if K-major, else [16, row / 2] with pairs of rows."""
        at = self.chunks
        if store.init is not None:
            self._check_written(store, at)
        data = store.words(np.dtype(np.complex128)).take(at)  # any 16-byte type moves the bits
        return data.view(np.uint32)

    def _check_written(self, store: Any, at: Any) -> None:
        written = store.init.view(np.complex128).take(at).view(np.uint8)
        if self.used < CHUNK:
            written = written.reshape(-1, CHUNK)[:, : self.used]
        if b"\x00" in written.tobytes():
            chunk = int(at.ravel()[int((written == 0).argmax()) // self.used])
            raise refuse(
                self.descriptor,
                f"nothing has written the 16 bytes of shared memory at 0x{chunk * CHUNK:x}",
                address=chunk * CHUNK,
            )

    def range(self, slot: int, quarter: int | None = None) -> Range:
        """The bytes in a CTA's shared memory; of the rows of one warp if a ``quarter`` is named."""
        found = self._ranges.get((slot, quarter))
        if found is None:
            starts = self._starts(quarter)
            found = Range("shared", slot, int(starts.min()), CHUNK, starts, kept=True)
            self._ranges[slot, quarter] = found
        return found

    def _starts(self, quarter: int | None) -> Any:
        """int64 byte offsets of the chunks; the ranges of all CTAs share them."""
        for (_, other), known in self._ranges.items():
            if other == quarter:
                return known.starts
        at = self.chunks
        if quarter is not None:
            at = np.split(at, 4, axis=0 if self.k_major else 1)[quarter]
        return at.ravel() * CHUNK


@lru_cache(maxsize=4096)
def matrix(raw: int, k_major: bool, rows: int, end: int) -> SharedMatrix:
    """The operand that a descriptor means. Raises ``DescriptorError``."""
    return SharedMatrix(decode(raw), k_major, rows, end)


@lru_cache(maxsize=1024)
def _layout(
    span: int, leading: int, stride: int, base: int, phase: int, k_major: bool, rows: int
) -> Layout:
    plain = _k_major if k_major else _mn_major
    addresses = _swizzle(phase + plain(span, leading, stride, rows), span, base)
    cores = addresses.reshape(-1, 8, 2) if k_major else addresses.reshape(2, 8, -1)
    groups = cores.swapaxes(1, 2).reshape(-1, 8)
    return Layout(
        addresses // CHUNK,
        int(addresses.min()),
        int(addresses.max()) + CHUNK,
        _wavefronts(groups),
        len(groups),
    )


def _k_major(span: int, leading: int, stride: int, rows: int) -> Any:
    """Byte offsets [row, chunk of K] from the start, before the swizzle."""
    row, chunk = np.ogrid[:rows, :2]
    return row % 8 * span + row // 8 * stride + chunk * (leading if span == CHUNK else CHUNK)


def _mn_major(span: int, leading: int, stride: int, rows: int) -> Any:
    """Byte offsets [k, chunk of M or N]."""
    k, chunk = np.ogrid[:16, : rows // 8]
    if span == CHUNK:
        return k % 8 * CHUNK + k // 8 * leading + chunk * stride
    wide = span // CHUNK
    return k % 8 * span + k // 8 * stride + chunk % wide * CHUNK + chunk // wide * leading


def _swizzle(addresses: Any, span: int, base: int) -> Any:
    """XOR the chunk number (bits 4 to 6) with the line number (bits 7 to 9), as far as ``span``."""
    lines = (addresses >> 7) - base
    return addresses ^ ((lines << 4) & (span - CHUNK))


def _wavefronts(groups: Any) -> int:
    """Core matrices [n, 8 chunks]: each costs as many passes as chunks share four banks."""
    banks = groups // CHUNK % 8
    per_bank = (banks[:, :, None] == np.arange(8)).sum(axis=1)
    return int(per_bank.max(axis=1).sum())
