"""The kernel that places every element by hand: products, and refusals."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from gpukit import demo
from gpukit.errors import ArgumentError, UnsupportedError

pytest.importorskip("cuda.bindings.nvrtc")

WIDTHS = {"none": 16, "32": 16, "64": 32, "128": 64}
FORMS = [("none", "k", "k", 8), ("none", "mn", "mn", 16), ("none", "registers", "mn", 8),
         ("32", "k", "k", 16), ("64", "mn", "k", 8), ("64", "registers", "k", 64),
         ("128", "k", "k", 256), ("128", "mn", "mn", 96), ("128", "registers", "mn", 8)]


def operands(swizzle: str, n: int, dtype: Any = ml_dtypes.bfloat16) -> tuple[Any, Any]:
    rng = np.random.default_rng(n)
    shape = WIDTHS[swizzle]
    return tuple(rng.integers(-9, 10, (rows, shape)).astype(dtype)  # type: ignore[return-value]
                 for rows in (64, n))


def check(form: tuple[str, str, str, int], move: Any, back: Any) -> None:
    swizzle, a_layout, b_layout, n = form
    a, b = operands(swizzle, n)
    d = demo.multiply(move(a), move(b), swizzle=swizzle, a_layout=a_layout, b_layout=b_layout)
    assert np.array_equal(back(d), a.astype(np.float32) @ b.astype(np.float32).T)


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_products_by_the_emulator(form: tuple[str, str, str, int]) -> None:
    check(form, lambda x: x, lambda x: x)


@pytest.mark.gpu
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_products_by_a_gpu(form: tuple[str, str, str, int]) -> None:
    cupy = pytest.importorskip("cupy")
    try:
        check(form, cupy.asarray, cupy.asnumpy)
    except UnsupportedError as reason:
        pytest.skip(str(reason))


def test_f16() -> None:
    a, b = operands("128", 16, np.float16)
    d = demo.multiply(a, b, swizzle="128")
    assert np.array_equal(d, a.astype(np.float32) @ b.astype(np.float32).T)


@pytest.mark.parametrize(("change", "words"), [
    ({"swizzle": "256"}, "swizzle='256' is not one of none, 32, 64, 128"),
    ({"swizzle": "64"}, r"a: \[64, 32\] with this swizzle, got \[64, 16\]"),
    ({"a_layout": "n"}, "a_layout='n'"), ({"b_layout": "registers"}, "b_layout='registers'"),
    ({"b": np.zeros((12, 16), ml_dtypes.bfloat16)}, r"b: \[N, 16\] with N of 8, 16"),
    ({"b": np.zeros((8, 16), np.float16)}, "both alike"),
    ({"a": np.zeros((16, 64), ml_dtypes.bfloat16).T}, "contiguous")])
def test_refusals(change: dict[str, Any], words: str) -> None:
    a, b = operands("none", 8)
    with pytest.raises(ArgumentError, match=words):
        demo.multiply(**{"a": a, "b": b, **change})
