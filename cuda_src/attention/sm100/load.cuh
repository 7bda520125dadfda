// The warp that takes jobs and brings queries, keys and values.
#pragma once

#include "attention/sm100/shared.cuh"

namespace attention {

struct Maps {
    const TensorMap &q, &k, &v, &out;
};

template <class S, Mask MASK, Keys KEYS> using Work = Job<S, MASK, KEYS, 1>;

// Blocks of keys and values come alternately, as products want them: K, V, K, V, ... One warp.
template <class S, Mask MASK, Keys KEYS> struct Loader {
    using From = Source<S, KEYS, 1>;

    const Roles<S>& shared;
    const Maps& maps;
    const Call& call;
    Cursor<S::STAGES> at;
    u32 q_parity = 1;

    __device__ __forceinline__ From source(const TensorMap& map,
                                           const Work<S, MASK, KEYS>& job) const {
        Pages pages = call.pages;
        if constexpr (KEYS == Keys::paged) pages.table += i64(job.batch) * call.table_batch;
        const bool ragged = KEYS != Keys::dense && call.lengths.k_offsets != nullptr;
        return {&map, job.head / call.share, ragged ? 0 : job.batch, job.sequence.k_first,
                job.sequence.keys, pages};
    }

    template <int SLABS> __device__ __forceinline__ void fetch(const From& from, i32 j) {
        mbarrier::wait(shared.empty(at.stage), at.parity ^ 1);
        from.template fetch<SLABS>(shared.stage(at.stage), shared.full(at.stage), j * S::N, 0);
        at.next();
    }

    // Boxes of 64 queries, as on Hopper.
    __device__ __forceinline__ void fetch_queries(const Work<S, MASK, KEYS>& job) {
        constexpr int BOX = 64;
        const i32 batch = KEYS != Keys::dense && call.lengths.q_offsets != nullptr ? 0 : job.batch;
        for (int tile = 0; tile < S::TILES; tile++) {
            Barrier* full = shared.q_full(tile);
            mbarrier::wait(shared.q_empty(tile), q_parity);
            if (warp::lane() != 0) continue;
            mbarrier::arrive_and_expect(full, S::Q_BYTES);
            for (int row = 0; row < S::ROWS; row += BOX) {
                const i32 query = job.sequence.q_first +
                                  ((job.row + tile * S::ROWS + row) >> call.group_bits);
#pragma unroll
                for (int slab = 0; slab < S::K_SLABS; slab++)
                    tma::load(shared.q(tile) + slab * S::Q_SLAB + row * S::ROW, maps.q, full,
                              {slab * S::COLS, 0, query, job.head, batch});
            }
        }
        q_parity ^= 1;
    }

    __device__ __forceinline__ void run(const Work<S, MASK, KEYS>& job) {
        if (job.empty()) return;
        const From keys = source(maps.k, job), values = source(maps.v, job);
        for (i32 j = job.end - 1; j >= job.first; j--) {
            fetch<S::K_SLABS>(keys, j);
            if (j == job.end - 1) fetch_queries(job);
            fetch<S::V_SLABS>(values, j);
        }
    }

    // A CTA that is gone could not be told that a stage is empty: stay until all are.
    __device__ __forceinline__ void await_all() {
        for (int i = 0; i < S::STAGES; i++, at.next())
            mbarrier::wait(shared.empty(at.stage), at.parity ^ 1);
    }
};

// Calls `work(tile)` for this CTA's tiles and tells the other roles of each; by one warp. CTAs are launched
// in the schedule's order, so those that have not started are its end: whoever is done takes over the
// next of them. It asks once it has asked for the last keys, no sooner (sm90/schedule.cuh says why).
template <class S, class Run>
__device__ __forceinline__ void lead(const Roles<S>& shared, const Schedule& schedule, Run work) {
    const Ticket ticket = shared.ticket();
    const bool leader = warp::lane() == 0;
    u32 parity = 1;
    const auto tell = [&](const Tile& tile) {
        mbarrier::wait(ticket.empty, parity);
        if (leader) {
            *ticket.tile = make_int4(tile.m, tile.head, tile.batch, 0);
            mbarrier::arrive(ticket.full);
        }
        __syncwarp();
        parity ^= 1;
    };
    i32 block = blockIdx.x;
    bool more = true;
    for (u32 asked = 0; more; asked ^= 1) {
        const Tile tile = schedule.at(block);
        tell(tile);
        work(tile);
        if (leader) {
            mbarrier::arrive_and_expect(shared.told(), sizeof(clc::Answer));
            clc::ask(shared.answer(), shared.told());
        }
        mbarrier::wait(shared.told(), asked);
        more = clc::read(shared.answer(), block);
        tma::fence_shared();  // read, before it is written again
        __syncwarp();
    }
    tell({-1, 0, 0});
}

}  // namespace attention
