"""8-bit operands of two formats: the same cases on the emulated H100 and on a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from products import Product

import gpukit
from gpukit.devices import cuda, emulated
from gpukit.errors import ArgumentError

EVERYTHING: dict[str, Any] = {"bias": True, "residual": True, "activation": "gelu_tanh",
                              "alpha": 0.5, "scales": ("each", "each")}
BLOCKS: dict[str, Any] = {"scales": ("block", "block")}
CASES = [(Product(m, n, k, layout, a, dtype_b=b, **words), config)
         for a, b in (("e4m3", "e5m2"), ("e5m2", "e4m3"))
         for m, n, k, layout, config, words in (
             (70, 88, 200, "nt", "gemm:bm=128,bn=32,stages=3", EVERYTHING),
             (40, 136, 272, "nt", "gemm:bm=64,bn=64,stages=3,share=pingpong", BLOCKS),
             (30, 136, 144, "nt", "gemm:bm=128,bn=32,stages=3,swap=true", {}),
             (66, 40, 144, "tn", "gemm:bm=128,bn=32,stages=3", {"fast_accum": True}),
             (17, 100, 300, "nt", "narrow:rows=48,bn=24,split=2", EVERYTHING),
             (17, 200, 300, "nt", "narrow:rows=64,bn=24", BLOCKS),
             (9, 40, 100, "tt", None, {"out": "f32"}))]


def name(value: Any) -> str:
    return f"{value.dtype}-{value.dtype_b}" if isinstance(value, Product) else str(value)


@pytest.mark.parametrize(("product", "config"), CASES, ids=name)
def test_two_formats(product: Product, config: str | None) -> None:
    emulated.get("h100").use()
    product.run(config=config)


@pytest.mark.gpu
@pytest.mark.parametrize(("product", "config"), CASES, ids=name)
def test_two_formats_on_a_gpu(product: Product, config: str | None) -> None:
    import cupy

    if cuda.get(0).properties.capability != (9, 0):
        pytest.skip("needs a Hopper GPU")
    product.run_gpu(cupy, config=config)


def test_bytes_of_two_formats() -> None:
    emulated.get("h100").use()
    p = Product(33, 40, 136, dtype="e5m2", dtype_b="e4m3")
    a, b = p.a.view(np.uint8), p.b.view(np.uint8)
    p.check(gpukit.matmul(a, b, dtype_a="e5m2", dtype_b="e4m3"))
    p.check(gpukit.matmul(p.a, b, dtype_b="e4m3"))


def test_other_types_are_not_mixed() -> None:
    p = Product(8, 8, 8, dtype="e5m2")
    with pytest.raises(ArgumentError, match="b has dtype float16, a has e5m2; accepted: equal"):
        gpukit.matmul(p.a, np.ones((8, 8), np.float16))
