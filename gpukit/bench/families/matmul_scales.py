"""Scales of 8-bit operands: how many each side has, how they lie in memory, what they do to C.

    none     no scales
    tensor   one float32 for each of A and B, on the device
    rowcol   one for each row of A and each column of B
    block    one for each 1 x 128 elements of A and each 128 x 128 of B

Those of blocks lie as the fast kernels want them, ours and others': A's with M fastest and K
blocks a multiple of 16 bytes apart, B's with K blocks fastest, filled up to a multiple of four.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gpukit.reference.matmul import Epilogue
from gpukit.reference.tolerance import Array

MODES = ("none", "tensor", "rowcol", "block")
BLOCK = 128
_FOUR = 4  # float32s in 16 bytes

Shape = tuple[int, int, int]


@dataclass(frozen=True)
class Scales:
    """float32 arrays of one buffer set, None in mode ``none``: [1]; [M] and [N]; or
    [M, K / 128] and [K / 128, N / 128], rounded up."""

    mode: str
    a: Any = None
    b: Any = None

    @property
    def words(self) -> dict[str, Any]:
        """Arguments of `gpukit.matmul`."""
        return {} if self.mode == "none" else {"scale_a": self.a, "scale_b": self.b}

    def applied(self, device: Any, a: Array, b: Array, rows: Any,
                columns: Any) -> tuple[Array, Array, Epilogue | None]:
        """What the oracle multiplies, and its epilogue: ``a`` are those rows, ``b`` columns."""
        if self.mode == "none":
            return a, b, None
        scale_a, scale_b = (np.asarray(device.to_host(x), np.float64) for x in (self.a, self.b))
        if self.mode == "tensor":
            return a, b, Epilogue(scale_a=scale_a[0], scale_b=scale_b[0])
        if self.mode == "rowcol":
            return a, b, Epilogue(scale_a=scale_a[rows][:, None], scale_b=scale_b[columns])
        blocks = np.arange(a.shape[1]) // BLOCK
        return (a * scale_a[rows][:, blocks], b * scale_b[blocks][:, columns // BLOCK], None)


def nbytes(mode: str, shape: Shape) -> int:
    """Bytes of one buffer set's scales."""
    m, n, k = shape
    k_blocks, n_blocks = _blocks(k), _blocks(n)
    counts = {"none": 0, "tensor": 2, "rowcol": m + n, "block": (m + n_blocks) * k_blocks}
    return 4 * counts[mode]


def random(mode: str, shape: Shape, device: Any, slots: int) -> list[Scales]:
    """Scales of every buffer set, no two alike, such that C is about 1."""
    m, n, _ = shape
    rng = device.xp.random.default_rng(m * 31 + n)
    return [_one(mode, shape, device.xp, rng) for _ in range(slots)]


def dense(xp: Any, scale_a: Any) -> Any:
    """Block scales of A without a gap between K blocks: [M, K / 128], M fastest."""
    return scale_a if scale_a.T.flags.c_contiguous else xp.ascontiguousarray(scale_a.T).T


def _one(mode: str, shape: Shape, xp: Any, rng: Any) -> Scales:
    m, n, k = shape
    factor = k**-0.5
    if mode == "none":
        return Scales(mode)
    if mode == "tensor":
        return Scales(mode, _around(xp, rng, (1,), factor), _around(xp, rng, (1,)))
    if mode == "rowcol":
        return Scales(mode, _around(xp, rng, (m,), factor), _around(xp, rng, (n,)))
    k_blocks = _blocks(k)
    a = _around(xp, rng, (k_blocks, _up(m)), factor).T[:m]
    b = _around(xp, rng, (_blocks(n), _up(k_blocks))).T[:k_blocks]
    return Scales(mode, a, b)


def _around(xp: Any, rng: Any, shape: tuple[int, ...], factor: float = 1.0) -> Any:
    """Between half the factor and one and a half."""
    return (rng.random(shape, dtype=xp.float32) + np.float32(0.5)) * np.float32(factor)


def _blocks(size: int) -> int:
    return -(-size // BLOCK)


def _up(size: int) -> int:
    return -(-size // _FOUR) * _FOUR
