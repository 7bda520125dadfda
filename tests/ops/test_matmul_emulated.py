"""The naive matmul without a GPU: its own PTX on NumPy arrays."""

from __future__ import annotations

import numpy as np
import pytest

import gpukit
from gpukit import dtypes
from gpukit.errors import ArgumentError
from gpukit.reference import matmul as ref
from gpukit.reference.tolerance import scaled_error


@pytest.mark.parametrize("name", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("shape", [(1, 1, 1), (33, 31, 7), (5, 70, 64), (64, 32, 0)], ids=str)
@pytest.mark.parametrize("layout", ["nn", "nt", "tn"])
def test_shapes_and_layouts(name: str, shape: tuple[int, int, int], layout: str) -> None:
    m, n, k = shape
    dtype = dtypes.parse(name)
    rng = np.random.default_rng(m)
    a = rng.standard_normal((k, m) if layout[0] == "t" else (m, k)).astype(dtype.numpy)
    b = rng.standard_normal((n, k) if layout[1] == "t" else (k, n)).astype(dtype.numpy)
    a, b = a.T if layout[0] == "t" else a, b.T if layout[1] == "t" else b
    out = np.full((m, n), np.nan, dtype.numpy)
    gpukit.matmul(a, b, out=out, kernel=1)
    assert scaled_error(out.astype(np.float64), ref.oracle(a, b), ref.bound(a, b, dtype)) <= 1


def test_strided_views_and_output_types() -> None:
    rng = np.random.default_rng(0)
    a = rng.standard_normal((40, 60)).astype(np.float16)[::-2, 3:43]
    b = rng.standard_normal((80, 70)).astype(np.float16)[::2, ::-1]
    got = gpukit.matmul(a, b, out_dtype="f32", kernel=1)
    assert got.dtype == np.float32
    assert scaled_error(got.astype(np.float64), ref.oracle(a, b), ref.bound(a, b, dtypes.F32)) <= 1


def test_strides_between_elements_are_refused() -> None:
    records = np.zeros(6, [("a", "f4"), ("b", "u2")])
    with pytest.raises(ArgumentError, match="a has strides"):
        gpukit.matmul(records["a"].reshape(2, 3), np.eye(3, dtype=np.float32))
