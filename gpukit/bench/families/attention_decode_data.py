"""What decode cases are made of: caches of normal numbers, lengths, page tables."""

from __future__ import annotations

from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

_SHARE = 8  # the typical sequence of a mixed batch has this share of the longest one's keys


class Caches(NamedTuple):
    """k and v as gpukit.attention_decode takes them: [sequences or pages, rows, KV heads, dim]."""

    k: Any
    v: Any


def normal(device: Any, dtype: Any, shape: tuple[int, ...], seed: int) -> Any:
    """Standard normal numbers, as e4m3 where dtype is uint8."""
    rng, xp = device.xp.random.default_rng(seed), device.xp
    if dtype != "uint8":
        return rng.standard_normal(shape, dtype=xp.float32).astype(dtype)
    numbers = np.random.default_rng(seed).standard_normal(1 << 16).astype(ml_dtypes.float8_e4m3fn)
    return xp.asarray(numbers.view("uint8"))[rng.integers(0, 1 << 16, shape, dtype=xp.uint16)]


def lengths(kind: str, sequences: int, longest: int) -> NDArray[np.uint32]:
    """Keys of each sequence: "equal", or "mixed": one is the longest, most are much shorter
    (log-normal, as lengths of requests are)."""
    if kind == "equal":
        return np.full(sequences, longest, np.uint32)
    drawn = np.random.default_rng(sequences).lognormal(np.log(longest / _SHARE), 1.0, sequences)
    found = np.clip(drawn, 1, longest).astype(np.uint32)
    found[0] = longest
    return found


def table(device: Any, sequences: int, longest: int, page: int, shared: bool = False) -> Any:
    """Pages in random order, room for the longest in each sequence; None without pages.

    Args:
        shared: all sequences have the same pages.
    """
    if not page:
        return None
    entries = -(-longest // page)
    order = np.random.default_rng(0).permutation((1 if shared else sequences) * entries)
    rows = np.resize(order.astype(np.uint32), (sequences, entries))
    return device.xp.asarray(rows)
