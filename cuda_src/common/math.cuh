// Elementary functions in two grades.
//
// `full`: CUDA's f32 library functions, for f32 data.
// `narrow`: for data that is rounded to f16 or bf16 afterwards. They stay within 2^-11 relative of
// the true value, which is below half an ulp of f16, and cost a handful of instructions: at 4.3 TB/s
// an H200 has about 25 issue slots per 2-byte element, fewer than CUDA's erff or tanhf take.
//
// All flush f32 subnormals to zero, as every kernel compiled through CuPy does (-ftz=true).
#pragma once

#include "common/types.cuh"

namespace ptx {

__device__ __forceinline__ f32 ex2(f32 x) {
    f32 y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

__device__ __forceinline__ f32 lg2(f32 x) {
    f32 y;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

__device__ __forceinline__ f32 sqrt(f32 x) {
    f32 y;
    asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

__device__ __forceinline__ f32 tanh(f32 x) {
    f32 y;
    asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// One instruction; as a product of 64 bits it becomes two where a factor is a constant.
__device__ __forceinline__ u64 product(u32 a, u32 b) {
    u64 product;
    asm("mul.wide.u32 %0, %1, %2;" : "=l"(product) : "r"(a), "r"(b));
    return product;
}

// NaN if either is, where fmaxf drops it.
__device__ __forceinline__ f32 max_or_nan(f32 a, f32 b) {
    f32 y;
    asm("max.ftz.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
    return y;
}

}  // namespace ptx

namespace full {

// Correctly rounded without CUDA's out-of-line slow path, whose branch per element cost 5 % of the
// bandwidth: one Newton step on rsqrt whose residual is exact in an fma. Arguments below 2^-100 are
// scaled up first, else that residual would be flushed to zero.
__device__ __forceinline__ f32 sqrt(f32 x) {
    const bool tiny = x < 7.88860905e-31f;
    const f32 v = tiny ? x * 18446744073709551616.0f : x;
    const f32 y = rsqrtf(v);
    const f32 s = v * y;
    const f32 r = fmaf(fmaf(-s, s, v), 0.5f * y, s);
    const f32 root = tiny ? r * 2.32830644e-10f : r;
    return v == 0.0f || v == __int_as_float(0x7f800000) ? v : root;
}

__device__ __forceinline__ f32 rsqrt(f32 x) { return rsqrtf(x); }
__device__ __forceinline__ f32 exp(f32 x) { return expf(x); }
__device__ __forceinline__ f32 log(f32 x) { return logf(x); }
__device__ __forceinline__ f32 sin(f32 x) { return sinf(x); }
__device__ __forceinline__ f32 tanh(f32 x) { return tanhf(x); }
__device__ __forceinline__ f32 erf(f32 x) { return erff(x); }

}  // namespace full

namespace narrow {

__device__ __forceinline__ f32 sqrt(f32 x) { return ptx::sqrt(x); }
__device__ __forceinline__ f32 rsqrt(f32 x) { return rsqrtf(x); }
__device__ __forceinline__ f32 exp(f32 x) { return ptx::ex2(x * 1.44269504f); }
__device__ __forceinline__ f32 log(f32 x) { return ptx::lg2(x) * 0.693147181f; }
__device__ __forceinline__ f32 tanh(f32 x) { return ptx::tanh(x); }

// erf(x) = tanh(x P(x^2)): no cancellation near zero, one special-function instruction.
// P is a minimax fit of atanh(erf(x)) / x on (0, 4.2]; relative error of the result 2^-14 before
// tanh's own 2^-11. Beyond 4.2 erf is 1 in either type, so P's argument is clamped, not x: NaN and
// infinity pass through the product.
__device__ __forceinline__ f32 erf(f32 x) {
    const f32 t = fminf(x * x, 17.64f);
    const f32 p = fmaf(t, fmaf(t, -0.00161644f, 0.10364243f), 1.1283137f);
    return ptx::tanh(x * p);
}

// sin(x) = (-1)^k sin(r), r = x - k pi in [-pi/2, pi/2]: two-step Cody-Waite reduction, then an odd
// minimax polynomial of degree 5 (2^-12.7 relative). Valid below SIN_LIMIT, where k still fits the
// reduction; beyond, sin_wild takes over. It is out of line so that its registers and stack (the
// reduction by 2/pi in 192 bits) weigh on nobody else.
constexpr f32 SIN_LIMIT = 32768.0f;

__device__ __noinline__ f32 sin_wild(f32 x) { return sinf(x); }

__device__ __forceinline__ f32 sin(f32 x) {
    const f32 magic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer in the low bits
    const f32 shifted = fmaf(x, 0.318309886f, magic);
    const f32 k = shifted - magic;
    f32 r = fmaf(k, -3.14159250f, x);  // pi rounded down, so that both steps keep the sign of -0
    r = fmaf(k, -1.50995799e-7f, r);
    const f32 t = r * r;
    const f32 s = r * fmaf(t, fmaf(t, 0.0076479f, -0.16611504f), 1.0f);
    return __int_as_float(__float_as_int(s) ^ (__float_as_int(shifted) << 31));
}

}  // namespace narrow
