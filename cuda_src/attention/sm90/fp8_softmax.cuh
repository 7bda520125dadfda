// Softmax whose weights are rounded to e4m3, and rows of sums with permuted columns.
//
// Weights are 2^(s c - base), lifted towards the 448 that e4m3 can hold: small ones keep more binades
// before they underflow. Like lazy_softmax.cuh it leaves a base alone until a score is beyond it by more
// than SLACK, but not much is left for that: LIFT + SLACK is 8.75, 2^8.75 = 430.5. Sums of weights are
// lifted as well, so it all leaves with the division.
#pragma once

#include "attention/rows.cuh"
#include "attention/softmax.cuh"
#include "common/e4m3.cuh"

namespace attention {

// LOWERED: weights are 2^-8 times what their bytes will say.
template <bool LOWERED> constexpr f32 LIFT = LOWERED ? -1.0f : 7.0f;
constexpr f32 SLACK8 = 1.75f;

template <bool LOWERED> struct Softmax8 {
    f32 sum[2] = {0.0f, 0.0f};  // of this thread's columns only
    f32 base[2] = {-1e30f, -1e30f};
    f32 limit[2] = {minus_infinity(), minus_infinity()};  // of scores

    // Whether a score of this thread is beyond its row's limit.
    template <int REGS> __device__ __forceinline__ bool outgrown(const f32 (&s)[REGS]) const {
        return (row_max<0>(s) > limit[0]) | (row_max<1>(s) > limit[1]);
    }

    // New bases for rows with a score beyond their limit: by what to multiply sums. All threads of a quad.
    template <int REGS>
    __device__ __forceinline__ Rise raise(const f32 (&s)[REGS], const f32 (&c)[2]) {
        const f32 top[2] = {quad_max(row_max<0>(s)), quad_max(row_max<1>(s))};
        Rise up;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const f32 before = base[h];
            if (top[h] > limit[h]) {
                base[h] = fmaf(top[h], c[h], -LIFT<LOWERED>);
                limit[h] = top[h] + __fdividef(SLACK8, c[h]);
            }
            up.correction[h] = ptx::ex2(before - base[h]);
            sum[h] *= up.correction[h];
        }
        return up;
    }

    // Scores of registers FROM to TO become weights, POLYS of eight without the special-function unit.
    template <int FROM, int TO, int POLYS, int REGS>
    __device__ __forceinline__ void weigh(f32 (&s)[REGS], const f32 (&c)[2]) {
        f32 more[4] = {};
#pragma unroll
        for (int i = FROM; i < TO; i++) {
            const int h = i / 2 % 2;
            const f32 x = fmaf(s[i], c[h], -base[h]);
            s[i] = (i / 4 + i % 2 * 4) % 8 < POLYS ? power(x) : ptx::ex2(x);
            more[i % 4] += s[i];
        }
        sum[0] += more[0] + more[1];
        sum[1] += more[2] + more[3];
    }

    // What the sum of row h is relative to: 2^this.
    __device__ __forceinline__ f32 top(int h) const { return base[h]; }

private:
    // 2^x, at least 2^-24 (which is rounded to 0), to 2^-8.8 relative: weights have four bits. The exponent
    // is split into an integer, in the low bits of a number that is rounded to one, and the rest.
    static __device__ __forceinline__ f32 power(f32 x) {
        const f32 magic = 12582912.0f;  // 1.5 2^23
        x = fmaxf(x, -24.0f);
        const f32 whole = x + magic, rest = x - (whole - magic);
        const f32 part = fmaf(fmaf(0.2451029f, rest, 0.7051786f), rest, 1.0f);
        return __int_as_float(__float_as_int(part) + (__float_as_int(whole) << 23));
    }
};

// Weights as the left operand of the next product: keys in the order of fp8_shape.cuh.
template <bool LOWERED, int REGS>
__device__ __forceinline__ void pack_all8(u32 (&p)[REGS / 4], const f32 (&s)[REGS]) {
#pragma unroll
    for (int i = 0; i < REGS / 4; i++) {
        const int first = i / 2 * 8 + i % 2 * 2;
        if constexpr (LOWERED)
            p[i] = pack_e4m3_lowered(s[first], s[first + 1], s[first + 4], s[first + 5]);
        else
            p[i] = pack_e4m3(s[first], s[first + 1], s[first + 4], s[first + 5]);
    }
}

// Softmax that does not look for maxima. Exponentials are taken with the base that there is, as if nothing
// could go wrong, and their sum tells whether it did: none is larger than the sum of a thread's. Only then
// the scores are made once more. So a step is spared a comparison for every score, and its exponentials
// need not wait for comparisons.
template <bool LOWERED> struct BlindSoftmax {
    static_assert(!LOWERED);
    static constexpr f32 START = 5.0f;             // the largest score of a new base is 2^this,
    static constexpr f32 ROOM = 128.0f, MOST = 448.0f;  // the largest sum of a block this, and may grow to this
    f32 sum[2] = {0.0f, 0.0f};  // of this thread's columns only
    f32 base[2] = {-1e30f, -1e30f};
    f32 block[2];

    template <int FROM, int TO, int POLYS, int REGS>
    __device__ __forceinline__ void weigh(f32 (&s)[REGS], const f32 (&c)[2]) {
        f32 more[4] = {};
#pragma unroll
        for (int i = FROM; i < TO; i++) {
            s[i] = ptx::ex2(fmaf(s[i], c[i / 2 % 2], -base[i / 2 % 2]));
            more[i % 4] += s[i];
        }
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const f32 part = more[2 * h] + more[2 * h + 1];
            block[h] = FROM == 0 ? part : block[h] + part;
        }
    }
    __device__ __forceinline__ bool outgrown() const { return (block[0] > MOST) | (block[1] > MOST); }
    __device__ __forceinline__ void accept() { sum[0] += block[0], sum[1] += block[1]; }

    // New bases, and weights of the scores: by what to multiply sums. All threads of a quad.
    template <int REGS>
    __device__ __forceinline__ Rise renew(f32 (&s)[REGS], const f32 (&c)[2]) {
        const f32 top[2] = {quad_max(row_max<0>(s)), quad_max(row_max<1>(s))};
        const f32 before[2] = {base[0], base[1]};
#pragma unroll
        for (int h = 0; h < 2; h++) base[h] = fmaxf(base[h], fmaf(top[h], c[h], -START));
        weigh<0, REGS, 0>(s, c);
        Rise up;
        f32 shift[2];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const f32 excess = ceilf(ptx::lg2(fmaxf(quad_max(block[h]), ROOM)) - 7.0f);
            shift[h] = ptx::ex2(-excess);
            base[h] += excess;
            up.correction[h] = ptx::ex2(before[h] - base[h]);
            sum[h] = fmaf(sum[h], up.correction[h], block[h] * shift[h]);
        }
#pragma unroll
        for (int i = 0; i < REGS; i++) s[i] *= shift[i / 2 % 2];
        return up;
    }

    __device__ __forceinline__ f32 top(int h) const { return base[h]; }
};

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
template <int H, class T, bool LOWERED, class SOFTMAX, int REGS>
__device__ __forceinline__ void finish_row8(const Results<T>& to, const Row& row, i64 batch, i64 first,
                                            const f32 (&o)[REGS], const SOFTMAX& softmax,
                                            f32 scale) {
    const f32 sink = to.sinks != nullptr && row.exists ? to.sinks[row.head] : minus_infinity();
    const f32 sum = quad_sum(softmax.sum[H]);
    const Ending ending(sum > 0.0f ? softmax.top(H) : minus_infinity(), sum, 1.0f, sink);
    const i64 token = first + row.query;
    T* out = to.out + batch * to.out_batch + row.head * to.out_head + token * to.out_token;
    store_row8<H>(row.exists ? out : nullptr, o, ending.factor * (LOWERED ? 0x1p-8f : 1.0f) * scale);
    if (to.lse != nullptr && row.exists && threadIdx.x % 4 == 0)
        to.lse[batch * to.lse_batch + row.head * to.lse_head + token * to.lse_token] = ending.lse;
}

}  // namespace attention
