"""An attention call as kernels see it: arrays in one form, whatever the caller had."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpukit.devices.protocol import Device
from gpukit.kernels import attention as specs
from gpukit.ops.attention.masks import Mask


@dataclass(frozen=True)
class Terms:
    """What is done to scores before the softmax, and beside it.

    Attributes:
        scale: of products.
        softcap: 0, or the limit of |scale q.k|.
        slopes: None, or f32 [heads] or [batch, heads].
        bias: None, or [batch or 1, heads or 1, queries, keys] of q's type.
        relative: None, or like q with [..., extent] in place of its columns.
        sinks: None, or f32 [heads].
    """

    scale: float
    softcap: float = 0.0
    slopes: Any = None
    bias: Any = None
    relative: Any = None
    sinks: Any = None

    @property
    def bits(self) -> int:
        """What the kernel is compiled with."""
        return ((specs.SOFTCAP if self.softcap else 0)
                | (specs.ALIBI if self.slopes is not None else 0)
                | (specs.ADDITIVE if self.bias is not None else 0)
                | (specs.RELATIVE if self.relative is not None else 0))


@dataclass(frozen=True)
class Lengths:
    """u32 arrays on the device that say where sequences are; see `cuda_src/attention`.

    Attributes:
        table: [batch, entries] pages; k and v are then [pages, page, heads, columns].
    """

    q_offsets: Any = None
    q_lengths: Any = None
    k_offsets: Any = None
    k_lengths: Any = None
    table: Any = None

    @property
    def policy(self) -> str:
        """Where the kernel finds keys: "dense", "spans" or "paged"."""
        if self.table is not None:
            return "paged"
        return "dense" if all(x is None for x in self.arrays) else "spans"

    @property
    def arrays(self) -> tuple[Any, ...]:
        """In the order of the kernels' parameters."""
        return self.q_offsets, self.q_lengths, self.k_offsets, self.k_lengths, self.table


@dataclass(frozen=True)
class Scales:
    """What 8-bit operands are to be multiplied with.

    Attributes:
        scores, values: numbers, of all products and of all sums.
        q, k, v: None, or f32 [sequences or 1, heads or 1].
    """

    scores: float = 1.0
    values: float = 1.0
    q: Any = None
    k: Any = None
    v: Any = None


@dataclass(frozen=True)
class Problem:
    """A checked call, not empty.

    Attributes:
        q, out: [batch, queries, heads, columns]; ragged calls have one batch.
        k, v: [batch, keys, heads, columns], or pages.
        lse: None, or f32 [batch, heads, queries].
        batch: sequences.
        queries, keys: of the longest sequence.
        dtype: of the elements of q, k and v; those of "e4m3" are bytes, and scaled.
    """

    device: Device
    dtype: str
    q: Any
    k: Any
    v: Any
    out: Any
    lse: Any
    batch: int
    queries: int
    keys: int
    mask: Mask
    terms: Terms
    lengths: Lengths
    scales: Scales = Scales()

    @property
    def heads(self) -> int:
        """Heads of q."""
        return int(self.q.shape[2])

    @property
    def kv_heads(self) -> int:
        """Heads of k and v."""
        return int(self.k.shape[2])

    @property
    def d(self) -> int:
        """Columns of a head of q and k."""
        return int(self.q.shape[3])

    @property
    def dv(self) -> int:
        """Columns of a head of v."""
        return int(self.v.shape[3])


def steps(array: Any, *axes: int) -> tuple[int, ...]:
    """Elements from index to index of these axes."""
    return tuple(array.strides[axis] // array.dtype.itemsize for axis in axes)
