// The producer warpgroup: one warp brings keys and values, another queries, a tile ahead if they can.
#pragma once

#include "attention/sm90/job.cuh"

namespace attention {

struct Maps {
    const TensorMap &q, &k, &v;
};

// Keys of block j, then values of the block before: in the order in which consumers want them.
template <class S, Mask MASK, Keys KEYS, int CTAS>
__device__ __forceinline__ void load_keys(const Shared<S>& shared, const Maps& maps,
                                          const Call& call, const Job<S, MASK, KEYS, CTAS>& job,
                                          Cursor<S::STAGES>& at_k, Cursor<S::STAGES>& at_v) {
    const u32 rank = CTAS > 1 ? cluster::rank() : 0;
    Pages pages = call.pages;
    if constexpr (KEYS == Keys::paged) pages.table += i64(job.batch) * call.table_batch;
    const i32 head = job.head / call.share;
    const i32 batch = KEYS != Keys::dense && call.lengths.k_offsets != nullptr ? 0 : job.batch;
    const Source<S, KEYS, CTAS> keys{maps.k, head, batch, job.sequence.k_first, job.sequence.keys,
                                     pages};
    const Source<S, KEYS, CTAS> values{maps.v, head, batch, job.sequence.k_first,
                                       job.sequence.keys, pages};
    const auto fetch_values = [&](i32 j) {
        mbarrier::wait(shared.v_empty(at_v.stage), at_v.parity ^ 1);
        values.template fetch<S::V_SLABS>(shared.v(at_v.stage), shared.v_full(at_v.stage), j * S::N,
                                          rank);
        at_v.next();
    };
    for (i32 j = job.end - 1; j >= job.first; j--) {
        mbarrier::wait(shared.k_empty(at_k.stage), at_k.parity ^ 1);
        keys.template fetch<S::K_SLABS>(shared.k(at_k.stage), shared.k_full(at_k.stage), j * S::N,
                                        rank);
        at_k.next();
        if (j < job.end - 1) fetch_values(j + 1);
    }
    fetch_values(job.first);
}

// A warpgroup's queries, as soon as it has let go of the last tile's. One warp.
template <class S, Mask MASK, Keys KEYS, int CTAS>
__device__ __forceinline__ void load_queries(const Shared<S>& shared, const TensorMap& map,
                                             const Call& call,
                                             const Job<S, MASK, KEYS, CTAS>& job, u32 parity) {
    const i32 batch = KEYS != Keys::dense && call.lengths.q_offsets != nullptr ? 0 : job.batch;
    for (int wg = 0; wg < S::WGS; wg++) {
        const i32 query = job.sequence.q_first + (job.row + wg * S::ROWS) / call.group;
        mbarrier::wait(shared.q_empty(wg), parity ^ 1);
        if (warp::lane() != 0) continue;
        mbarrier::arrive_and_expect(shared.q_full(wg), S::Q_BYTES);
#pragma unroll
        for (int slab = 0; slab < S::K_SLABS; slab++)
            tma::load(shared.q(wg) + slab * S::Q_SLAB, map, shared.q_full(wg),
                      {slab * S::COLS, 0, query, job.head, batch});
    }
}

}  // namespace attention
