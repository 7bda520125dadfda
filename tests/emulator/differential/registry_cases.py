"""The library's own kernels through its public functions, compiled where they run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np

import gpukit

from .model import ApiCase, Array, Comparison, Exact, Ulps
from .values import columns, random_of

DTYPES: dict[str, Any] = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
SHORT = {"f32": "f4", "f16": "f2", "bf16": "bf16"}
UNARY = ("copy", "sqrt", "rsqrt", "log", "sin", "tanh", "exp", "erf")
# Correctly rounded, or made of multiplications and additions only: no approximate instruction
# decides the last bit.
EXACT = {"copy", "add_const", "scale", "add", "axpy"}
EXACT_F32 = EXACT | {"sqrt", "sin", "log"}
COUNT = 515  # not a multiple of any vector width


def cases() -> Iterator[ApiCase]:
    """Every elementwise op and the first matmul kernel, in every type."""
    for dtype in DTYPES:
        yield from _elementwise(dtype)
        yield from _matmul(dtype)


def _bound(op: str, dtype: str) -> Comparison:
    if op in (EXACT_F32 if dtype == "f32" else EXACT):
        return Exact()
    return Ulps(SHORT[dtype], 4 if dtype == "f32" else 2, 2.0**-20 if dtype == "f16" else 0)


def _elementwise(dtype: str) -> Iterator[ApiCase]:
    (x,) = columns((dtype,), f"registry {dtype}", COUNT)
    pair = columns((dtype, dtype), f"registry pairs {dtype}", COUNT)
    x, u, v = (values.view(DTYPES[dtype]) for values in (x, *pair))
    for op in UNARY:
        yield _case(op, dtype, lambda a, op=op: [getattr(gpukit, op)(a)], x)
    for op in ("add_const", "scale"):
        yield _case(op, dtype, lambda a, op=op: [getattr(gpukit, op)(a, 1.7)], x)
    yield _case("add", dtype, lambda a, b: [gpukit.add(a, b)], u, v)
    yield _case("axpy", dtype, lambda a, b: [gpukit.axpy(-2.3, a, b)], u, v)


def _case(op: str, dtype: str, call: Any, *inputs: Array) -> ApiCase:
    return ApiCase(f"{op} {dtype}", call, inputs, _bound(op, dtype))


def _matmul(dtype: str) -> Iterator[ApiCase]:
    """f32 accumulation by fused steps in the order of K: exact."""
    for m, n, k in ((33, 17, 40), (5, 64, 1)):
        a, b = (
            np.nan_to_num(np.clip(_moderate(dtype, f"{name}{m}", rows * cols), -100, 100)).reshape(
                rows, cols
            )
            for name, rows, cols in (("a", m, k), ("b", k, n))
        )
        pair = a.astype(DTYPES[dtype]), b.astype(DTYPES[dtype])
        yield ApiCase(f"matmul {m}x{n}x{k} {dtype}", _matmul_k1, pair)
        if dtype != "f32":
            yield ApiCase(f"matmul {m}x{n}x{k} {dtype} to f32", _matmul_to_f32, pair)


def _matmul_k1(a: Any, b: Any) -> list[Any]:
    return [gpukit.matmul(a, b, kernel=1)]


def _matmul_to_f32(a: Any, b: Any) -> list[Any]:
    return [gpukit.matmul(a, b, kernel=1, out_dtype=np.float32)]


def _moderate(dtype: str, seed: str, count: int) -> Array:
    return random_of(dtype, seed, count).view(DTYPES[dtype]).astype(np.float32)
