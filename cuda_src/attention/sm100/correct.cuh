// The correction warpgroup: rescales sums where a maximum has grown, and sends the output off.
//
// Each of its four warps has 32 rows of both tiles, and works alone: its two pieces of 32 rows by 32
// columns go out by TMA stores of its own.
#pragma once

#include "attention/sm100/load.cuh"
#include "matmul/sm90/staging.cuh"

namespace attention {

// Where the LSE goes; steps in elements.
struct Logarithms {
    f32* lse;  // or null
    i64 token, head, batch;
    const f32* sinks;  // [heads], or null
};

template <class S, Mask MASK, Keys KEYS> struct Corrector {
    const Roles<S>& shared;
    const Maps& maps;
    const Call& call;
    Columns<S> columns;
    Logarithms to;
    f32 c;
    u32 risen_parity[S::TILES] = {}, done_parity = 0, turn = 0;

    static __device__ __forceinline__ i32 row() { return threadIdx.x % S::ROWS; }  // of a tile

    // Multiplies this warp's sums, if any of its rows needs it. The product that they came from is over:
    // the scores that the factor was made of came behind it.
    __device__ __forceinline__ void rescale(int tile, f32 factor) const {
        if (!__any_sync(0xffffffff, factor != 1.0f)) return;
        tcgen05::fence_after();
        const u32 sums = columns.sums(tile) + columns.lanes();
#pragma unroll 1
        for (int i = 0; i < S::DV_PAD; i += tcgen05::ROW_COLUMNS) {
            f32 o[tcgen05::ROW_COLUMNS];
            tcgen05::load_row(o, sums + i);
            tcgen05::wait_load();
#pragma unroll
            for (int k = 0; k < tcgen05::ROW_COLUMNS; k++) o[k] *= factor;
            tcgen05::store_row(sums + i, o);
        }
        tcgen05::wait_store();
        tcgen05::fence_before();
    }

    // This warp's rows of a piece, in f32, to shared memory and off.
    __device__ __forceinline__ void send(const f32 (&o)[PIECE_COLUMNS], f32 factor, tma::At at) {
        u8* piece = shared.piece(warp::index() % 4, turn);
        const bool leader = warp::lane() == 0;
        if (leader) tma::wait_read<1>();  // the store before the last has read this buffer
        __syncwarp();
#pragma unroll
        for (int chunk = 0; chunk < 4; chunk++) {
            u32 w[4];
#pragma unroll
            for (int i = 0; i < 4; i++)
                w[i] = pack<typename S::T>(o[chunk * 8 + 2 * i] * factor,
                                           o[chunk * 8 + 2 * i + 1] * factor);
            *reinterpret_cast<uint4*>(
                piece + staging::swizzled<PIECE_PITCH>(warp::lane(), chunk)) =
                make_uint4(w[0], w[1], w[2], w[3]);
        }
        tma::fence_shared();
        __syncwarp();
        if (leader) {
            tma::store(maps.out, piece, at);
            tma::commit();
        }
        turn ^= 1;
    }

    // Where the warp's first row goes. Rows past a sequence's end must not be written: as those of keys
    // (sm90/keys.cuh), they are made to lie outside the tensor.
    __device__ __forceinline__ tma::At place(const Work<S, MASK, KEYS>& job, i32 first) const {
        const i32 query = job.sequence.q_first + (first >> call.group_bits);
        if constexpr (KEYS == Keys::dense) return {0, 0, query, job.head, job.batch};
        const i32 valid = min(job.rows - first, warp::SIZE);
        return {0, warp::SIZE - valid, query + valid, job.head,
                call.lengths.q_offsets != nullptr ? 0 : job.batch};
    }

    __device__ __forceinline__ Ending ending(const Work<S, MASK, KEYS>& job, int tile, f32 max,
                                             f32 sum) const {
        const Row at = row_at(call, job, job.row + tile * S::ROWS + row());
        const f32 sink =
            to.sinks != nullptr && at.exists ? to.sinks[at.head] : minus_infinity();
        const Ending end(max, sum, c, sink);
        const i64 batch = call.lengths.q_offsets != nullptr ? 0 : job.batch;
        if (to.lse != nullptr && at.exists)
            to.lse[batch * to.batch + at.head * to.head +
                   (job.sequence.q_first + at.query) * to.token] = end.lse;
        return end;
    }

    // SUMS false: zeros, of a job without keys.
    template <bool SUMS>
    __device__ __forceinline__ void finish(const Work<S, MASK, KEYS>& job, int tile, f32 factor) {
        const i32 first = job.row + tile * S::ROWS + warp::index() % 4 * warp::SIZE;
        const u32 sums = columns.sums(tile) + columns.lanes();
        tma::At at = place(job, first);
#pragma unroll 1
        for (int i = 0; i < S::DV_PAD; i += PIECE_COLUMNS) {
            f32 o[PIECE_COLUMNS] = {};
            if constexpr (SUMS) {
                tcgen05::load_row(o, sums + i);
                tcgen05::wait_load();
            }
            at.x = i;
            if (first < job.rows) send(o, factor, at);
        }
    }

    // A block behind the first.
    __device__ __forceinline__ void correct(int tile) {
        mbarrier::wait(shared.risen(tile), risen_parity[tile]);
        risen_parity[tile] ^= 1;
        rescale(tile, shared.statistics().factor[tile][row()]);
        arrive_warp(shared.ready(tile));
    }

    __device__ __forceinline__ void end(const Work<S, MASK, KEYS>& job, int tile) {
        mbarrier::wait(shared.summed(tile), done_parity);
        const f32 max = shared.statistics().max[tile][row()];
        const f32 sum = shared.statistics().sum[tile][row()];
        arrive_warp(shared.heard(tile));
        const Ending last = ending(job, tile, max, sum);
        mbarrier::wait(shared.done(tile), done_parity);
        tcgen05::fence_after();
        finish<true>(job, tile, last.factor);
        tcgen05::fence_before();
    }

    __device__ __forceinline__ void run(const Work<S, MASK, KEYS>& job) {
        if (job.empty()) {
            for (int tile = 0; tile < S::TILES; tile++)
                finish<false>(job, tile, ending(job, tile, minus_infinity(), 0.0f).factor);
            return;
        }
        Interval blocks[S::TILES];
#pragma unroll
        for (int tile = 0; tile < S::TILES; tile++) {
            blocks[tile] = blocks_of<S>(call, job, tile);
            arrive_warp(shared.ready(tile));  // the sums of the job before have been read
        }
        for (i32 j = job.end - 2; j >= job.first; j--) {
#pragma unroll
            for (int tile = 0; tile < S::TILES; tile++)
                if (j >= blocks[tile].first && j < blocks[tile].end - 1) correct(tile);
        }
        for (int tile = 0; tile < S::TILES; tile++) end(job, tile);
        done_parity ^= 1;
    }
};

}  // namespace attention
