// Online softmax on accumulator fragments: the running maximum and sum of two rows per thread.
//
// Fragments of mma.sync and wgmma alike: register i of a thread is row t / 4 + 8 ((i / 2) % 2) of its
// warp's sixteen, column 8 (i / 4) + 2 (t % 4) + i % 2. The four threads of a quad share a row: maxima
// meet by shuffles at every step, sums only at the end.
//
// Weights are 2^(s c - max c), c being the scale times log2(e): one fma and one ex2 an element.
#pragma once

#include "common/math.cuh"
#include "common/types.cuh"

namespace attention {

constexpr f32 LOG2E = 1.44269504f, LN2 = 0.693147181f;

__device__ __forceinline__ f32 minus_infinity() { return __int_as_float(0xff800000); }

__device__ __forceinline__ f32 quad_max(f32 x) {
    x = fmaxf(x, __shfl_xor_sync(0xffffffff, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffff, x, 2));
}
__device__ __forceinline__ f32 quad_sum(f32 x) {
    x += __shfl_xor_sync(0xffffffff, x, 1);
    return x + __shfl_xor_sync(0xffffffff, x, 2);
}

// 2^x for x <= 0 by the FMA pipes: a quartic on [-1/2, 1/2] (relative error 2^-18) and the integer part added to the exponent. Where heads are narrow there are more
// exponentials than the special-function unit has time for. What is below 2^-125 stays there.
__device__ __forceinline__ f32 ex2_quartic(f32 x) {
    const f32 magic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer in the low bits
    x = fmaxf(x, -125.0f);
    const f32 shifted = x + magic, f = x - (shifted - magic);
    const f32 y = fmaf(fmaf(fmaf(fmaf(0.00956970507f, f, 0.0559181997f), f, 0.240247647f), f,
                            0.693121744f), f, 0.999999239f);
    return __int_as_float(__float_as_int(y) + (__float_as_int(shifted) << 23));
}

// QUARTIC of every eight exponentials are done that way: 0, 1, 2 or 4.
template <int QUARTIC = 0> struct Softmax {
    f32 max[2], sum[2];  // sums of this thread's columns only

    __device__ __forceinline__ Softmax()
        : max{minus_infinity(), minus_infinity()}, sum{0.0f, 0.0f} {}

    // Scores become weights. Returns by row what everything summed so far must be multiplied with.
    template <int REGS>
    __device__ __forceinline__ float2 step(f32 (&s)[REGS], f32 c) {
        float2 correction;
        correction.x = row<0>(s, c);
        correction.y = row<1>(s, c);
        return correction;
    }

private:
    // Two chains of dependent operations a row: one could not be issued every cycle.
    template <int H, int REGS> __device__ __forceinline__ f32 row(f32 (&s)[REGS], f32 c) {
        f32 even = s[2 * H], odd = s[2 * H + 1];
#pragma unroll
        for (int i = 4; i < REGS; i += 4) {
            even = fmaxf(even, s[i + 2 * H]);
            odd = fmaxf(odd, s[i + 2 * H + 1]);
        }
        const f32 before = max[H];
        max[H] = fmaxf(before, quad_max(fmaxf(even, odd)));
        // A row that has seen no key yet: any finite number will do, all weights are 2^-infinity.
        const f32 base = max[H] == minus_infinity() ? 0.0f : max[H] * c;
        const f32 correction = ptx::ex2(fmaf(before, c, -base));
        even = odd = 0.0f;
#pragma unroll
        for (int i = 0; i < REGS; i += 4) {
            f32 &a = s[i + 2 * H], &b = s[i + 2 * H + 1];
            a = ptx::ex2(fmaf(a, c, -base));
            b = fmaf(b, c, -base);
            b = QUARTIC > 0 && i / 4 % (4 / (QUARTIC > 0 ? QUARTIC : 1)) == 0 ? ex2_quartic(b) : ptx::ex2(b);
            even += a, odd += b;
        }
        sum[H] = fmaf(sum[H], correction, even + odd);
        return correction;
    }
};

// Weights, rounded to the operand type, as the left operand of the next product.
template <class T> __device__ __forceinline__ u32 pack(f32 low, f32 high);
template <> __device__ __forceinline__ u32 pack<bf16>(f32 low, f32 high) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return reinterpret_cast<const u32&>(pair);
}
template <> __device__ __forceinline__ u32 pack<f16>(f32 low, f32 high) {
    const __half2 pair = __floats2half2_rn(low, high);
    return reinterpret_cast<const u32&>(pair);
}

template <class T, int REGS>
__device__ __forceinline__ void pack_all(u32 (&p)[REGS / 2], const f32 (&s)[REGS]) {
#pragma unroll
    for (int i = 0; i < REGS / 2; i++) p[i] = pack<T>(s[2 * i], s[2 * i + 1]);
}

template <int REGS> __device__ __forceinline__ void scale_rows(f32 (&o)[REGS], float2 factor) {
#pragma unroll
    for (int i = 0; i < REGS; i++) o[i] *= i / 2 % 2 ? factor.y : factor.x;
}

}  // namespace attention
