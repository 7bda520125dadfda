// The producer warpgroup: one warp brings keys and values, another queries, a tile ahead if they can.
#pragma once

#include "attention/sm90/job.cuh"

namespace attention {

struct Maps {
    const TensorMap &q, &k, &v;
};

// Keys and values of tile after tile, by one warp.
template <class S, Mask MASK, Keys KEYS, int CTAS> struct Loader {
    using From = Source<S, KEYS, CTAS>;

    const Shared<S>& shared;
    const Maps& maps;
    const Call& call;
    u32 rank;
    Cursor<S::STAGES> at_k, at_v;
    From values;      // whose block `due` is the next to come, if that is not negative
    i32 due = -1;

    __device__ __forceinline__ From source(const TensorMap& map,
                                           const Job<S, MASK, KEYS, CTAS>& job) const {
        Pages pages = call.pages;
        if constexpr (KEYS == Keys::paged) pages.table += i64(job.batch) * call.table_batch;
        const bool ragged = KEYS != Keys::dense && call.lengths.k_offsets != nullptr;
        return {&map, job.head / call.share, ragged ? 0 : job.batch, job.sequence.k_first,
                job.sequence.keys, pages};
    }

    // Keys of a block, then values of the block before it, be it the last of another tile: in the order
    // in which consumers want them.
    __device__ __forceinline__ void tile(const Job<S, MASK, KEYS, CTAS>& job) {
        const From keys = source(maps.k, job);
        for (i32 j = job.end - 1; j >= job.first; j--) {
            mbarrier::wait(shared.k_empty(at_k.stage), at_k.parity ^ 1);
            keys.template fetch<S::K_SLABS>(shared.k(at_k.stage), shared.k_full(at_k.stage),
                                            j * S::N, rank);
            at_k.next();
            flush();
            if (j == job.end - 1) values = source(maps.v, job);
            due = j;
        }
    }
    __device__ __forceinline__ void flush() {
        if (due < 0) return;
        mbarrier::wait(shared.v_empty(at_v.stage), at_v.parity ^ 1);
        values.template fetch<S::V_SLABS>(shared.v(at_v.stage), shared.v_full(at_v.stage),
                                          due * S::N, rank);
        at_v.next();
        due = -1;
    }
};

// Where part `slab` of a warpgroup's queries lies.
template <class S, Keys KEYS, class JOB>
__device__ __forceinline__ tma::At query_box(const Call& call, const JOB& job, int wg, int slab) {
    const i32 batch = KEYS != Keys::dense && call.lengths.q_offsets != nullptr ? 0 : job.batch;
    const i32 query = job.sequence.q_first + ((job.row + wg * S::ROWS) >> call.group_bits);
    return {slab * S::COLS, 0, query, job.head, batch};
}

// Brings a tile's queries into L2, before there is room for them here. One warp.
template <class S, Mask MASK, Keys KEYS, int CTAS>
__device__ __forceinline__ void prefetch_queries(const TensorMap& map, const Call& call,
                                                 const Job<S, MASK, KEYS, CTAS>& job) {
    const int wg = warp::lane() / S::K_SLABS, slab = warp::lane() % S::K_SLABS;
    if (wg < S::WGS) tma::prefetch(map, query_box<S, KEYS>(call, job, wg, slab));
}

// A warpgroup's queries, as soon as it has let go of the last tile's. One warp.
template <class S, Mask MASK, Keys KEYS, int CTAS>
__device__ __forceinline__ void load_queries(const Shared<S>& shared, const TensorMap& map,
                                             const Call& call,
                                             const Job<S, MASK, KEYS, CTAS>& job, u32 parity) {
    for (int wg = 0; wg < S::WGS; wg++) {
        mbarrier::wait(shared.q_empty(wg), parity ^ 1);
        if (warp::lane() != 0) continue;
        mbarrier::arrive_and_expect(shared.q_full(wg), S::Q_BYTES);
#pragma unroll
        for (int slab = 0; slab < S::K_SLABS; slab++)
            tma::load(shared.q(wg) + slab * S::Q_SLAB, map, shared.q_full(wg),
                      query_box<S, KEYS>(call, job, wg, slab));
    }
}

}  // namespace attention
