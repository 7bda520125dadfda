"""A small kernel, and the assertion that bad input is refused in one line."""

from __future__ import annotations

import numpy as np
import pytest

from gpukit import emulator
from gpukit.emulator.errors import LaunchError

SOURCE = """extern "C" __global__ void scale(float* y, float a, int n) {
  int i = threadIdx.x; if (i < n) y[i] *= a; }"""


def scale(source=SOURCE, grid=1, block=32, args=None, **options):
    """Run the kernel on four ones, three of them the default arguments; returns the array."""
    y = np.ones(4, "f4")
    given = [y, np.float32(3), np.int32(4)] if args is None else args
    emulator.run(source, grid, block, given, **options)
    return y


def refused(message, call, error=LaunchError):
    """Assert that a call ends in one line with this text, and that a good one works after it."""
    with pytest.raises(error) as caught:
        call()
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert scale().tolist() == [3] * 4
