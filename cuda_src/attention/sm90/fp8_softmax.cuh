// Softmax whose weights are rounded to e4m3, and that does not look for maxima.
//
// Weights are 2^(s c - base), of which e4m3 holds 2^-9 to 448 and the division takes the base out again:
// any base will do with which they fit. So exponentials are taken with the base that there is, as if
// nothing could go wrong, and their sum tells whether it did: no weight of a thread is larger than it.
// Only then is the base raised. Nearly every step is spared a comparison for every score, a maximum
// across a quad and rescaling sums, and its exponentials wait for nothing but scores.
//
// Weights that are too large for e4m3 are none for float32, and a base is raised by whole numbers: it
// takes a multiplication by a power of two. Only those that float32 does not hold either, as in a tile's
// first block, are lost, and their block's scores are made once more.
#pragma once

#include "attention/rows.cuh"
#include "attention/softmax.cuh"
#include "common/e4m3.cuh"

namespace attention {

struct BlindSoftmax {
    // With a new base the largest weight is 2^LIFT or, if a thread's of a block add up to more than ROOM,
    // less. They may grow until they add up to MOST. What is below 2^-10 is rounded to nothing: a higher
    // LIFT loses less beside a large weight, a lower one has bases raised less often.
    static constexpr f32 LIFT = 6.0f, ROOM = 64.0f, MOST = 448.0f, LOST = 0x1p100f;

    f32 sum[2] = {0.0f, 0.0f};          // of this thread's columns only, as all sums here
    f32 base[2] = {-1e30f, -1e30f};     // at first, one that everything outgrows
    f32 block[2];                       // sums of the block

    // Scores become weights.
    template <int REGS>
    __device__ __forceinline__ void weigh(f32 (&s)[REGS], const f32 (&c)[2]) {
        f32 more[4] = {};
#pragma unroll
        for (int i = 0; i < REGS; i++) {
            s[i] = ptx::ex2(fmaf(s[i], c[i / 2 % 2], -base[i / 2 % 2]));
            more[i % 4] += s[i];
        }
        block[0] = more[0] + more[1];
        block[1] = more[2] + more[3];
    }
    // Whether a weight may be too large for e4m3, or is for float32.
    __device__ __forceinline__ bool outgrown() const { return (block[0] > MOST) | (block[1] > MOST); }
    __device__ __forceinline__ bool lost() const { return (block[0] > LOST) | (block[1] > LOST); }
    __device__ __forceinline__ void accept() { sum[0] += block[0], sum[1] += block[1]; }

    // Both return by what to multiply what has been summed. All of a quad.
    // Scores become weights with new bases.
    template <int REGS>
    __device__ __forceinline__ Rise renew(f32 (&s)[REGS], const f32 (&c)[2]) {
        const f32 top[2] = {quad_max(row_max<0>(s)), quad_max(row_max<1>(s))};
        const f32 before[2] = {base[0], base[1]};
#pragma unroll
        for (int h = 0; h < 2; h++) base[h] = fmaxf(base[h], fmaf(top[h], c[h], -LIFT));
        weigh(s, c);
        return raise(s, before);
    }
    // Bases are raised by so much that weights have room, and by what they have risen since `before`.
    template <int REGS>
    __device__ __forceinline__ Rise raise(f32 (&s)[REGS], const f32 (&before)[2]) {
        Rise up;
        f32 factor[2];  // a power of two
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const f32 excess = ceilf(ptx::lg2(fmaxf(quad_max(block[h]), ROOM) * (1.0f / ROOM)));
            factor[h] = ptx::ex2(-excess);
            base[h] += excess;
            up.correction[h] = ptx::ex2(before[h] - base[h]);
            sum[h] = fmaf(sum[h], up.correction[h], block[h] * factor[h]);
        }
#pragma unroll
        for (int i = 0; i < REGS; i++) s[i] *= factor[i / 2 % 2];
        return up;
    }
};

// Weights as the left operand of the next product: keys in the order of fp8_shape.cuh.
template <int REGS>
__device__ __forceinline__ void pack_all8(u32 (&p)[REGS / 4], const f32 (&s)[REGS]) {
#pragma unroll
    for (int i = 0; i < REGS / 4; i++) {
        const int first = i / 2 * 8 + i % 2 * 2;
        p[i] = pack_e4m3(s[first], s[first + 1], s[first + 4], s[first + 5]);
    }
}

// Row H of the fragment times `factor`; `to` is null for a row that does not exist. A thread has four
// neighbouring columns of 16: 8 bytes, and 32 bytes of a row in the four lanes of a quad.
template <int H, class T, int REGS>
__device__ __forceinline__ void store_row8(T* to, const f32 (&o)[REGS], f32 factor) {
    if (to == nullptr) return;
    uint2* out = reinterpret_cast<uint2*>(to) + threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < REGS / 8; i++) {
        const int even = 8 * i + 2 * H, odd = even + 4;
        out[4 * i] = make_uint2(pack<T>(o[even] * factor, o[odd] * factor),
                                pack<T>(o[even + 1] * factor, o[odd + 1] * factor));
    }
}

// Row H of a thread's two, as finish_row of rows.cuh; sums are multiplied with `scale`.
template <int H, class T, int REGS>
__device__ __forceinline__ void finish_row8(const Results<T>& to, const Row& row, i64 batch, i64 first,
                                            const f32 (&o)[REGS], const BlindSoftmax& softmax,
                                            f32 scale) {
    const f32 sink = to.sinks != nullptr && row.exists ? to.sinks[row.head] : minus_infinity();
    const f32 sum = quad_sum(softmax.sum[H]);
    const Ending ending(sum > 0.0f ? softmax.base[H] : minus_infinity(), sum, 1.0f, sink);
    const i64 token = first + row.query;
    T* out = to.out + batch * to.out_batch + row.head * to.out_head + token * to.out_token;
    store_row8<H>(row.exists ? out : nullptr, o, ending.factor * scale);
    if (to.lse != nullptr && row.exists && threadIdx.x % 4 == 0)
        to.lse[batch * to.lse_batch + row.head * to.lse_head + token * to.lse_token] = ending.lse;
}

}  // namespace attention
