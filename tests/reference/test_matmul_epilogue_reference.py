"""The oracle of matmul's epilogue and of its narrow types, and bounds that mistakes do not meet."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from scipy import special

from gpukit.dtypes import BF16, F32, DType
from gpukit.reference.matmul import ACTIVATIONS, Epilogue, bound, oracle
from gpukit.reference.tolerance import scaled_error

M, N, K = 24, 32, 160


def normal(shape: tuple[int, ...], seed: int, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


A, B = normal((M, K), 1, ml_dtypes.bfloat16), normal((K, N), 2, ml_dtypes.bfloat16)
FULL = Epilogue(alpha=0.5, scale_a=np.abs(normal((M, 1), 3)) + 0.5,
                scale_b=np.abs(normal((N,), 4)) + 0.5, bias=normal((N,), 5),
                residual=normal((M, N), 6), activation="gelu")


def in_f32(epilogue: Epilogue, activation: str | None) -> np.ndarray:
    """The epilogue as a kernel computes it, every step rounded to f32."""
    f32 = np.float32
    sums = (A.astype(f32) @ B.astype(f32)).astype(f32)
    factor = f32(epilogue.alpha) * np.asarray(epilogue.scale_a, f32) * np.asarray(
        epilogue.scale_b, f32)
    x = (factor * sums + np.asarray(epilogue.bias, f32)).astype(f32)
    y = ACTIVATIONS[activation](x.astype(np.float64)).astype(f32)
    return (y + np.asarray(epilogue.residual, f32)).astype(f32)


def error(got: np.ndarray, epilogue: Epilogue, out: DType = F32) -> float:
    return scaled_error(got.astype(out.numpy).astype(np.float64), oracle(A, B, epilogue),
                        bound(A, B, out, epilogue=epilogue))


@pytest.mark.parametrize("activation", list(ACTIVATIONS))
@pytest.mark.parametrize("out", [F32, BF16], ids=lambda d: d.name)
def test_f32_arithmetic_is_within_bounds(activation: str | None, out: DType) -> None:
    epilogue = replace(FULL, activation=activation)
    assert error(in_f32(epilogue, activation), epilogue, out) <= 1
    assert error(in_f32(Epilogue(activation=activation), activation),
                 Epilogue(activation=activation), out) <= 1


@pytest.mark.parametrize("mistake", [
    {"bias": 0.0}, {"residual": 0.0}, {"alpha": 1.0}, {"scale_a": 1.0}, {"scale_b": 1.0},
    {"bias": np.roll(FULL.bias, 1)}, {"residual": np.roll(FULL.residual, 1, 0)},
    {"scale_a": np.roll(FULL.scale_a, 1)}], ids=lambda m: next(iter(m)))
@pytest.mark.parametrize("out", [F32, BF16], ids=lambda d: d.name)
def test_a_term_left_out_or_misplaced_is_out_of_bounds(mistake: dict[str, Any],
                                                       out: DType) -> None:
    assert error(in_f32(replace(FULL, **mistake), FULL.activation), FULL, out) > 1


@pytest.mark.parametrize(("asked", "done"), [
    ("gelu", "gelu_tanh"), ("gelu_tanh", "gelu"), ("silu", "gelu"), ("relu", None), (None, "relu")])
def test_another_activation_is_out_of_bounds(asked: str | None, done: str | None) -> None:
    epilogue = replace(FULL, activation=asked)
    assert error(in_f32(epilogue, done), epilogue) > 1


def test_activations() -> None:
    x = np.linspace(-6, 6, 101)
    want = {"relu": np.maximum(x, 0), "gelu": x * special.ndtr(x), "silu": x * special.expit(x),
            "gelu_tanh": 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))}
    for name, values in want.items():
        np.testing.assert_allclose(ACTIVATIONS[name](x), values, atol=1e-14)
    assert ACTIVATIONS["gelu"](np.zeros((0, 3))).shape == (0, 3)


# Narrow types


def test_ignoring_bits_as_tf32_is_within_its_bounds_alone() -> None:
    a, b = normal((M, K), 7), normal((K, N), 8)

    def cut(x: np.ndarray, bits: int) -> np.ndarray:
        return (x.view(np.uint32) >> bits << bits).view(np.float32)

    for bits, multiply, inside in ((13, "tf32", True), (13, "exact", False), (17, "tf32", False)):
        got = oracle(cut(a, bits), cut(b, bits))
        fits = scaled_error(got, oracle(a, b), bound(a, b, F32, multiply=multiply)) <= 1
        assert fits == inside


def short_sums(a: np.ndarray, b: np.ndarray, promote: int) -> np.ndarray:
    """Sums of 32 products at a time, every term cut 13 bits below the largest, as measured on
    Hopper; in f64 after every `promote` of K."""
    total, part = np.zeros((a.shape[0], b.shape[1])), np.zeros((a.shape[0], b.shape[1]))
    for k in range(0, a.shape[1], 32):
        products = a[:, k:k + 32, None] * b[None, k:k + 32]
        terms = np.concatenate([part[:, None], products], 1)
        unit = np.exp2(np.floor(np.log2(np.abs(terms).max(1, keepdims=True))) - 13)
        part = (np.trunc(terms / unit) * unit).sum(1)
        if (k + 32) % promote == 0:
            total, part = total + part, np.zeros_like(part)
    return total + part


@pytest.mark.parametrize("k", [32, 128, 1024, 4096])
def test_sums_of_8_bit_products_are_within_bounds(k: int) -> None:
    a, b = (normal(s, i, ml_dtypes.float8_e4m3fn).astype(np.float64)
            for i, s in ((9, (8, k)), (10, (k, 8))))
    want = oracle(a, b)
    for promote, multiply in ((128, "fp8"), (1 << 30, "fp8_fast")):
        got = short_sums(a, b, promote)
        assert scaled_error(got, want, bound(a, b, F32, multiply=multiply)) <= 1
    if k > 1024:  # with f32 sums, a 128-block of K is not missing
        lost = short_sums(a[:, 128:], b[128:], 128)
        assert scaled_error(lost, want, bound(a, b, F32, multiply="fp8")) > 1
    assert scaled_error(-want, want, bound(a, b, F32, multiply="fp8_fast")) > 1
