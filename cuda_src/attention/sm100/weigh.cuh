// A softmax warpgroup: scores of one tile come out of Tensor Memory, weights go back.
#pragma once

#include "attention/sm100/load.cuh"
#include "attention/sm100/row_softmax.cuh"

namespace attention {

template <class S, Mask MASK, Keys KEYS, u32 TERMS, int SLACK, int POLY> struct Weigher {
    using T = typename S::T;

    const Roles<S>& shared;
    const Call& call;
    const Terms<T>& terms;
    Columns<S> columns;
    int tile;
    f32 c;
    u32 scored_parity = 0, heard_parity = 1;
    Interval seen;  // by this thread's row
    RowTerms<T, TERMS> added;

    __device__ __forceinline__ void start(const Work<S, MASK, KEYS>& job) {
        const Row row = row_at(call, job, job.row + tile * S::ROWS + threadIdx.x % S::ROWS);
        seen = job.visible.of(row.query);
        if constexpr (TERMS != 0) {
            added = {};
            if (row.exists)
                added.start(terms, job.batch, row.head, row.query,
                            call.lengths.q_offsets != nullptr ? 0 : job.batch,
                            job.sequence.q_first + row.query, job.visible.shift);
        }
    }

    // Whether block j holds keys that some row of this tile must not see.
    __device__ __forceinline__ bool partial(const Work<S, MASK, KEYS>& job, i32 j) const {
        const i32 row = job.row + tile * S::ROWS;
        bool hidden = (j + 1) * S::N > job.visible.of(row >> call.group_bits).end;
        if constexpr (MASK == Mask::window)
            hidden = hidden ||
                     j * S::N < job.visible.of((row + S::ROWS - 1) >> call.group_bits).first;
        return hidden;
    }

    // A block's scores, hidden where they must be.
    __device__ __forceinline__ void read(f32 (&s)[S::N], const Work<S, MASK, KEYS>& job, i32 j) {
        mbarrier::wait(shared.scored(tile), scored_parity);
        scored_parity ^= 1;
        tcgen05::fence_after();
#pragma unroll
        for (int i = 0; i < S::N; i += tcgen05::ROW_COLUMNS)
            tcgen05::load_row(s + i, columns.scores(tile) + columns.lanes() + i);
        tcgen05::wait_load();
        if constexpr (TERMS != 0)
            add_row_terms(s, added, j * S::N, job.sequence.keys, terms);
        if (partial(job, j)) hide_row<MASK>(s, seen, j * S::N);
    }

    __device__ __forceinline__ void block(RowSoftmax<SLACK, POLY>& softmax,
                                          const Work<S, MASK, KEYS>& job, i32 j, bool first) {
        f32 s[S::N];
        read(s, job, j);
        const f32 factor = softmax.rise(top_of(s), c);
        if (!first) {  // of the first block there is nothing to rescale
            shared.statistics().factor[tile][threadIdx.x % S::ROWS] = factor;
            arrive_warp(shared.risen(tile));
        }
#pragma unroll
        for (int i = 0; i < S::N; i += 32) {
            u32 w[16];
            softmax.template weigh<T>(s + i, c, w);
            tcgen05::store_row(columns.weights(tile) + columns.lanes() + i / 2, w);
        }
        tcgen05::wait_store();
        tcgen05::fence_before();
        arrive_warp(shared.ready(tile));
    }

    __device__ __forceinline__ void run(const Work<S, MASK, KEYS>& job) {
        if (job.empty()) return;
        const i32 thread = threadIdx.x % S::ROWS;
        start(job);
        RowSoftmax<SLACK, POLY> softmax;
        const Interval blocks = blocks_of<S>(call, job, tile);
        for (i32 j = blocks.end - 1; j >= blocks.first; j--)
            block(softmax, job, j, j == blocks.end - 1);

        mbarrier::wait(shared.heard(tile), heard_parity);
        heard_parity ^= 1;
        shared.statistics().max[tile][thread] = softmax.max;
        shared.statistics().sum[tile][thread] = softmax.sum;
        arrive_warp(shared.summed(tile));
    }
};

}  // namespace attention
