// f32 values as u32 keys of the same order, so that thresholds can be searched bit by bit.
//
// A NaN counts as -infinity, +infinity as the largest finite number and -0 as +0: equal values have
// equal keys, and differences from the maximum are never NaN.
#pragma once

#include "common/types.cuh"

constexpr f32 INF = __builtin_bit_cast(f32, 0x7f800000u), LARGEST = 3.402823466e38f;

namespace key {

__device__ __forceinline__ f32 clean(f32 x) {
    return fminf(fmaxf(x, -INF), LARGEST) + 0.0f;  // fmaxf drops a NaN
}

__device__ __forceinline__ u32 of(f32 x) {
    const u32 bits = __float_as_uint(x);
    return bits ^ (u32(i32(bits) >> 31) | 0x80000000u);
}

__device__ __forceinline__ f32 value(u32 key) {
    return __uint_as_float(key ^ (key >> 31 ? 0x80000000u : 0xffffffffu));
}

constexpr u32 NOTHING = 0x007fffffu;  // the key of -infinity

// Orders by value, then by the lower index.
__device__ __forceinline__ u64 with_index(f32 x, u32 index) {
    return u64(of(x)) << 32 | ~index;
}
__device__ __forceinline__ u32 index(u64 pair) { return ~u32(pair); }

}  // namespace key
