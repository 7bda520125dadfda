// Rounding to e4m3: a sign, four bits of exponent, three of mantissa, at most 448.
//
// Needs -arch=sm_89 or later.
#pragma once

#include "common/types.cuh"

// Four numbers as bytes, the first one lowest; what is beyond 448 becomes 448.
__device__ __forceinline__ u32 pack_e4m3(f32 x0, f32 x1, f32 x2, f32 x3) {
    u32 packed;
    asm("{ .reg .b16 low, high;\n"
        "cvt.rn.satfinite.e4m3x2.f32 low, %2, %1;\n"
        "cvt.rn.satfinite.e4m3x2.f32 high, %4, %3;\n"
        "mov.b32 %0, {low, high}; }"
        : "=r"(packed) : "f"(x0), "f"(x1), "f"(x2), "f"(x3));
    return packed;
}
