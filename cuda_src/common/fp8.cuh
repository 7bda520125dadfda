// 8-bit floats: e4m3 has 4 bits of exponent and 3 of mantissa, no infinity, 448 at most.
#pragma once

#include "common/types.cuh"

struct e4m3 {
    u8 bits;
};

namespace fp8 {

// Two e4m3 as two f16, exactly.
__device__ __forceinline__ u32 widen(u32 pair) {
    u32 wide;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(wide) : "h"(u16(pair)));
    return wide;
}

}  // namespace fp8

__device__ __forceinline__ f32 to_f32(e4m3 x) {
    const u32 wide = fp8::widen(x.bits);
    return __half2float(__ushort_as_half(u16(wide)));
}
