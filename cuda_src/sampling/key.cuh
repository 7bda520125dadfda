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

// The least and the largest number that `clean` may return of keys from `low` on, and up to `high`, for
// comparisons that take subnormal numbers for zero, as `clean` does.
constexpr u32 BELOW_ZERO = 0x7f7fffffu, ZERO = 0x80000000u, ABOVE_ZERO = 0x80800000u;  // normal numbers
__device__ __forceinline__ f32 least(u32 low) {
    return low <= BELOW_ZERO || low >= ABOVE_ZERO ? value(low) : value(low <= ZERO ? ZERO : ABOVE_ZERO);
}
__device__ __forceinline__ f32 most(u32 high) {
    if (high >= of(LARGEST)) return INF;
    return high <= BELOW_ZERO || high >= ABOVE_ZERO ? value(high) : value(high < ZERO ? BELOW_ZERO : ZERO);
}

constexpr u32 NOTHING = 0x007fffffu;  // the key of -infinity

// Orders by value, then by the lower index.
__device__ __forceinline__ u64 with_index(f32 x, u32 index) {
    return u64(of(x)) << 32 | ~index;
}
__device__ __forceinline__ u32 index(u64 pair) { return ~u32(pair); }

}  // namespace key
