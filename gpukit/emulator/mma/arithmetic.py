"""D = A * B + C as the emulator computes it.

Floating point: products and their sum over K are formed in binary64 (exact, or off by 2**-53 of the
largest term), C is added in binary64 and the result is rounded to D's type once, to nearest even.

Tensor cores do it differently, and no document fixes how. What has been measured: the K products
and C are aligned to the largest of them, cut off below that one's last kept bit, added, and the sum
is cut to D's precision. With f fraction bits kept (f >= 23 for f16, bf16 and tf32 inputs, about 13
for the fp8 kinds of Hopper) and T the largest of |C| and the |products| of an instruction, a result
of the hardware differs from ours by at most

    (K + 1) * 2**-f * T + 2**-23 * |D|        (2**-10 * |D| instead for a half-precision D)

and over a chain of instructions these bounds add up. Comparisons need that tolerance or inputs,
such as small integers, whose sums are exact in every order. Subnormals are kept. f64 is summed in
another order than the hardware's and not with fused steps: at most (K + 1) * 2**-52 of the sum of
magnitudes. Integer results are exact.
"""

from __future__ import annotations

from typing import Any

import numpy as np

_NAN = {
    np.dtype(np.float32): (np.dtype(np.uint32), np.uint32(0x7FFFFFFF)),
    np.dtype(np.float16): (np.dtype(np.uint16), np.uint16(0x7FFF)),
}
_S32 = np.iinfo(np.int32)
_SERIAL = 1 << 18  # multiplications up to which OpenBLAS uses one thread
ACCUMULATORS: dict[str, np.dtype[Any]] = {
    "f32": np.dtype(np.float32),
    "f16": np.dtype(np.float16),
    "f64": np.dtype(np.float64),
    "s32": np.dtype(np.int32),
}


def product(a: Any, b: Any, bit_operation: str = "") -> Any:
    """A @ B in binary64. Single bits: the count of ones in a AND b, or a XOR b."""
    sums = a @ b
    if bit_operation == "xor":
        ones = a.sum(axis=-1)[..., :, None] + b.sum(axis=-2)[..., None, :]
        return ones - 2 * sums
    return sums


def serial_product(a: Any, b: Any) -> Any:
    """A @ B of two matrices in binary64, in parts for which a BLAS library starts no threads.

    Products of a few hundred rows take microseconds; waking threads for them can take a
    millisecond, on a busy machine.
    """
    sums = np.empty((a.shape[0], b.shape[1]))
    rows = max(1, _SERIAL // b.size)
    for first in range(0, len(a), rows):
        part = slice(first, first + rows)
        np.matmul(a[part], b, out=sums[part])
    return sums


def accumulate(sums: Any, c: Any, dtype: np.dtype[Any], saturate: bool = False) -> Any:
    """``sums`` (binary64) + ``c`` (None for nothing) as ``dtype``."""
    if dtype == ACCUMULATORS["s32"]:
        return _integer(sums, c, saturate)
    total = sums if c is None else np.add(sums, c, dtype=np.float64)
    return _canonical(total.astype(dtype))


def _integer(sums: Any, c: Any, saturate: bool) -> Any:
    total = sums.astype(np.int64)
    if c is not None:
        total += c
    return (np.clip(total, _S32.min, _S32.max) if saturate else total).astype(np.int32)


def _canonical(r: Any) -> Any:
    """The hardware's only NaN in place of every NaN (binary64 keeps its own)."""
    if r.dtype in _NAN and np.isnan(r.min()):
        unsigned, pattern = _NAN[r.dtype]
        r.view(unsigned)[np.isnan(r)] = pattern
    return r
