// The running softmax of one warp over its tiles: sum of every query row, relative to its largest
// score or one near it; sums of values, rescaled when that grows. A row that has seen no key yet
// has the maximum minus infinity.
#pragma once

#include "attention/decode/forms.cuh"

namespace decode {

__device__ __forceinline__ f32 minus_infinity() { return __int_as_float(0xff800000); }

// Weights are 2^(score - shift): any finite shift will do for a row without keys.
__device__ __forceinline__ f32 finite(f32 top) { return top == minus_infinity() ? 0.0f : top; }

// Scores may be beyond the maximum by this much, so that few tiles move it: weights are up to 2^4.
constexpr f32 SLACK = 4.0f;

// What a query row needs: where it stands, the keys it sees, its ALiBi slope.
struct Query {
    Span seen;
    i32 position;
    f32 slope;  // in units of log2
    i64 extra;  // where its extra term starts

    // The extra term of a key that is seen, in units of log2.
    template <class T, Extra EXTRA>
    __device__ __forceinline__ f32 added(const Rules& rules, i32 key) const {
        const i32 distance = position - key, index = EXTRA == Extra::bias ? key : distance;
        if (EXTRA == Extra::relative && (distance < 0 || distance >= rules.extent)) return 0.0f;
        return LOG2_E * f32(static_cast<const T*>(rules.extra)[extra + index]);
    }
};

template <class F> struct Softmax {
    f32 top[F::ENTRIES], sum[F::ENTRIES];  // sums are of this lane's keys alone

    __device__ __forceinline__ void clear(F& f) {
        f.clear();
#pragma unroll
        for (int i = 0; i < F::ENTRIES; i++) top[i] = minus_infinity(), sum[i] = 0.0f;
    }

    // Turns products of q and k into weights. MASKED: some row does not see all keys of the tile.
    template <bool MASKED, Extra EXTRA>
    __device__ __forceinline__ void weigh(F& f, const Rules& rules,
                                          const Query (&queries)[F::ENTRIES], i32 tile) {
        f32 grown[F::ENTRIES];
        memcpy(grown, top, sizeof(top));
#pragma unroll
        for (int n = 0; n < F::SCORES; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const Query& query = queries[F::entry(n, e)];
                const i32 key = tile + F::key(n, e);
                f32 x = rules.score(f.score(n, e));
                if (rules.slopes) x -= query.slope * f32(abs(query.position - key));
                if (MASKED && !query.seen.has(key)) x = minus_infinity();
                else if (EXTRA != Extra::none)
                    x += query.template added<typename F::T, EXTRA>(rules, key);
                f.score(n, e) = x;
                grown[F::entry(n, e)] = fmaxf(grown[F::entry(n, e)], x);
            }
        raise(f, grown);
#pragma unroll
        for (int n = 0; n < F::SCORES; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                f.score(n, e) = ptx::ex2(f.score(n, e) - finite(top[F::entry(n, e)]));
                sum[F::entry(n, e)] += f.score(n, e);
            }
    }

    // New maxima, of all lanes (and, by `meet`, warps) that share a row; most tiles need none, and
    // lanes need not ask each other for that.
    __device__ __forceinline__ void raise(F& f, f32 (&grown)[F::ENTRIES]) {
        bool higher = false;
#pragma unroll
        for (int i = 0; i < F::ENTRIES; i++) higher |= grown[i] > top[i] + SLACK;
        if (!f.any(higher)) return;
#pragma unroll
        for (int i = 0; i < F::ENTRIES; i++) {
#pragma unroll
            for (u32 bit = 1; bit < warp::SIZE; bit *= 2)
                if (F::LANES & bit)
                    grown[i] = fmaxf(grown[i], __shfl_xor_sync(ALL_LANES, grown[i], bit));
        }
        f.meet(grown);
        f32 factor[F::ENTRIES];
#pragma unroll
        for (int i = 0; i < F::ENTRIES; i++) {
            factor[i] = ptx::ex2(top[i] - finite(grown[i]));
            sum[i] *= factor[i];
            top[i] = grown[i];
        }
#pragma unroll
        for (int n = 0; n < F::SUMS; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) f.value(n, e) *= factor[F::entry(n, e)];
    }

    // Sums of all lanes that share a row.
    __device__ __forceinline__ void close() {
#pragma unroll
        for (int i = 0; i < F::ENTRIES; i++)
#pragma unroll
            for (u32 bit = 1; bit < warp::SIZE; bit *= 2)
                if (F::LANES & bit) sum[i] += __shfl_xor_sync(ALL_LANES, sum[i], bit);
    }
};

}  // namespace decode
