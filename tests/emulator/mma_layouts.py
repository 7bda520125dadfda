"""A little of CuTe's layout algebra, and matrices written into shared memory by it.

Independent of the emulator: layouts are shape:stride pairs evaluated by colexicographic order, the
swizzle is Swizzle<b, m, s> on an index, fragments are thread-value layouts.
"""

from __future__ import annotations

import numpy as np


def flat(nested):
    """Leaves of a nested tuple."""
    return (
        [leaf for part in nested for leaf in flat(part)] if isinstance(nested, tuple) else [nested]
    )


def size(shape):
    return int(np.prod(flat(shape)))


def evaluate(shape, stride, index):
    """The offset of a linear index: mixed-radix digits (first mode fastest) times strides."""
    offset = np.zeros_like(np.asarray(index))
    for extent, step in zip(flat(shape), flat(stride), strict=True):
        offset = offset + index % extent * step
        index = index // extent
    return offset


def table(shape, stride):
    """Offsets of all coordinates of a two-mode layout, as a matrix."""
    first, second = (np.arange(size(part)) for part in shape)
    return evaluate(shape[0], stride[0], first)[:, None] + evaluate(shape[1], stride[1], second)


def swizzle(b, m, s, index):
    """CuTe's Swizzle<b, m, s>: XOR b bits from position m + s into position m."""
    return index ^ ((index & ((1 << b) - 1) << (m + s)) >> s)


WIDTH = {"none": 1, "32": 2, "64": 4, "128": 8}
CODE = {"none": 0, "128": 1, "64": 2, "32": 3}
BITS = {"none": 0, "32": 1, "64": 2, "128": 3}


def canonical(mode, k_major, rows, itemsize, lbo, sbo):
    """Byte offsets [row, k] of the canonical layouts before the swizzle; 32 bytes of K."""
    t, w = 16 // itemsize, WIDTH[mode]
    lbo, sbo = lbo // itemsize, sbo // itemsize
    if k_major:
        shape = ((8, rows // 8), (t, 2))
        stride = ((w * t, sbo), (1, lbo if mode == "none" else t))
    elif mode == "none":
        shape, stride = ((t, 1, rows // t), (8, 2)), ((1, t, sbo), (t, lbo))
    else:
        whole = -(-rows // (w * t))
        shape, stride = ((t, w, whole), (8, 2)), ((1, t, lbo), (w * t, sbo))
    return table(shape, stride)[:rows] * itemsize


def addresses(mode, k_major, rows, itemsize, start, lbo, sbo):
    """Shared addresses [row, k] of the elements of an operand."""
    return swizzle(BITS[mode], 4, 3, start + canonical(mode, k_major, rows, itemsize, lbo, sbo))


def descriptor(mode, start, lbo, sbo, base=0):
    """The 64-bit word."""
    return start >> 4 | lbo >> 4 << 16 | sbo >> 4 << 32 | base << 49 | CODE[mode] << 62


def dense(mode, k_major, rows, itemsize):
    """(LBO, SBO, bytes) of a densely packed operand with one K step."""
    w, t = WIDTH[mode], 16 // itemsize
    if k_major:
        if mode == "none":
            return rows * 16, 128, rows * 32
        return 16, 128 * w, rows // 8 * 128 * w
    if mode == "none":
        return rows // t * 128, 128, rows * 32
    whole = -(-rows // (w * t))
    return 256 * w, 128 * w, whole * 256 * w


# Thread-value layouts (CuTe's SM80 and SM90 atoms): thread, value -> element, column-major


def accumulator_positions(rows, columns):
    """Arrays (row, column) [thread, value] of a warp's (16) or warpgroup's (64) accumulator."""
    thread_shape, thread_stride = (4, 8, rows // 16), (2 * rows, 1, 16)
    value_shape, value_stride = (2, 2, columns // 8), (rows, 8, 8 * rows)
    thread, value = np.arange(2 * rows), np.arange(columns // 2)
    index = evaluate(thread_shape, thread_stride, thread)[:, None]
    index = index + evaluate(value_shape, value_stride, value)
    return index % rows, index // rows


def a_positions(rows, k, per):
    """(row, k) [thread, value] of an A fragment whose registers hold ``per`` elements."""
    thread_shape, thread_stride = (4, 8, rows // 16), (per * rows, 1, 16)
    halves = k // (4 * per)
    value_shape, value_stride = (per, 2, halves), (rows, 8, 4 * per * rows)
    index = evaluate(thread_shape, thread_stride, np.arange(2 * rows))[:, None]
    index = index + evaluate(value_shape, value_stride, np.arange(per * 2 * halves))
    return index % rows, index // rows


def b_positions(k, per):
    """(column, k) [thread, value] of a B fragment, 8 columns."""
    index = evaluate((4, 8), (per * 8, 1), np.arange(32))[:, None]
    index = index + evaluate((per, k // (4 * per)), (8, 4 * per * 8), np.arange(k // 4))
    return index % 8, index // 8
