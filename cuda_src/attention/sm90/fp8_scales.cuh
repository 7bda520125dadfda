// What 8-bit operands are to be multiplied with, per head of a sequence.
#pragma once

#include "common/types.cuh"

namespace attention {

// Null: one. Steps in elements, 0 where all sequences or heads have the same.
struct Factors {
    const f32* of;
    i32 batch, head;

    __device__ __forceinline__ f32 at(i32 b, i32 h) const {
        return of == nullptr ? 1.0f : of[i64(b) * batch + i64(h) * head];
    }
};

struct Scales {
    static constexpr f32 LEAST = 1e-30f;

    f32 scale, value;  // of all products, and of all sums
    i32 q_share;       // heads of q per factor
    Factors q, k, v;

    // Not zero, as of a head that holds nothing else: hidden scores are infinite.
    __device__ __forceinline__ f32 scores(i32 batch, i32 head, i32 kv_head) const {
        const f32 all = scale * q.at(batch, head / q_share) * k.at(batch, kv_head);
        return all < LEAST ? LEAST : all;
    }
    __device__ __forceinline__ f32 values(i32 batch, i32 kv_head) const {
        return value * v.at(batch, kv_head);
    }
};

}  // namespace attention
