// Which keys a query sees: those of an interval, [first, end).
//
// Query i of Sq stands at p = i + Sk - Sq among Sk keys (or at p = i, top-left). It sees keys j with
// p - left <= j <= p + right that are in its chunk, if there are chunks. All named masks are such
// intervals; a number too large to matter switches a side off.
#pragma once

#include "common/types.cuh"

namespace attention {

// What the kernel can leave out: nothing, what hides keys to the left of an interval, all but the end
// of the keys.
enum class Mask { full, causal, window };

struct Interval {
    i32 first, end;
};

template <Mask MASK> struct Visible {
    i32 keys;         // Sk
    i32 shift;        // p - i
    i32 left, right;  // unsigned distances below 2^30
    i32 chunk;        // 0: none

    __device__ __forceinline__ Interval of(i32 query) const {
        const i32 p = query + shift;
        Interval seen{0, keys};
        if constexpr (MASK != Mask::full) seen.end = max(min(keys, p + right + 1), 0);
        if constexpr (MASK == Mask::window) {
            seen.first = max(p - left, 0);
            if (chunk > 0 && p > 0) seen.first = max(seen.first, p - p % chunk);
        }
        return seen;
    }
};

// Hides keys that end a row's interval or follow in a fragment of scores whose first column is key
// `key`; each thread has two rows.
template <int REGS>
__device__ __forceinline__ void hide_after(f32 (&s)[REGS], const Interval (&seen)[2], i32 key) {
    key += threadIdx.x % 4 * 2;
    const i32 end[2] = {seen[0].end - key, seen[1].end - key};
#pragma unroll
    for (int i = 0; i < REGS; i++)
        if (i / 4 * 8 + i % 2 >= end[i / 2 % 2]) s[i] = __int_as_float(0xff800000);
}

// Those before a row's interval.
template <int REGS>
__device__ __forceinline__ void hide_before(f32 (&s)[REGS], const Interval (&seen)[2], i32 key) {
    key += threadIdx.x % 4 * 2;
    const i32 first[2] = {seen[0].first - key, seen[1].first - key};
#pragma unroll
    for (int i = 0; i < REGS; i++)
        if (i / 4 * 8 + i % 2 < first[i / 2 % 2]) s[i] = __int_as_float(0xff800000);
}

// Both.
template <Mask MASK, int REGS>
__device__ __forceinline__ void hide(f32 (&s)[REGS], const Interval (&seen)[2], i32 key) {
    hide_after(s, seen, key);
    if constexpr (MASK == Mask::window) hide_before(s, seen, key);
}

}  // namespace attention
