// Which blocks of a tile's keys a warpgroup works on.
//
// A tile's warpgroups walk the same blocks, but the queries of the first do not see the last keys, nor, with
// a window, those of the last the first keys. Of 256 queries and a window of 1024 keys a tile has twenty
// blocks of 64, and every warpgroup has something to do in seventeen.
//
// Between two blocks of its own a warpgroup leaves out fewer than there are stages: it keeps the values of
// the first meanwhile, and warps that did not see a stage's round end must not come upon its next. The
// first leaves out none at the left, the last none at the right, those between at both ends.
#pragma once

#include "attention/sm90/job.cuh"

namespace attention {

struct Part {
    i32 first, end;

    __device__ __forceinline__ i32 count() const { return end - first; }
};

template <class S, class JOB>
__device__ __forceinline__ Part part_of(const Call& call, const JOB& job, int wg) {
    constexpr i32 APART = ((S::WGS - 1) * S::ROWS + S::N - 1) / S::N, LESS = S::STAGES - 1;
    constexpr i32 ROOM = S::WGS > 2 ? LESS / 2 : LESS;
    constexpr i32 SKIP = APART < ROOM ? APART : ROOM;
    const i32 top = job.row + wg * S::ROWS, bottom = min(top + S::ROWS, job.rows) - 1;
    const i32 end = job.visible.of(bottom >> call.group_bits).end;
    const i32 first = job.visible.of(top >> call.group_bits).first;
    Part part;
    part.end = max(max((end + S::N - 1) / S::N, job.end - SKIP), job.first + 1);
    part.first = min(min(max(first / S::N, job.first), job.first + SKIP), part.end - 1);
    return part;
}

}  // namespace attention
