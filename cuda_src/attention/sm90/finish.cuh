// What a warpgroup does with its sums at the end of a tile.
#pragma once

#include "attention/output.cuh"
#include "attention/sm90/job.cuh"

namespace attention {

// Where results go; steps in elements. Sequences of a ragged call lie in one batch.
template <class T> struct Results {
    T* out;
    i64 out_token, out_head, out_batch;
    f32* lse;  // or null
    i64 lse_token, lse_head, lse_batch;
    const f32* sinks;  // [heads], or null
};

// One of a thread's two rows: head and query, and whether they exist.
struct Row {
    i32 head, query;
    bool exists;

    template <class JOB>
    static __device__ __forceinline__ Row of(const Call& call, const JOB& job, int wg, int h) {
        const i32 row = job.row + wg * 64 + threadIdx.x / 32 % 4 * 16 + warp::lane() / 4 + 8 * h;
        const i32 query = row / call.group;
        return {job.head * call.group + row - query * call.group, query, row < job.rows};
    }
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

template <int H, class T, class JOB, class SOFTMAX, int REGS>
__device__ __forceinline__ void finish_row(const Call& call, const JOB& job, const Results<T>& to,
                                           const f32 (&o)[REGS], const SOFTMAX& softmax, f32 c,
                                           int wg) {
    const Row row = Row::of(call, job, wg, H);
    const bool ragged = call.lengths.q_offsets != nullptr;
    const i64 batch = ragged ? 0 : job.batch, token = job.sequence.q_first + row.query;
    const f32 sink = to.sinks != nullptr && row.exists ? to.sinks[row.head] : minus_infinity();
    const Ending ending(softmax.max[H], quad_sum(softmax.sum[H]), c, sink);
    T* out = to.out + batch * to.out_batch + row.head * to.out_head + token * to.out_token;
    store_row<T, H>(row.exists ? out : nullptr, o, ending.factor);
    if (to.lse != nullptr && row.exists && threadIdx.x % 4 == 0)
        to.lse[batch * to.lse_batch + row.head * to.lse_head + token * to.lse_token] = ending.lse;
}

template <class T, class JOB, class SOFTMAX, int REGS>
__device__ __forceinline__ void finish(const Call& call, const JOB& job, const Results<T>& to,
                                       const f32 (&o)[REGS], const SOFTMAX& softmax, f32 c,
                                       int wg) {
    finish_row<0>(call, job, to, o, softmax, c, wg);
    finish_row<1>(call, job, to, o, softmax, c, wg);
}

}  // namespace attention
