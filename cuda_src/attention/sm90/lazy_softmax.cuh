// Online softmax that leaves its base alone while it can.
//
// Weights 2^(s c - base) need not be at most one: any base will do with which nothing overflows, and the
// end divides it out. So the base is a maximum of the past, and stays until a score is above it by more
// than 2^SLACK. Nearly every step is spared the maximum across a quad and the rescaling of the sums, and
// its exponentials wait for a comparison alone.
#pragma once

#include "attention/softmax.cuh"

namespace attention {

constexpr f32 SLACK = 8.0f;  // weights are at most 2^this

// Of a thread's two rows, over its own columns.
struct Maxima {
    f32 row[2];

    // Eight chains: each operation takes four cycles, and one can start in every second.
    template <int REGS> static __device__ __forceinline__ Maxima of(const f32 (&s)[REGS]) {
        f32 top[8];
#pragma unroll
        for (int i = 0; i < 8; i++) top[i] = s[i];
#pragma unroll
        for (int i = 8; i < REGS; i++) top[i % 8] = fmaxf(top[i % 8], s[i]);
        return {{fmaxf(fmaxf(top[0], top[1]), fmaxf(top[4], top[5])),
                 fmaxf(fmaxf(top[2], top[3]), fmaxf(top[6], top[7]))}};
    }
};

struct LazySoftmax {
    f32 max[2] = {minus_infinity(), minus_infinity()};    // that the base is made of
    f32 base[2] = {0.0f, 0.0f};
    f32 limit[2] = {minus_infinity(), minus_infinity()};  // of scores
    f32 sum[2] = {0.0f, 0.0f};                            // of this thread's columns only

    __device__ __forceinline__ bool outgrown(const Maxima& top) const {
        return (top.row[0] > limit[0]) | (top.row[1] > limit[1]);
    }

    // A new base: what sums are to be multiplied with. All threads of a quad.
    __device__ __forceinline__ Rise raise(const Maxima& top, f32 c) {
        Rise rise;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const f32 before = max[h];
            max[h] = fmaxf(before, quad_max(top.row[h]));
            limit[h] = max[h] + __fdividef(SLACK, c);
            // A row that has seen no key yet: any finite number will do, all weights are 2^-infinity.
            rise.base[h] = base[h] = max[h] == minus_infinity() ? 0.0f : max[h] * c;
            rise.correction[h] = ptx::ex2(fmaf(before, c, -base[h]));
            sum[h] *= rise.correction[h];
        }
        return rise;
    }

    // Scores become weights.
    template <int REGS>
    __device__ __forceinline__ void weigh(f32 (&s)[REGS], f32 c) {
        f32 more[4] = {};
#pragma unroll
        for (int i = 0; i < REGS; i++) {
            s[i] = ptx::ex2(fmaf(s[i], c, -base[i / 2 % 2]));
            more[i % 4] += s[i];
        }
        sum[0] += more[0] + more[1];
        sum[1] += more[2] + more[3];
    }
};

}  // namespace attention
