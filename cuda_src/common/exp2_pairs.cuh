// 2^x of two numbers at a time on the FMA pipe, for when the special-function unit has enough to do.
//
// Blackwell's f32x2 instructions do two f32 operations in one issue slot. x = k + f with k the nearest
// integer: adding 1.5 * 2^23 leaves k in the low bits of the sum. 2^f comes from a polynomial of degree 4,
// 2^k from adding k to its exponent:
//     2^f = 1 + f (a + f (b + f (c + f d))),   |f| <= 1/2
// minimax with the first term held at 1: relative error 2.9e-6 (2^-18.4). Half an ulp of f16 is 2^-12; a
// degree less would do for weights (2^-13.3), but not for the logarithm of their sum, which is f32. Below
// -127 the result is 0: there k + 127 = 0 and f = 0, and a first term of 1 leaves no bit set.
//
// Needs -arch=sm_100a.
#pragma once

#include "common/types.cuh"

namespace pairs {

using Pair = u64;  // two f32, the first in the low half

__device__ __forceinline__ Pair of(f32 low, f32 high) {
    Pair p;
    asm("mov.b64 %0, {%1, %2};" : "=l"(p) : "f"(low), "f"(high));
    return p;
}
__device__ __forceinline__ void split(Pair p, f32& low, f32& high) {
    asm("mov.b64 {%0, %1}, %2;" : "=f"(low), "=f"(high) : "l"(p));
}
__device__ __forceinline__ Pair fma(Pair a, Pair b, Pair c) {
    Pair d;
    asm("fma.rn.ftz.f32x2 %0, %1, %2, %3;" : "=l"(d) : "l"(a), "l"(b), "l"(c));
    return d;
}
__device__ __forceinline__ Pair add(Pair a, Pair b) {
    Pair d;
    asm("add.rn.ftz.f32x2 %0, %1, %2;" : "=l"(d) : "l"(a), "l"(b));
    return d;
}

// For x <= 127.
__device__ __forceinline__ void exp2(f32& a, f32& b) {
    const f32 magic = 12582912.0f;  // 1.5 * 2^23
    const Pair x = of(fmaxf(a, -127.0f), fmaxf(b, -127.0f));
    const Pair shifted = add(x, of(magic, magic));
    const Pair k = add(shifted, of(-magic, -magic));
    const Pair f = fma(k, of(-1.0f, -1.0f), x);
    constexpr f32 TERMS[4] = {0.05590668f, 0.24024117f, 0.69312418f, 1.0f};
    Pair p = of(0.00958219f, 0.00958219f);
#pragma unroll
    for (int i = 0; i < 4; i++) p = fma(p, f, of(TERMS[i], TERMS[i]));
    f32 s0, s1, p0, p1;
    split(shifted, s0, s1), split(p, p0, p1);
    a = __int_as_float(__float_as_int(p0) + (__float_as_int(s0) << 23));
    b = __int_as_float(__float_as_int(p1) + (__float_as_int(s1) << 23));
}

}  // namespace pairs
