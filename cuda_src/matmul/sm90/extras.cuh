// What the library's matmuls do to a finished sum besides rounding it:
//
//     C[m, n] = act(alpha scale_m[m] scale_n[n] sum + bias) + residual[m, n]
//
// Every array may be null; strides are in elements, so that a kernel that computes C transposed only
// swaps them, and a scale of one element has step 0. All of it is compiled away unless a call asks
// for it. What belongs to a row is fetched once for all its columns.
#pragma once

#include "matmul/epilogue.cuh"

// Which of them a kernel is compiled for. A factor for all of C costs nothing and is part of alpha:
// `uniform`.
enum class Terms { none, scales, all };

// alpha times factors of whole matrices.
__device__ __forceinline__ f32 uniform(f32 alpha, const f32* scale_m, const f32* scale_n) {
    return alpha * (scale_m ? *scale_m : 1.0f) * (scale_n ? *scale_n : 1.0f);
}

template <class OUT> struct RowTerms {
    f32 scale, bias;
    const OUT* residual;
};
struct ColumnTerms {
    f32 scale, bias;
};

template <class OUT> struct Extras {
    const OUT* bias;
    i64 bias_m, bias_n;  // one of them 0: the bias runs along the other
    const OUT* residual;
    i64 residual_m, residual_n, residual_batch;
    const f32 *scale_m, *scale_n;
    i32 scale_m_step, scale_n_step;

    __device__ __forceinline__ Extras scales() const {
        return {nullptr, 0, 0, nullptr, 0, 0, 0, scale_m, scale_n, scale_m_step, scale_n_step};
    }
    __device__ __forceinline__ RowTerms<OUT> row(i64 m, i64 z, f32 alpha) const {
        return {scale_m ? alpha * scale_m[m * scale_m_step] : alpha,
                bias && bias_m ? to_f32(bias[m * bias_m]) : 0.0f,
                residual ? residual + z * residual_batch + m * residual_m : nullptr};
    }
    __device__ __forceinline__ ColumnTerms column(i64 n) const {
        return {scale_n ? scale_n[n * scale_n_step] : 1.0f,
                bias && bias_n ? to_f32(bias[n * bias_n]) : 0.0f};
    }
    // Outside C there is no residual to read: it may be C itself, which others write there.
    template <Act ACT>
    __device__ __forceinline__ f32 apply(f32 sum, const RowTerms<OUT>& r, ColumnTerms c, i64 n,
                                         bool inside = true) const {
        const f32 x = act::apply<ACT>(fmaf(r.scale * c.scale, sum, r.bias + c.bias));
        return r.residual && inside ? x + to_f32(r.residual[n * residual_n]) : x;
    }
};
