// What a warpgroup does with its sums at the end of a tile.
#pragma once

#include "attention/rows.cuh"
#include "attention/sm90/job.cuh"

namespace attention {

// Row h of a thread's two in a warpgroup's 64.
template <class JOB>
__device__ __forceinline__ Row row_of(const Call& call, const JOB& job, int wg, int h) {
    const i32 row = job.row + wg * 64 + threadIdx.x / 32 % 4 * 16 + warp::lane() / 4 + 8 * h;
    const i32 query = row >> call.group_bits;
    return {(job.head << call.group_bits) + row - (query << call.group_bits), query,
            row < job.rows};
}

template <class T, class JOB, class SOFTMAX, int REGS>
__device__ __forceinline__ void finish(const Call& call, const JOB& job, const Results<T>& to,
                                       const f32 (&o)[REGS], const SOFTMAX& softmax, f32 c,
                                       int wg) {
    const i64 batch = call.lengths.q_offsets != nullptr ? 0 : job.batch;
    const i64 first = job.sequence.q_first;
    finish_row<0>(to, row_of(call, job, wg, 0), batch, first, o, softmax, c);
    finish_row<1>(to, row_of(call, job, wg, 1), batch, first, o, softmax, c);
}

}  // namespace attention
