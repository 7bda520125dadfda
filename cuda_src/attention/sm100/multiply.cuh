// The warp that starts all products, in the order in which the tensor core is to do them:
//     S0  S1 | O0 S0'  O1 S1' | O0' S0''  O1' S1'' | ...
// While the softmax of one tile runs, the tensor core works for the other.
#pragma once

#include "attention/sm100/shared.cuh"

namespace attention {

template <class S> struct Multiplier {
    const Roles<S>& shared;
    Columns<S> columns;
    bool leader;  // one lane, the same always: a commit stands for the products of its thread
    Cursor<S::STAGES> at;
    u32 q_parity = 0, ready_parity = 0;

    __device__ __forceinline__ void await(Barrier* barrier, u32 parity) const {
        mbarrier::wait(barrier, parity);
        tcgen05::fence_after();
    }
    __device__ __forceinline__ void commit(Barrier* barrier) const {
        if (leader) tcgen05::commit<1>(barrier);
    }
    // `last`: of these queries.
    __device__ __forceinline__ void scores(int tile, u32 stage, bool last) const {
        if (leader)
            multiply_scores<S>(columns.scores(tile), shared.q(tile), shared.stage(stage));
        commit(shared.scored(tile));
        if (last) commit(shared.q_empty(tile));
    }
    __device__ __forceinline__ void values(int tile, u32 stage, bool add) const {
        if (leader)
            multiply_values<S>(columns.sums(tile), columns.weights(tile), shared.stage(stage), add);
    }

    __device__ __forceinline__ void begin(bool last) {
        await(shared.full(at.stage), at.parity);
#pragma unroll
        for (int tile = 0; tile < S::TILES; tile++) {
            await(shared.q_full(tile), q_parity);
            scores(tile, at.stage, last);
        }
        commit(shared.empty(at.stage));
        at.next();
        q_parity ^= 1;
    }

    // Sums of a block, and scores of the next one.
    __device__ __forceinline__ void step(bool first, bool last, bool last_but_one) {
        const u32 v = at.stage;
        await(shared.full(v), at.parity);
        at.next();
#pragma unroll
        for (int tile = 0; tile < S::TILES; tile++) {
            await(shared.ready(tile), ready_parity);
            values(tile, v, !first);
            if (tile == S::TILES - 1) commit(shared.empty(v));
            if (last) {
                commit(shared.done(tile));
                continue;
            }
            if (tile == 0) await(shared.full(at.stage), at.parity);
            scores(tile, at.stage, last_but_one);
        }
        ready_parity ^= 1;
        if (last) return;
        commit(shared.empty(at.stage));
        at.next();
    }

    // All blocks of a job.
    __device__ __forceinline__ void run(i32 blocks) {
        begin(blocks == 1);
        for (i32 i = 0; i < blocks; i++) step(i == 0, i == blocks - 1, i == blocks - 2);
    }
};

}  // namespace attention
