// What is added to scores before the softmax, for a thread's two rows.
#pragma once

#include "attention/softmax.cuh"
#include "common/types.cuh"

namespace attention {

// Bits of what a kernel is compiled with. Without any, scores stay raw products and the softmax folds
// the scale into its exponent; with some, they are multiplied out.
constexpr u32 SOFTCAP = 1, ALIBI = 2, ADDITIVE = 4, RELATIVE = 8;

// The terms of a whole call, as the kernel gets them.
template <class T> struct Terms {
    f32 scale, softcap;
    const f32* slopes;  // ALiBi's, by head
    i64 slopes_batch;
    const T* bias;  // [batch, heads, queries, keys] by these steps
    i64 bias_batch, bias_head, bias_query, bias_key;
    const T* relative;  // [batch, queries, heads, extent]
    i64 relative_batch, relative_query, relative_head;
    i32 extent;
};

// One row's.
template <class T, u32 WHICH> struct RowTerms {
    const T *bias = nullptr, *relative = nullptr;
    f32 slope = 0.0f;
    i32 p = 0;  // where the query stands among the keys

    // `query` counts within the sequence, `row` within the arrays; both exist.
    __device__ __forceinline__ void start(const Terms<T>& terms, i32 batch, i32 head, i32 query,
                                          i32 row_batch, i32 row, i32 shift) {
        p = query + shift;
        if constexpr (WHICH & ALIBI) slope = terms.slopes[batch * terms.slopes_batch + head];
        if constexpr (WHICH & ADDITIVE)
            bias = terms.bias + batch * terms.bias_batch + head * terms.bias_head +
                   query * terms.bias_query;
        if constexpr (WHICH & RELATIVE)
            relative = terms.relative + row_batch * terms.relative_batch +
                       row * terms.relative_query + head * terms.relative_head;
    }

    __device__ __forceinline__ f32 add(f32 s, i32 key, i32 keys, const Terms<T>& terms) const {
        if constexpr (WHICH & ALIBI) s = fmaf(-slope, fabsf(f32(p - key)), s);
        if constexpr (WHICH & ADDITIVE)
            if (bias != nullptr && key < keys) s += to_f32(bias[key * terms.bias_key]);
        if constexpr (WHICH & RELATIVE) {
            const u32 distance = p - key;
            if (relative != nullptr && distance < u32(terms.extent)) s += to_f32(relative[distance]);
        }
        return s;
    }
};

// cap tanh(s / cap) by two special functions, accurate in absolute terms: that is what weights feel.
__device__ __forceinline__ f32 cap(f32 s, f32 limit, f32 factor) {
    return limit - __fdividef(2.0f * limit, ptx::ex2(s * factor) + 1.0f);
}

// On a fragment of scores whose first column is key `key`.
template <class T, u32 WHICH, int REGS>
__device__ __forceinline__ void add_terms(f32 (&s)[REGS], const RowTerms<T, WHICH> (&rows)[2], i32 key,
                                          i32 keys, const Terms<T>& terms) {
    key += threadIdx.x % 4 * 2;
    const f32 factor = WHICH & SOFTCAP ? 2.0f * LOG2E / terms.softcap : 0.0f;
#pragma unroll
    for (int i = 0; i < REGS; i++) {
        s[i] *= terms.scale;
        if constexpr (WHICH & SOFTCAP) s[i] = cap(s[i], terms.softcap, factor);
        s[i] = rows[i / 2 % 2].add(s[i], key + i / 4 * 8 + i % 2, keys, terms);
    }
}

}  // namespace attention
