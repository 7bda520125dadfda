"""Where the tensor memory accelerator puts the elements of a box."""

from __future__ import annotations

import numpy as np

from gpukit.layout.algebra import Array
from gpukit.layout.shared import swizzled

#: Bytes that the inner dimension of a box may have at most.
SPANS = {"none": 1 << 30, "32": 32, "64": 64, "128": 128}


def box(inner: int, outer: int, itemsize: int, mode: str, start: int = 0) -> Array:
    """Shared addresses [outer, inner] of a box of two dimensions, the inner one contiguous.

    Rows follow each other without gaps, but with a swizzle each takes the whole of its span: a
    shorter one leaves a gap behind it. The swizzle moves 16-byte chunks within lines of 128 bytes.
    Raises ``ValueError`` for a row that is longer than the swizzle's span.
    """
    if inner * itemsize > SPANS[mode]:
        raise ValueError(f"box: {inner} elements of {itemsize} bytes are more than the "
                         f"{SPANS[mode]} bytes that a row of the {mode}-byte swizzle may have")
    pitch = inner * itemsize if mode == "none" else SPANS[mode]
    row, column = np.ogrid[:outer, :inner]
    found: Array = swizzled(mode, start + row * pitch + column * itemsize)
    return found
