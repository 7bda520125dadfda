"""float64 oracle of matrix multiplication and the error f32 accumulation may make."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpukit.dtypes import DType
from gpukit.reference.tolerance import Array, Bound


def oracle(a: NDArray[np.generic], b: NDArray[np.generic]) -> Array:
    """A B in float64 from the same rounded inputs; zeros where K = 0."""
    return a.astype(np.float64) @ b.astype(np.float64)


def bound(a: NDArray[np.generic], b: NDArray[np.generic], out: DType) -> Bound:
    """Allowed error, element by element.

    Accumulating K products in f32 in any order errs by at most K u sum |a||b| (u = 2^-24), and by
    about sqrt(K) u sum |a||b| when rounding errors are independent; 4 sqrt(K) + 4 of those units is
    four standard deviations and still far below one missing product at realistic K. The output
    adds half an ulp of its own type (and one unit of f32 rounding before it).
    """
    k = a.shape[1]
    magnitude = np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64))
    unit = 2.0**-24
    smallest = 2.0**-25 if out.name == "f16" else 2.0**-126
    return Bound((4 * np.sqrt(k) + 4) * unit * magnitude + smallest, 2.0**-out.exact_bits + unit)
