// Where sequences start and end, and where a query's results go.
#pragma once

#include "attention/output.cuh"
#include "attention/softmax.cuh"
#include "common/types.cuh"
#include "common/warp.cuh"

namespace attention {

// Null pointers mean what is said beside them.
struct Lengths {
    i32 queries, keys;     // of each sequence, unless
    const u32* q_offsets;  // [batch + 1] rows of queries: null for [batch, queries]
    const u32* q_lengths;  // [batch] queries that count: null for all of them
    const u32* k_offsets;  // [batch + 1] rows of keys: null for [batch, keys]
    const u32* k_lengths;  // [batch] keys that count: null for all of them
};

struct Sequence {
    i32 q_first, queries, k_first, keys;

    // VARY: whether there may be pointers.
    template <bool VARY>
    static __device__ __forceinline__ Sequence of(const Lengths& l, i32 batch) {
        Sequence s{0, l.queries, 0, l.keys};
        if constexpr (VARY) {
            if (l.q_offsets != nullptr) {
                s.q_first = warp::uniform(l.q_offsets[batch]);
                s.queries = warp::uniform(l.q_offsets[batch + 1]) - s.q_first;
            }
            if (l.q_lengths != nullptr) s.queries = warp::uniform(l.q_lengths[batch]);
            if (l.k_offsets != nullptr) {
                s.k_first = warp::uniform(l.k_offsets[batch]);
                s.keys = warp::uniform(l.k_offsets[batch + 1]) - s.k_first;
            }
            if (l.k_lengths != nullptr) s.keys = warp::uniform(l.k_lengths[batch]);
        }
        return s;
    }
};

// Steps in elements.
template <class T> struct Results {
    T* out;
    i64 out_token, out_head, out_batch;
    f32* lse;  // or null
    i64 lse_token, lse_head, lse_batch;
    const f32* sinks;  // [heads], or null
};

// One of a thread's rows: head and query, and whether they exist.
struct Row {
    i32 head, query;
    bool exists;
};

struct Ending {
    f32 factor, lse;

    // Of a row with maximum `max` and sum `sum` of all its columns; c as in softmax.cuh.
    __device__ __forceinline__ Ending(f32 max, f32 sum, f32 c, f32 sink) {
        const f32 scaled = max * c, extra = sink * LOG2E, top = fmaxf(scaled, extra);
        if (top == minus_infinity()) {
            factor = 0.0f, lse = top;
        } else {
            const f32 mine = ptx::ex2(scaled - top), z = fmaf(sum, mine, ptx::ex2(extra - top));
            factor = __fdividef(mine, z);
            lse = (top + ptx::lg2(z)) * LN2;
        }
    }
};

// Row H of a fragment of sums. `batch` is the array's, `first` the row where the sequence starts.
template <int H, class T, class SOFTMAX, int REGS>
__device__ __forceinline__ void finish_row(const Results<T>& to, const Row& row, i64 batch, i64 first,
                                           const f32 (&o)[REGS], const SOFTMAX& softmax, f32 c) {
    const f32 sink = to.sinks != nullptr && row.exists ? to.sinks[row.head] : minus_infinity();
    const Ending ending(softmax.template scaled<H>(c), quad_sum(softmax.sum[H]), 1.0f, sink);
    const i64 token = first + row.query;
    T* out = to.out + batch * to.out_batch + row.head * to.out_head + token * to.out_token;
    store_row<T, H>(row.exists ? out : nullptr, o, ending.factor);
    if (to.lse != nullptr && row.exists && threadIdx.x % 4 == 0)
        to.lse[batch * to.lse_batch + row.head * to.lse_head + token * to.lse_token] = ending.lse;
}

}  // namespace attention
