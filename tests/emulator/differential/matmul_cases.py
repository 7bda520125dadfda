"""Matmul's kernels on small integers: every sum is exact, in whatever order it is made."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np

import gpukit

from .model import ApiCase, Array

DTYPES: dict[str, Any] = {"bf16": ml_dtypes.bfloat16, "f16": np.float16, "f32": np.float32,
                          "e4m3": ml_dtypes.float8_e4m3fn}
RUNGS = ("1", "2", "3", "4", "5", "6", "7", "8", "sm80.a1", "sm80.a2", "sm80.a3")
# Every way to share work, clusters along either side and both, split K, swapped operands.
CONFIGS = (
    "gemm:bm=128,bn=256,cm=2", "gemm:bm=128,bn=128,cn=2", "gemm:bm=128,bn=64,split=2",
    "gemm:bm=256,bn=128", "gemm:bm=128,bn=176,cm=2,share=pingpong",
    "gemm:bm=64,bn=32,cm=2,cn=2,share=pingpong", "gemm:bm=64,bn=256,share=columns",
    "gemm:bm=64,bn=64,share=pingpong,swap=true", "gemm:bm=128,bn=32,cn=2,swap=true",
    "narrow:rows=48,bn=64,split=2", "narrow:rows=112,bn=128",
)  # fmt: skip


def cases() -> Iterator[ApiCase]:
    """The ladders, the library's configurations, its layouts, types, epilogues and fallbacks."""
    for rung in RUNGS:
        yield _case(f"rung {rung}", (150, 136, 200), kernel=rung)
    for config in CONFIGS:
        yield _case(config, (150, 136, 200), config=config)
    for layout in ("nn", "tn", "tt"):
        yield _case(f"layout {layout}", (136, 264, 136), layout=layout)
    for m in (1, 2, 16, 64):
        yield _case(f"{m} rows", (m, 200, 264))
    yield _case("odd sizes", (37, 51, 75))
    yield _case("three matrices", (40, 72, 136), batch=3)
    yield _case("f16 to f32", (130, 72, 136), "f16", out_dtype=np.float32)
    yield _case("tf32", (130, 72, 100), "f32", tf32=True)
    for fast in (False, True):
        yield _case(f"e4m3, fast_accum={fast}", (130, 80, 272), "e4m3", fast_accum=fast)
    yield _epilogue()


def _integers(dtype: str, seed: str, shape: tuple[int, ...]) -> Array:
    """-4 to 4."""
    rng = np.random.default_rng(zlib.crc32(seed.encode()))
    return rng.integers(-4, 5, shape).astype(DTYPES[dtype])


def _pair(name: str, shape: tuple[int, int, int], dtype: str, layout: str,
          batch: int) -> tuple[Array, Array]:
    m, n, k = shape
    lead = (batch,) if batch else ()
    a = (k, m) if layout[0] == "t" else (m, k)
    b = (n, k) if layout[1] == "t" else (k, n)
    return (_integers(dtype, f"{name} a", (*lead, *a)), _integers(dtype, f"{name} b", (*lead, *b)))


def _operands(a: Any, b: Any, layout: str) -> tuple[Any, Any]:
    return (a.swapaxes(-1, -2) if layout[0] == "t" else a,
            b.swapaxes(-1, -2) if layout[1] == "t" else b)


def _case(name: str, shape: tuple[int, int, int], dtype: str = "bf16", layout: str = "nt",
          batch: int = 0, **how: Any) -> ApiCase:
    pair = _pair(name, shape, dtype, layout, batch)
    if dtype == "e4m3":  # CuPy has no such dtype
        pair = tuple(x.view(np.uint8) for x in pair)
        how |= {"dtype_a": dtype, "dtype_b": dtype}
    return ApiCase(f"matmul, {name}",
                   lambda a, b: [gpukit.matmul(*_operands(a, b, layout), **how)], pair)


def _epilogue() -> ApiCase:
    a, b = _pair("epilogue", (70, 72, 136), "bf16", "nt", 0)
    bias, residual = (_integers("bf16", f"epilogue {name}", shape)
                      for name, shape in (("bias", (72,)), ("residual", (70, 72))))

    def call(a: Any, b: Any, bias: Any, residual: Any) -> list[Any]:
        return [gpukit.matmul(a, b.T, bias=bias, residual=residual, activation="relu", alpha=0.5)]

    return ApiCase("matmul, epilogue", call, (a, b, bias, residual))
