// Which blocks of a tile's keys a warpgroup works on.
//
// A tile's warpgroups walk the same blocks, but the queries of the first do not see the last keys, nor, with
// a window, those of the last the first keys. Of 192 queries and a window of 1024 keys a tile has ten blocks
// of 128, and every warpgroup has something to do in nine.
//
// One block at either end may be left out, and no more: who works on block i has let go of block
// i - STAGES, and whoever waits for a turn meanwhile must not be keeping the stage that is needed.
#pragma once

#include "attention/sm90/job.cuh"

namespace attention {

struct Part {
    i32 first, end;

    __device__ __forceinline__ i32 count() const { return end - first; }
};

template <class S, class JOB>
__device__ __forceinline__ Part part_of(const Call& call, const JOB& job, int wg) {
    Part part{job.first, job.end};
    const i32 top = job.row + wg * S::ROWS, bottom = min(top + S::ROWS, job.rows) - 1;
    const i32 end = job.visible.of(bottom >> call.group_bits).end;
    const i32 first = job.visible.of(top >> call.group_bits).first;
    if (end <= (part.end - 1) * S::N) part.end = max(part.end - 1, part.first + 1);
    if (first >= (part.first + 1) * S::N && part.count() > 1) part.first++;
    return part;
}

// Turns that a warpgroup has to let pass, for all to take as many.
template <class S, class JOB>
__device__ __forceinline__ i32 idle_turns(const Call& call, const JOB& job, const Part& mine) {
    i32 most = 0;
#pragma unroll
    for (int wg = 0; wg < S::WGS; wg++) most = max(most, part_of<S>(call, job, wg).count());
    return most - mine.count();
}

}  // namespace attention
