"""Whether a peer's sliding window is as wide as ours: what rounding allows hides one key of many.

Of any `window` neighbouring keys one has values of one, the others have zeros, and all scores are
zero: a query that sees n keys gives 1 / n, if it sees one too many or too few at times 2 / n or 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gpukit.bench.families.buffers import words
from gpukit.dtypes import DType
from gpukit.errors import UnsupportedError
from gpukit.reference.tolerance import Array

_OFF = 0.25  # of the value; e4m3 rounds by 1/16


def probe(inputs: tuple[Any, Any, Any], stored: DType, window: int, device: Any) -> tuple[Any, ...]:
    """q, k and v like `inputs`, of elements `stored`, that show how wide a window is."""
    q, k, v = (device.empty(x.shape, x.dtype) for x in inputs)
    for x in (q, k, v):
        words(x).fill(0)
    words(v)[:, ::window] = words(np.ones(1, stored.value_dtype))[0]
    return q, k, v


def require_width(out: Array, window: int) -> None:
    """
    Args:
        out: what a peer made of the probe, [..., tokens].

    Raises:
        UnsupportedError: its window is another.
    """
    seen = np.minimum(np.arange(out.shape[-1]) + 1, window)
    if not (np.abs(out * seen - 1) < _OFF).all():
        raise UnsupportedError(f"its window is not {window} keys wide")
