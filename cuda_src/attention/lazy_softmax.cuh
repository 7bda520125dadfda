// Online softmax that leaves its base alone while it can.
//
// Weights 2^(s c - base) need not be at most one: any base will do with which nothing overflows, and the
// end divides it out. So the base is a maximum of the past, and stays until a score is above it by more
// than 2^SLACK. Nearly every step is spared the maximum across a quad and the rescaling of the sums, and
// its exponentials wait for a comparison alone.
#pragma once

#include "attention/softmax.cuh"

namespace attention {

constexpr f32 SLACK = 8.0f;    // weights are at most 2^this
constexpr f32 UNSEEN = 1e30f;  // minus the base of a row that has seen no key: all scores are above it

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
    f32 shift[2] = {UNSEEN, UNSEEN};  // minus the base: an operand that needs no negation
    f32 sum[2] = {0.0f, 0.0f};        // of this thread's columns only

    __device__ __forceinline__ bool outgrown(const Maxima& top, f32 c) const {
        return (fmaf(top.row[0], c, shift[0]) > SLACK) | (fmaf(top.row[1], c, shift[1]) > SLACK);
    }
    // By which power of two a row's weights have been divided; minus infinity if there are none.
    template <int H> __device__ __forceinline__ f32 scaled(f32) const {
        return shift[H] == UNSEEN ? minus_infinity() : -shift[H];
    }

    // A new base: what sums are to be multiplied with. All threads of a quad.
    __device__ __forceinline__ Rise raise(const Maxima& top, f32 c) {
        Rise rise;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const f32 before = shift[h];
            shift[h] = fminf(before, -quad_max(top.row[h]) * c);
            rise.base[h] = -shift[h];
            rise.correction[h] = ptx::ex2(shift[h] - before);
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
            s[i] = ptx::ex2(fmaf(s[i], c, shift[i / 2 % 2]));
            more[i % 4] += s[i];
        }
        sum[0] += more[0] + more[1];
        sum[1] += more[2] + more[3];
    }
};

}  // namespace attention
