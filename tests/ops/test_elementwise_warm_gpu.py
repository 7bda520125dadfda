"""The short way must give the results and the errors of the long way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpukit
from gpukit.errors import ArgumentError
from gpukit.ops import warm

pytestmark = pytest.mark.gpu


@pytest.fixture
def x() -> Any:
    import cupy

    array = cupy.linspace(-2, 2, 4000, dtype="f4")
    for _ in range(2):  # seen once: from here on the short way
        gpukit.exp(array)
        gpukit.add(array, array + 1)
    return array


def test_a_repeated_call_takes_the_short_way(x: Any) -> None:
    assert warm.unary("exp", x, 0.0, None) is not None
    assert warm.binary("add", x, x, 0.0, None) is not None
    assert warm.unary("tanh", x[:17], 0.0, None) is None


def test_results_equal_the_long_way(x: Any) -> None:
    import cupy

    y = cupy.random.default_rng(0).standard_normal(x.size, dtype="f4")
    for launch in (None, gpukit.ops.launch.Launch()):
        np.testing.assert_allclose(cupy.asnumpy(gpukit.exp(y, launch=launch)),
                                   np.exp(cupy.asnumpy(y)), rtol=1e-6)
        np.testing.assert_array_equal(cupy.asnumpy(gpukit.add(x, y, launch=launch)),
                                      cupy.asnumpy(x) + cupy.asnumpy(y))


def test_shape_is_kept_and_in_place_works(x: Any) -> None:
    grid = x.reshape(40, 100)
    assert gpukit.exp(grid).shape == (40, 100)
    assert gpukit.exp(grid, out=grid) is grid


@pytest.mark.parametrize("bad", ["shape", "dtype", "overlap", "gaps"])
def test_a_bad_output_is_still_refused(x: Any, bad: str) -> None:
    import cupy

    base = cupy.empty(8000, "f4")
    outputs = {"shape": cupy.empty(3999, "f4"), "dtype": cupy.empty(4000, "f2"),
               "overlap": None, "gaps": base[::2]}
    if bad == "overlap":
        base[:4000] = x
        with pytest.raises(ArgumentError, match="overlaps"):
            gpukit.exp(base[:4000], out=base[4:4004])
    else:
        with pytest.raises(ArgumentError, match="out"):
            gpukit.exp(x, out=outputs[bad])


def test_follows_the_current_stream(x: Any) -> None:
    import cupy

    stream = cupy.cuda.Stream(non_blocking=True)
    out = cupy.zeros_like(x)
    cupy.cuda.runtime.deviceSynchronize()
    with stream:
        stream.begin_capture()
        gpukit.exp(x, out=out)
        graph = stream.end_capture()  # fails if the launch went to another stream
        graph.launch(stream)
        stream.synchronize()
    np.testing.assert_allclose(cupy.asnumpy(out), np.exp(cupy.asnumpy(x)), rtol=1e-6)
