// How scores become weights: scale, soft cap, ALiBi, and which keys a query sees.
//
// Query t of Q stands at position p = length - Q + t and sees the keys [p - left, p + right] of its
// chunk, p / chunk: one interval for every mask that has a name (causal: right = 0; a sliding
// window of W keys: left = W - 1). FAR stands for "no limit".
//
// A term of the caller's own may be added: bias by key, or relative logits by distance p - j.
#pragma once

#include "common/math.cuh"
#include "common/types.cuh"

namespace decode {

constexpr f32 LOG2_E = 1.44269504f, LN_2 = 0.693147181f;

enum class Extra { none, bias, relative };

// Keys [first, last).
struct Span {
    i32 first, last;

    __device__ __forceinline__ bool has(i32 key) const { return key >= first && key < last; }
};

struct Rules {
    f32 scale;          // of q.k, in units of log2: weights are powers of two
    f32 cap_in, cap;    // scores are cap tanh(cap_in q.k), in units of log2; 0: no cap
    i32 left, right, chunk;
    const f32* slopes;  // of ALiBi by query head, or null
    const f32* sinks;   // by query head, or null
    const void* extra;  // of the operands' type
    i32 extent;         // of relative logits: distances that have one

    __device__ __forceinline__ Span seen(i32 position, i32 length) const {
        i32 start = 0;  // without a division where one chunk holds all
        if (position >= chunk) start = position / chunk * chunk;
        return {max(max(0, position - left), start), min(length, position + right + 1)};
    }
    __device__ __forceinline__ f32 score(f32 product) const {
        return cap == 0.0f ? scale * product : cap * ptx::tanh(cap_in * product);
    }
};

}  // namespace decode
