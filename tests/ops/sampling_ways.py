"""Rows for tests of the sampler's short ways, and the long way beside them."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpukit import sampling


def random(count: int, width: int, seed: int = 0, scale: float = 2.0) -> Any:
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((count, width)) * scale).astype(np.float32)


def padded(x: Any) -> Any:
    """The same rows, each at an address of 16 bytes."""
    wide = np.empty((len(x), -(-x.shape[1] // 8) * 8), x.dtype)
    wide[:, :x.shape[1]] = x
    return wide[:, :x.shape[1]]


def both(x: Any, tunables: dict[str, int], **settings: Any) -> None:
    """The two ways of `x`, which must agree."""
    status, other = np.full((2, len(x)), 0xDB, np.uint8)
    short = sampling.sample(x, seed=7, status=status, tunables=tunables, **settings)
    long = sampling.sample(x, seed=7, status=other, tunables=tunables,
                           distribution=np.empty(x.shape, np.float32), **settings)
    np.testing.assert_array_equal(short, long)
    np.testing.assert_array_equal(status, other)
