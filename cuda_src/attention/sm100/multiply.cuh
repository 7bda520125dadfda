// The warp that starts all products, in the order in which the tensor core is to do them:
//     S0  S1 | O0 S0'  O1 S1' | O0' S0''  O1' S1'' | ...
// While the softmax of one tile runs, the tensor core works for the other. Blocks of keys that only one
// tile sees are skipped for the other.
#pragma once

#include "attention/sm100/load.cuh"

namespace attention {

template <class S, Mask MASK, Keys KEYS> struct Multiplier {
    const Roles<S>& shared;
    const Call& call;
    Columns<S> columns;
    bool leader;  // one lane, the same always: a commit stands for the products of its thread
    Cursor<S::STAGES> at;
    u32 q_parity = 0, ready_parity[S::TILES] = {};
    Interval blocks[S::TILES];

    __device__ __forceinline__ void await(Barrier* barrier, u32 parity) const {
        mbarrier::wait(barrier, parity);
        tcgen05::fence_after();
    }
    __device__ __forceinline__ void commit(Barrier* barrier) const {
        if (leader) tcgen05::commit<1>(barrier);
    }
    __device__ __forceinline__ bool takes(int tile, i32 j) const {
        return j >= blocks[tile].first && j < blocks[tile].end;
    }

    // Scores of block j, whose keys are in the next stage.
    __device__ __forceinline__ void keys(int tile, i32 j) const {
        if (!takes(tile, j)) return;
        if (leader)
            multiply_scores<S>(columns.scores(tile), shared.q(tile), shared.stage(at.stage));
        commit(shared.scored(tile));
        if (j == blocks[tile].first) commit(shared.q_empty(tile));
    }

    // Sums of block j, whose values are in a stage.
    __device__ __forceinline__ void values(int tile, i32 j, u32 stage) {
        if (!takes(tile, j)) return;
        await(shared.ready(tile), ready_parity[tile]);
        ready_parity[tile] ^= 1;
        if (leader)
            multiply_values<S>(columns.sums(tile), columns.weights(tile), shared.stage(stage),
                               j != blocks[tile].end - 1);
        if (j == blocks[tile].first) commit(shared.done(tile));
    }

    __device__ __forceinline__ void begin(i32 j) {
        await(shared.full(at.stage), at.parity);
#pragma unroll
        for (int tile = 0; tile < S::TILES; tile++) {
            await(shared.q_full(tile), q_parity);
            keys(tile, j);
        }
        commit(shared.empty(at.stage));
        at.next();
        q_parity ^= 1;
    }

    // Sums of block j, and scores of the one to its left, if there is one.
    __device__ __forceinline__ void step(i32 j, bool last) {
        const u32 v = at.stage;
        await(shared.full(v), at.parity);
        at.next();
#pragma unroll
        for (int tile = 0; tile < S::TILES; tile++) {
            values(tile, j, v);
            if (tile == S::TILES - 1) commit(shared.empty(v));
            if (last) continue;
            if (tile == 0) await(shared.full(at.stage), at.parity);
            keys(tile, j - 1);
        }
        if (last) return;
        commit(shared.empty(at.stage));
        at.next();
    }

    __device__ __forceinline__ void run(const Work<S, MASK, KEYS>& job) {
        if (job.empty()) return;
#pragma unroll
        for (int tile = 0; tile < S::TILES; tile++) blocks[tile] = blocks_of<S>(call, job, tile);
        begin(job.end - 1);
        for (i32 j = job.end - 1; j >= job.first; j--) step(j, j == job.first);
    }
};

}  // namespace attention
