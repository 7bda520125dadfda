"""Matrices as tcgen05 wants them: small exact values of every type, and their bits in memory."""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np

from gpukit.layout.shared import SharedTile
from gpukit.layout.tmem import accumulator

DTYPES = {
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "tf32": np.dtype(np.float32),
    "e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
    "e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "e2m3": np.dtype(ml_dtypes.float6_e2m3fn),
    "e3m2": np.dtype(ml_dtypes.float6_e3m2fn),
    "e2m1": np.dtype(ml_dtypes.float4_e2m1fn),
    "s8": np.dtype(np.int8),
    "u8": np.dtype(np.uint8),
    "f32": np.dtype(np.float32),
    "s32": np.dtype(np.int32),
}
BITS = {"e2m3": 6, "e3m2": 6, "e2m1": 4}  # that hold a value; of the others all do
START = 1024  # of a CTA's shared memory


def bits_of(name):
    return BITS.get(name, 8 * DTYPES[name].itemsize)


def container_bits(kind, name):
    """Bits per element of shared memory, padding included."""
    if name in BITS:
        return 4 if kind in ("mxf4", "mxf4nvf4") else 8
    return bits_of(name)


def random_matrix(rng, shape, name):
    """All kinds of values of a type, moderate ones of the wide types."""
    dtype = DTYPES[name]
    if name in ("s8", "u8"):
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max, shape, dtype, endpoint=True)
    if name in BITS:
        return rng.integers(0, 1 << BITS[name], shape).astype(np.uint8).view(dtype)
    values = rng.standard_normal(shape).astype(dtype)
    if name == "tf32":
        return (values.view(np.uint32) & ~np.uint32(0x1FFF)).view(np.float32)
    return values


def small_matrix(rng, shape, name):
    """Integers that every type holds and whose sums are exact in every order."""
    choices = np.array([0, 1, 2, 3, 4] if name == "u8" else [-4, -3, -2, -1, 0, 1, 2, 3, 4])
    return choices[rng.integers(0, choices.size, shape)].astype(DTYPES[name])


def exact(matrix):
    return np.asarray(matrix).astype(np.float64)


def codes(matrix):
    """Bit patterns as unsigned integers."""
    raw = np.ascontiguousarray(matrix)
    return raw.view(f"u{raw.dtype.itemsize}").astype(np.uint64)


@dataclass
class Placed:
    """A matrix [rows, K] in shared memory, tiled by ``tile``."""

    values: np.ndarray
    name: str
    tile: SharedTile

    def write(self, image):
        """Put its bits into ``image``, bytes of shared memory from ``START`` on."""
        byte, bit = self.tile.places()
        words = codes(self.values)
        size, container = bits_of(self.name), self.tile.bits
        if container > size:  # 16 elements of 4 or 6 bits packed at the start of 16 bytes
            within = byte % 16
            bit = within * size
            byte = byte - within + bit // 8
            bit = bit % 8
        for i in range(size):
            at = bit + i
            value = (words >> np.uint64(i) & np.uint64(1)).astype(np.uint8) << (at % 8)
            np.bitwise_or.at(image, byte - START + at // 8, value.astype(np.uint8))


def place(values, name, kind, mode="128", k_major=True, start=START, order=(0, 1)):
    """Tile a matrix from ``start`` on."""
    bits = container_bits(kind, name)
    return Placed(values, name, SharedTile(mode, k_major, *values.shape, bits, start, order))


def image_of(*placed):
    """uint8: shared memory from ``START`` on with the matrices in it."""
    image = np.zeros(max(p.tile.end for p in placed) - START, np.uint8)
    for p in placed:
        p.write(image)
    return image


def a_cells(values, name, copies, lane=0):
    """Columns of A [M, K] in tensor memory, 32 bytes of K a lane: uint32 [128, 8].

    Elements of 4 and 6 bits have containers of 8 bits: 6 bits the low ones, 4 bits the middle.
    """
    raw = codes(values)
    if name in BITS:
        raw = (raw << np.uint64(2 if BITS[name] == 4 else 0)).astype(np.uint8)
    else:
        raw = raw.astype(f"u{values.dtype.itemsize}")
    words = np.ascontiguousarray(raw).view(np.uint32)
    m = values.shape[0]
    cells = np.full((128, 8), 0x5A5A5A5A, np.uint32)
    rows = accumulator(m, 8, ws=copies).table()[:, 0] % 128 + lane
    for copy in range(128 // m if copies else 1):
        cells[rows + copy * m] = words
    return cells
