"""The element type table agrees with NumPy, ml_dtypes and the kernels' own names."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from gpukit import dtypes, sources
from gpukit.dtypes import DType
from gpukit.errors import ArgumentError

each_dtype = pytest.mark.parametrize("dtype", dtypes.ALL.values(), ids=lambda d: d.name)


@each_dtype
def test_sizes_and_precision_are_those_of_the_type(dtype: DType) -> None:
    assert dtype.numpy.itemsize == dtype.value_dtype.itemsize == dtype.itemsize
    if dtype.exact_bits:
        assert dtype.exact_bits == ml_dtypes.finfo(dtype.numpy).nmant + 1


@each_dtype
def test_the_kernels_know_the_type_by_this_name(dtype: DType) -> None:
    assert dtype.ctype == "float" or f"using {dtype.ctype} =" in sources.text("common/types.cuh")


def test_fp8_is_stored_as_bytes() -> None:
    assert dtypes.E4M3.numpy == dtypes.E5M2.numpy == np.uint8
    assert dtypes.E4M3.value_dtype == ml_dtypes.float8_e4m3fn
    assert dtypes.E5M2.value_dtype == ml_dtypes.float8_e5m2


@pytest.mark.parametrize(("name", "want"), [
    ("f32", dtypes.F32), ("float32", dtypes.F32), ("half", dtypes.F16), ("bfloat16", dtypes.BF16),
    ("float8_e4m3fn", dtypes.E4M3), ("e5m2", dtypes.E5M2),
])
def test_names_and_aliases(name: str, want: DType) -> None:
    assert dtypes.parse(name) is want


def test_an_unknown_name_lists_the_known() -> None:
    with pytest.raises(ArgumentError, match="dtype 'f64' is unknown; known dtypes: f32, f16, bf16"):
        dtypes.parse("f64")


def test_of_a_numpy_dtype() -> None:
    assert dtypes.of(np.float32) is dtypes.F32
    assert dtypes.of(ml_dtypes.bfloat16) is dtypes.BF16
    assert dtypes.of("uint8") is None, "the bytes alone do not say which format"
    assert dtypes.of(np.float64) is None
