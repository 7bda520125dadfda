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

// The same of numbers that are 2^-8 times as large, none above 1.75, none negative. f16 has the same
// exponents then, down to the smallest numbers, and seven bits more: halves are rounded by adding to
// their bits.
__device__ __forceinline__ u32 pack_e4m3_lowered(f32 x0, f32 x1, f32 x2, f32 x3) {
    const __half2 low = __floats2half2_rn(x0, x1), high = __floats2half2_rn(x2, x3);
    const u32 a = reinterpret_cast<const u32&>(low) * 2 + 0x00800080;
    const u32 b = reinterpret_cast<const u32&>(high) * 2 + 0x00800080;
    return __byte_perm(a, b, 0x7531);
}
