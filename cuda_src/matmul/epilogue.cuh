// What happens to a finished f32 sum on its way to C:
//
//     C[m, n] = act(alpha sum + bias[n]) + residual[m, n]
//
// bias and residual have C's element type; either pointer may be null. The activation is a template
// argument, so an epilogue without one costs a multiply and two tests of constants.
#pragma once

#include "common/math.cuh"

enum class Act { none, relu, gelu, gelu_tanh, silu };

namespace act {

// x / (1 + e^-y) without cancellation: relative error about 1e-6, up to 1e-5 deep in the tail.
__device__ __forceinline__ f32 gated(f32 x, f32 y) {
    return __fdividef(x, 1.0f + ptx::ex2(y * -1.44269504f));
}

template <Act ACT> __device__ __forceinline__ f32 apply(f32 x) {
    if constexpr (ACT == Act::relu) return x < 0.0f ? 0.0f : x;  // NaN stays NaN
    if constexpr (ACT == Act::silu) return gated(x, x);
    // 0.5 (1 + tanh(u)) = 1 / (1 + e^-2u)
    if constexpr (ACT == Act::gelu_tanh)
        return gated(x, x * fmaf(0.0713548162f * x, x, 1.59576912f));
    if constexpr (ACT == Act::gelu) return 0.5f * x * (1.0f + full::erf(x * 0.707106781f));
    return x;
}

}  // namespace act

template <class OUT, Act ACT> struct Epilogue {
    const OUT* bias;      // [N] or null
    const OUT* residual;  // [M, N] or null
    i64 residual_row;     // elements from one row of residual to the next
    f32 alpha;

    __device__ __forceinline__ f32 operator()(f32 sum, i64 m, i64 n) const {
        const f32 x = act::apply<ACT>(fmaf(alpha, sum, bias ? to_f32(bias[n]) : 0.0f));
        return residual ? x + to_f32(residual[m * residual_row + n]) : x;
    }
};
