"""The polynomial for 2^x of the Blackwell attention kernel, as exact as its header says."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("cuda.bindings.nvrtc")

from gpukit import emulator, sources

SOURCE = r"""
#include "common/exp2_pairs.cuh"
extern "C" __global__ void exponentials(const float2* x, float2* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float2 v = x[i];
    pairs::exp2(v.x, v.y);
    y[i] = v;
}"""


def exponentials(x: np.ndarray) -> np.ndarray:
    y = np.full_like(x, np.nan)
    count = x.size // 2
    emulator.run(SOURCE, -(-count // 256), 256, [x, y, np.int32(count)], arch="sm_100a",
                 include_dirs=[sources.root()])
    return y


def test_relative_error() -> None:
    """Every fraction many times, with exponents down to the smallest normal number."""
    x = np.concatenate([np.linspace(-1, 8, 40001), np.linspace(-126, 8, 9999)]).astype(np.float32)
    error = np.abs(exponentials(x) / 2.0 ** x.astype(np.float64) - 1).max()
    assert 2.0**-18.5 < error < 2.0**-18.3


def test_hidden_scores_have_no_weight() -> None:
    x = np.array([-np.inf, -1e30, -128, -127, -126.75, -126.5, 0, 1], np.float32)
    y = exponentials(x)
    assert (y[:4] == 0).all() and (y[4:6] < 2.0**-126).all() and (y[4:6] >= 0).all()
    np.testing.assert_array_equal(y[6:], [1, 2])
