"""The first rung of matmul on a GPU against float64 NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpukit
from gpukit import dtypes
from gpukit.errors import ArgumentError, UnknownKernelError
from gpukit.reference import matmul as ref
from gpukit.reference.tolerance import scaled_error

pytestmark = pytest.mark.gpu

SHAPES = [(1, 1, 1), (32, 32, 32), (35, 19, 79), (100, 100, 100), (128, 64, 128), (33, 65, 1),
          (1, 257, 64), (1752, 472, 58), (256, 256, 128)]


def operand(shape: tuple[int, int], dtype: dtypes.DType, seed: int) -> np.ndarray:
    """Normal values over sqrt(K), so that results are of order one."""
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(shape) / np.sqrt(max(shape))).astype(dtype.numpy)


def check(a: np.ndarray, b: np.ndarray, got: Any) -> float:
    import cupy

    out = dtypes.of(got.dtype)
    assert out is not None
    return scaled_error(cupy.asnumpy(got).astype(np.float64), ref.oracle(a, b),
                        ref.bound(a, b, out))


@pytest.mark.parametrize("name", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_shapes_and_layouts(name: str, shape: tuple[int, int, int], layout: str) -> None:
    import cupy

    m, n, k = shape
    dtype = dtypes.parse(name)
    a, b = operand((m, k), dtype, 1), operand((k, n), dtype, 2)
    da = cupy.asarray(a) if layout[0] == "n" else cupy.asarray(np.ascontiguousarray(a.T)).T
    db = cupy.asarray(b) if layout[1] == "n" else cupy.asarray(np.ascontiguousarray(b.T)).T
    out = cupy.empty((m, n), dtype.numpy)
    out.view(f"u{dtype.itemsize}").fill(0x7FC0)
    assert gpukit.matmul(da, db, out=out, kernel=1) is out
    assert check(a, b, out) <= 1


@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_f32_output(name: str) -> None:
    import cupy

    dtype = dtypes.parse(name)
    a, b = operand((70, 50), dtype, 3), operand((50, 90), dtype, 4)
    got = gpukit.matmul(cupy.asarray(a), cupy.asarray(b), out_dtype="float32",
                        kernel=1)
    assert got.dtype == np.float32
    assert check(a, b, got) <= 1


def test_slices_are_read_by_their_strides() -> None:
    import cupy

    a, b = operand((60, 80), dtypes.F32, 5), operand((90, 70), dtypes.F32, 6)
    got = gpukit.matmul(cupy.asarray(a)[::2, 3:43], cupy.asarray(b)[:80:2, ::-1], kernel=1)
    assert check(a[::2, 3:43], b[:80:2, ::-1], got) <= 1


def test_empty_dimensions() -> None:
    import cupy

    zeros = gpukit.matmul(cupy.ones((3, 0), "f4"), cupy.ones((0, 5), "f4"))
    assert zeros.shape == (3, 5)
    assert not zeros.any()
    assert gpukit.matmul(cupy.ones((0, 4), "f4"), cupy.ones((4, 5), "f4")).shape == (0, 5)
    assert gpukit.matmul(cupy.ones((2, 4), "f4"), cupy.ones((4, 0), "f4")).shape == (2, 0)


def test_refusals_name_the_argument() -> None:
    import cupy

    a, b = cupy.ones((4, 6), "f4"), cupy.ones((6, 5), "f4")
    cases = [
        (lambda: gpukit.matmul(a, b[:5]), "last dimension"),
        (lambda: gpukit.matmul(a[0], b), "a has shape (6,)"),
        (lambda: gpukit.matmul(a, b.astype("f2")), "b has dtype float16"),
        (lambda: gpukit.matmul(a.astype("f8"), b.astype("f8")), "a has dtype float64"),
        (lambda: gpukit.matmul(a, b, out=cupy.ones((4, 4), "f4")), "out has shape"),
        (lambda: gpukit.matmul(a, b, out=cupy.ones((5, 4), "f4").T), "out is not C-contiguous"),
        (lambda: gpukit.matmul(a, b, out_dtype="int32"), "out_dtype is int32"),
    ]
    square = cupy.ones((4, 4), "f4")
    cases.append((lambda: gpukit.matmul(square, square, out=square), "out overlaps a"))
    for attempt, text in cases:
        with pytest.raises(ArgumentError) as caught:
            attempt()
        assert text in str(caught.value)
    with pytest.raises(UnknownKernelError, match="known kernels"):
        gpukit.matmul(a, b, kernel=99)
