// Bringing 8-bit keys and values into shared memory.
#pragma once

#include "attention/sm90/fp8_shape.cuh"
#include "attention/sm90/job.cuh"

namespace attention {

// Keys and values of tile after tile, by one warp. Values are asked for together with the keys of their
// block, although they are needed a step later: until then they are transposed.
template <class S, Mask MASK, Keys KEYS> struct Loader8 {
    using JOB = Job<S, MASK, KEYS, 1>;

    const Shared<S>& shared;
    const TensorMap &map_k, &map_v;
    const Call& call;
    Cursor<S::STAGES> at_k;
    Cursor<S::V_STAGES> at_v;

    __device__ __forceinline__ void tile(const JOB& job) {
        Pages pages = call.pages;
        if constexpr (KEYS == Keys::paged) pages.table += i64(job.batch) * call.table_batch;
        const bool ragged = KEYS != Keys::dense && call.lengths.k_offsets != nullptr;
        Source<S, KEYS, 1> from{&map_k, job.head / call.share, ragged ? 0 : job.batch,
                                job.sequence.k_first, job.sequence.keys, pages};
        for (i32 j = job.end - 1; j >= job.first; j--, at_k.next(), at_v.next()) {
            from.map = &map_k;
            mbarrier::wait(shared.k_empty(at_k.stage), at_k.parity ^ 1);
            from.template fetch<S::K_SLABS>(shared.k(at_k.stage), shared.k_full(at_k.stage), j * S::N, 0);
            from.map = &map_v;
            mbarrier::wait(shared.v_empty(at_v.stage), at_v.parity ^ 1);
            from.template fetch<S::V_SLABS>(shared.v(at_v.stage), shared.v_full(at_v.stage), j * S::N, 0);
        }
    }
};

}  // namespace attention
