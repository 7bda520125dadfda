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

struct LazySoftmax : Softmax {
    f32 base[2] = {0.0f, 0.0f};
    f32 limit[2] = {minus_infinity(), minus_infinity()};  // of scores

    // Whether a score of this thread is beyond its row's limit.
    template <int REGS> __device__ __forceinline__ bool outgrown(const f32 (&s)[REGS]) const {
        return (row_max<0>(s) > limit[0]) | (row_max<1>(s) > limit[1]);
    }

    // A new base: by what to multiply sums. All threads of a quad.
    template <int REGS> __device__ __forceinline__ Rise raise(const f32 (&s)[REGS], f32 c) {
        const Rise up = rise(s, c);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            base[h] = up.base[h];
            limit[h] = max[h] + __fdividef(SLACK, c);
        }
        return up;
    }

    // Scores of registers FROM to TO become weights.
    template <int FROM, int TO, int REGS>
    __device__ __forceinline__ void weigh(f32 (&s)[REGS], f32 c) {
        f32 more[4] = {};
#pragma unroll
        for (int i = FROM; i < TO; i++) {
            s[i] = ptx::ex2(fmaf(s[i], c, -base[i / 2 % 2]));
            more[i % 4] += s[i];
        }
        sum[0] += more[0] + more[1];
        sum[1] += more[2] + more[3];
    }
};

}  // namespace attention
