// The producer warpgroup of persistent CTAs: it takes tiles and brings what they need.
#pragma once

#include "attention/sm90/load.cuh"

namespace attention {

// A CTA that is gone could not be told that a stage is free: stay until all of them are.
template <class S>
__device__ __forceinline__ void await_all(const Shared<S>& shared, Cursor<S::STAGES> at_k,
                                          Cursor<S::STAGES> at_v) {
    for (int i = 0; i < S::STAGES; i++, at_k.next(), at_v.next()) {
        mbarrier::wait(shared.k_empty(at_k.stage), at_k.parity ^ 1);
        mbarrier::wait(shared.v_empty(at_v.stage), at_v.parity ^ 1);
    }
}

template <class S, Mask MASK, Keys KEYS, int CTAS>
__device__ __forceinline__ void produce(const Shared<S>& shared, const Maps& maps,
                                        const Call& call) {
    using Work = Job<S, MASK, KEYS, CTAS>;
    const u32 rank = CTAS > 1 ? cluster::rank() : 0;
    const Ticket ticket = shared.ticket();
    if (warp::index() == 0) {
        Loader<S, MASK, KEYS, CTAS> loader{shared, maps, call, rank};
        ticket.lead(call.schedule, blockIdx.x / CTAS, gridDim.x / CTAS,
                    [&](const Tile& tile) { loader.tile(Work(call, tile, rank)); });
        loader.flush();
        if constexpr (CTAS > 1) await_all(shared, loader.at_k, loader.at_v);
    } else if (warp::index() == 1) {
        u32 parity = 0;
        ticket.for_each([&](const Tile& tile) {
            const Work job(call, tile, rank);
            if (job.empty()) return;
            prefetch_queries(maps.q, call, job);
            load_queries(shared, maps.q, call, job, parity);
            parity ^= 1;
        });
    }
    __syncwarp();
}

}  // namespace attention
