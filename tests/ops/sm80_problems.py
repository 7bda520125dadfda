"""Operands of any layout and alignment for the Ampere matmul tests, and what C must become."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gpukit import dtypes
from gpukit.reference import matmul as ref
from gpukit.reference.tolerance import scaled_error

POISON = {2: 0x7FDB, 4: 0x7FDBDEAD}  # NaNs that no arithmetic makes
GUARD = 64  # elements before and after C that must keep the poison


@dataclass(frozen=True)
class Problem:
    """C = A B.

    `layout` says how A and B are stored, as in the benchmarks: n as is, t transposed. `offsets`:
    elements that A, B and C start past a 16-byte boundary. `pads`: elements between the end of a
    stored row of A (B) and the next.
    """

    m: int
    n: int
    k: int
    layout: str = "nt"
    dtype: str = "bf16"
    out: str = "bf16"
    offsets: tuple[int, int, int] = (0, 0, 0)
    pads: tuple[int, int] = (0, 0)

    def operands(self, xp: Any = np) -> tuple[Any, Any]:
        """Normal values as views of buffers; what surrounds them is NaN."""
        return self._stored(xp, 0, (self.m, self.k)), self._stored(xp, 1, (self.k, self.n))

    def _stored(self, xp: Any, side: int, shape: tuple[int, int]) -> Any:
        flip, start = self.layout[side] == "t", self.offsets[side]
        rows, columns = shape[::-1] if flip else shape
        pitch = columns + self.pads[side]
        raw = np.full(start + rows * pitch + 8, np.nan, dtypes.parse(self.dtype).numpy)

        def view(buffer: Any) -> Any:
            return buffer[start:start + rows * pitch].reshape(rows, pitch)[:, :columns]

        rng = np.random.default_rng(self.m * 31 + self.n * 7 + self.k + side)
        view(raw)[...] = rng.standard_normal((rows, columns))
        matrix = view(xp.asarray(raw))
        return matrix.T if flip else matrix

    def guarded(self, xp: Any) -> tuple[Any, Any]:
        """C, all poison, and the words of the buffer around it."""
        dtype = dtypes.parse(self.out).numpy
        size = self.m * self.n
        raw = xp.empty(2 * GUARD + self.offsets[2] + size, dtype)
        words = raw.view(f"u{dtype.itemsize}")
        words.fill(POISON[dtype.itemsize])
        start = GUARD + self.offsets[2]
        return raw[start:start + size].reshape(self.m, self.n), words

    def verify(self, a: Any, b: Any, out: Any, words: Any) -> None:
        """C within the bound of f32 accumulation, poison around it and nowhere in it. On hosts."""
        poison, start = POISON[out.dtype.itemsize], GUARD + self.offsets[2]
        assert (words[:start] == poison).all() and (words[start + out.size:] == poison).all()
        assert not (words[start:start + out.size] == poison).any()
        bound = ref.bound(a, b, dtypes.parse(self.out))
        assert scaled_error(out.astype(np.float64), ref.oracle(a, b), bound) <= 1
