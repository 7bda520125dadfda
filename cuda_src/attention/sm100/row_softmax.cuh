// Online softmax of a thread that has a whole row of scores.
//
// Weights are 2^(s c - max c), c being the scale times log2(e). `max` need not be the row's maximum: any
// number will do that keeps weights in range, since sums and output are divided by the same. So it follows
// the maximum only when that has grown by more than 2^SLACK in weights, which after the first few blocks
// it hardly ever does; otherwise nothing summed so far needs rescaling. With SLACK = 8 weights stay below
// 256, which f16 and bf16 both hold, to the same relative precision as ever: the result is exact either way.
//
// POLY of every 8 pairs of exponentials are polynomials on the FMA pipe (exp2_pairs.cuh says how exact).
#pragma once

#include "attention/mask.cuh"
#include "attention/softmax.cuh"
#include "attention/terms.cuh"
#include "common/exp2_pairs.cuh"

namespace attention {

// Two chains of dependent operations: one could not be issued every cycle.
template <int N> __device__ __forceinline__ f32 top_of(const f32 (&s)[N]) {
    f32 even = s[0], odd = s[1];
#pragma unroll
    for (int i = 2; i < N; i += 2) even = fmaxf(even, s[i]), odd = fmaxf(odd, s[i + 1]);
    return fmaxf(even, odd);
}

// Hides keys outside the interval from a row of scores whose first column is key `key`.
template <Mask MASK, int N>
__device__ __forceinline__ void hide_row(f32 (&s)[N], const Interval& seen, i32 key) {
    const i32 end = seen.end - key, first = seen.first - key;
#pragma unroll
    for (int i = 0; i < N; i++) {
        bool in = i < end;
        if constexpr (MASK == Mask::window) in = in && i >= first;
        s[i] = in ? s[i] : minus_infinity();
    }
}

// Scales a row of products whose first column is key `key`, and adds what is added to scores.
template <class T, u32 TERMS, int N>
__device__ __forceinline__ void add_row_terms(f32 (&s)[N], const RowTerms<T, TERMS>& row, i32 key,
                                              i32 keys, const Terms<T>& terms) {
    const f32 factor = TERMS & SOFTCAP ? 2.0f * LOG2E / terms.softcap : 0.0f;
#pragma unroll
    for (int i = 0; i < N; i++) {
        s[i] *= terms.scale;
        if constexpr (TERMS & SOFTCAP) s[i] = cap(s[i], terms.softcap, factor);
        s[i] = row.add(s[i], key + i, keys, terms);
    }
}

template <int SLACK, int POLY> struct RowSoftmax {
    f32 max = minus_infinity(), sum = 0.0f;

    // Takes a block's maximum into account; what has been summed so far is to be multiplied with what
    // this returns.
    __device__ __forceinline__ f32 rise(f32 top, f32 c) {
        if (!((top - max) * c > f32(SLACK))) return 1.0f;  // also where both are -infinity
        const f32 factor = ptx::ex2((max - top) * c);
        max = top, sum *= factor;
        return factor;
    }

    // The 32 scores from s on become weights, packed by twos.
    template <class T> __device__ __forceinline__ void weigh(f32* s, f32 c, u32 (&w)[16]) {
        // A row that has seen no key yet: any finite number will do, all weights are 2^-infinity.
        const f32 base = max == minus_infinity() ? 0.0f : max * c;
        const pairs::Pair scale = pairs::of(c, c), shift = pairs::of(-base, -base);
        pairs::Pair more[2] = {};
#pragma unroll
        for (int i = 0; i < 16; i++) {
            f32 a, b;
            pairs::split(pairs::fma(pairs::of(s[2 * i], s[2 * i + 1]), scale, shift), a, b);
            if (i * POLY % 8 < POLY) pairs::exp2(a, b);
            else a = ptx::ex2(a), b = ptx::ex2(b);
            more[i % 2] = pairs::add(more[i % 2], pairs::of(a, b));
            w[i] = pack<T>(a, b);
        }
        f32 low, high;
        pairs::split(pairs::add(more[0], more[1]), low, high);
        sum += low + high;
    }
};

}  // namespace attention
