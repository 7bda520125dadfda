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

// What a block of scores does to its two rows: what has been summed so far is multiplied with
// `correction`, and weights are 2^(s c - base).
struct Rise {
    f32 correction[2], base[2];
};

// The maximum of a row of a fragment, for this thread's columns. Two chains of dependent operations: one
// could not be issued every cycle.
template <int H, int REGS> __device__ __forceinline__ f32 row_max(const f32 (&s)[REGS]) {
    f32 even = s[2 * H], odd = s[2 * H + 1];
#pragma unroll
    for (int i = 4; i < REGS; i += 4) {
        even = fmaxf(even, s[i + 2 * H]);
        odd = fmaxf(odd, s[i + 2 * H + 1]);
    }
    return fmaxf(even, odd);
}
struct Softmax {
    f32 max[2], sum[2];  // sums of this thread's columns only

    __device__ __forceinline__ Softmax()
        : max{minus_infinity(), minus_infinity()}, sum{0.0f, 0.0f} {}

    // By which power of two a row's weights have been divided.
    template <int H> __device__ __forceinline__ f32 scaled(f32 c) const { return max[H] * c; }

    template <int REGS> __device__ __forceinline__ Rise rise(const f32 (&s)[REGS], f32 c) {
        const f32 top[2] = {quad_max(row_max<0>(s)), quad_max(row_max<1>(s))};
        Rise rise;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const f32 before = max[h];
            max[h] = fmaxf(before, top[h]);
            // A row that has seen no key yet: any finite number will do, all weights are 2^-infinity.
            rise.base[h] = max[h] == minus_infinity() ? 0.0f : max[h] * c;
            rise.correction[h] = ptx::ex2(fmaf(before, c, -rise.base[h]));
            sum[h] *= rise.correction[h];
        }
        return rise;
    }

    // Scores become weights.
    template <int REGS>
    __device__ __forceinline__ void weigh(f32 (&s)[REGS], const Rise& rise, f32 c) {
        f32 more[4] = {};
#pragma unroll
        for (int i = 0; i < REGS; i++) {
            s[i] = ptx::ex2(fmaf(s[i], c, -rise.base[i / 2 % 2]));
            more[i % 4] += s[i];
        }
        sum[0] += more[0] + more[1];
        sum[1] += more[2] + more[3];
    }

    // Both.
    template <int REGS> __device__ __forceinline__ Rise step(f32 (&s)[REGS], f32 c) {
        const Rise up = rise(s, c);
        weigh(s, up, c);
        return up;
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

template <int REGS> __device__ __forceinline__ void scale_rows(f32 (&o)[REGS], const Rise& rise) {
#pragma unroll
    for (int i = 0; i < REGS; i++) o[i] *= rise.correction[i / 2 % 2];
}

}  // namespace attention
