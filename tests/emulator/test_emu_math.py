"""The compiler's math library: long instruction sequences whose results are known."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special

from gpukit import emulator

N = 512
# Function, reference, argument range, allowed error in ulp (the CUDA guide's bound, rounded up).
SINGLE = {
    "expf(x)": (np.exp, (-80, 80), 2),
    "logf(x)": (np.log, (1e-30, 1e30), 1),
    "sinf(x)": (np.sin, (-1e6, 1e6), 2),
    "cosf(x)": (np.cos, (-300, 300), 2),
    "tanf(x)": (np.tan, (-3, 3), 4),
    "tanhf(x)": (np.tanh, (-9, 9), 2),
    "erff(x)": (special.erf, (-4, 4), 2),
    "sqrtf(x)": (np.sqrt, (0, 1e30), 0.5),
    "rsqrtf(x)": (lambda x: 1 / np.sqrt(x), (1e-3, 1e3), 2),
    "cbrtf(x)": (np.cbrt, (-1e6, 1e6), 1),
    "log1pf(x)": (np.log1p, (-0.9, 10), 1),
    "expm1f(x)": (np.expm1, (-5, 5), 1.5),
    "atanf(x)": (np.arctan, (-20, 20), 2),
    "asinf(x)": (np.arcsin, (-1, 1), 2),
    "powf(x, 1.7f)": (lambda x: x ** np.float64(np.float32(1.7)), (0.01, 100), 4),
    "lgammaf(x)": (special.gammaln, (3, 50), 6),
    "fmodf(x, 0.7f)": (lambda x: np.fmod(x, np.float64(np.float32(0.7))), (-50, 50), 0),
    "x / 3.f": (lambda x: x / 3, (-10, 10), 0.5),
    "(float)(int)x": (np.trunc, (-1e6, 1e6), 0),
    "roundf(x)": (lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x), (-9, 9), 0),
}
DOUBLE = {
    "exp(x)": (np.exp, (-300, 300), 1),
    "log(x)": (np.log, (1e-300, 1e300), 1),
    "sin(x)": (np.sin, (-1e6, 1e6), 2),
    "tanh(x)": (np.tanh, (-9, 9), 2),
    "erf(x)": (special.erf, (-4, 4), 3),
    "pow(x, 2.3)": (lambda x: x**2.3, (0.01, 100), 2),
    "x / 3.": (lambda x: x / 3, (-10, 10), 0.5),
    "rsqrt(x)": (lambda x: 1 / np.sqrt(x), (1e-3, 1e3), 1),
    "1 / x": (lambda x: 1 / x, (-9, 9), 0.5),
}


def inputs(low, high, dtype):
    """Spread over magnitudes where the range spans many."""
    rng = np.random.default_rng(7)
    if low > 0 and high / low > 1e4:
        return np.exp(rng.uniform(np.log(low), np.log(high), N)).astype(dtype)
    return rng.uniform(low, high, N).astype(dtype)


def check(expression, dtype, reference, limits, ulp, options=()):
    type_ = "float" if dtype == "f4" else "double"
    source = f"""extern "C" __global__ void k(const {type_}* in, {type_}* out) {{
      int i = blockIdx.x * blockDim.x + threadIdx.x; {type_} x = in[i]; out[i] = {expression}; }}"""
    x = inputs(*limits, dtype)
    got = np.empty_like(x)
    emulator.run(source, N // 128, 128, [x, emulator.Uninitialized(got)], options=options)
    want = reference(x.astype("f8"))
    error = np.abs(got.astype("f8") - want) / np.spacing(np.abs(want).astype(dtype)).astype("f8")
    slack = 0.01 if dtype == "f4" else 1.0  # the binary64 reference is itself rounded
    assert error.max() <= ulp + slack, (expression, x[error.argmax()], error.max())


@pytest.mark.parametrize("expression", SINGLE)
def test_single_precision(expression):
    check(expression, "f4", *SINGLE[expression])


@pytest.mark.parametrize("expression", DOUBLE)
def test_double_precision(expression):
    check(expression, "f8", *DOUBLE[expression])


@pytest.mark.parametrize("expression", ["expf(x)", "logf(x)", "sqrtf(x)", "x / 3.f", "tanhf(x)"])
def test_with_flushed_subnormals_and_fast_division(expression):
    reference, limits, ulp = SINGLE[expression]
    check(
        expression,
        "f4",
        reference,
        limits,
        ulp + 2,
        ("-ftz=true", "-prec-div=false", "-prec-sqrt=false"),
    )


@pytest.mark.parametrize("type_", ["__half", "__nv_bfloat16"])
def test_half_precision_headers(type_):
    source = f"""#include <cuda_fp16.h>
    #include <cuda_bf16.h>
    extern "C" __global__ void k(const float* in, float* out) {{ int i = threadIdx.x;
      {type_} x = {type_}(in[i]), y = hexp(x) * x + {type_}(0.5f);
      out[i] = float(hlog(y * y)) + float(hsqrt(x)) + float(htanh(x)) + float(__hmax(x, y)); }}"""
    x = np.linspace(0.5, 3, 128).astype("f4")
    got = np.zeros_like(x)
    emulator.run(source, 1, 128, [x, got])
    y = np.exp(x) * x + 0.5
    want = np.log(y * y) + np.sqrt(x) + np.tanh(x) + np.maximum(x, y)
    assert np.allclose(got, want, rtol=0.01 if type_ == "__half" else 0.05)


def test_eight_bit_headers():
    source = """#include <cuda_fp8.h>
    extern "C" __global__ void k(const float* in, float* out) { int i = threadIdx.x;
      __nv_fp8_e4m3 a(in[i]); __nv_fp8_e5m2 b(in[i]); out[i] = float(a); out[64 + i] = float(b);
      }"""
    import ml_dtypes

    x = np.linspace(-500, 500, 64).astype("f4")
    got = np.zeros(128, "f4")
    emulator.run(source, 1, 64, [x, got])
    clipped = np.clip(x, -448, 448).astype(ml_dtypes.float8_e4m3fn).astype("f4")
    assert (got[:64] == clipped).all()
    assert (got[64:] == x.astype(ml_dtypes.float8_e5m2).astype("f4")).all()
