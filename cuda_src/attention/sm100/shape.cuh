// The tile of a Blackwell attention kernel: what it takes of shared memory and of Tensor Memory, and its
// two products.
//
// TILES tiles of 128 queries walk the keys N at a time. Rows of Q, K and V lie in slabs of 64 columns: 128
// bytes, one swizzle atom wide. Tensor Memory, by columns:
//     scores  [TILES][N]        S = Q K^T, 32 bits; weights P, 16 bits, take the place of the first half
//     sums    [TILES][DV_PAD]   O += P V
// With N = DV = 128 and two tiles all 512 are in use.
#pragma once

#include "attention/sm90/job.cuh"
#include "common/tcgen05_rows.cuh"

namespace attention {

template <class T_, int D_, int DV_, int N_, int TILES_, int STAGES_> struct TensorShape {
    using T = T_;
    static constexpr int D = D_, DV = DV_, N = N_, TILES = TILES_, STAGES = STAGES_;
    static constexpr int WGS = TILES, ROWS = 128;  // what Job calls them
    static constexpr int ROW = 128, COLS = ROW / int(sizeof(T));
    static constexpr int K_SLABS = (D + COLS - 1) / COLS, V_SLABS = (DV + COLS - 1) / COLS;
    static constexpr int SLAB = N * ROW, Q_SLAB = ROWS * ROW;
    static constexpr int Q_BYTES = K_SLABS * Q_SLAB;  // of a tile
    static constexpr int STAGE_BYTES = (K_SLABS > V_SLABS ? K_SLABS : V_SLABS) * SLAB;

    // Columns of V behind DV are zeros that TMA has filled in.
    static constexpr int DV_PAD = (DV + 31) / 32 * 32;
    static constexpr u32 SUMS = TILES * N;  // column where they start

    static constexpr tcgen05::Format F =
        sizeof(T) == 2 && tcgen05::TYPE<T> == 1 ? tcgen05::Format::bf16 : tcgen05::Format::f16;
    static constexpr u32 SCORES_SHAPE =
        tcgen05::shape(F, ROWS, N, tcgen05::Major::k, tcgen05::Major::k);
    static constexpr u32 VALUES_SHAPE =
        tcgen05::shape(F, ROWS, DV_PAD, tcgen05::Major::k, tcgen05::Major::mn);

    static_assert(N % 32 == 0 && D % 8 == 0 && DV % 8 == 0);
    static_assert(TILES * (N + DV_PAD) <= int(tcgen05::COLUMNS), "scores and sums fit");
};

// Addresses in Tensor Memory.
template <class S> struct Columns {
    u32 base;

    __device__ __forceinline__ u32 scores(int tile) const { return base + tile * S::N; }
    __device__ __forceinline__ u32 weights(int tile) const { return scores(tile); }
    __device__ __forceinline__ u32 sums(int tile) const {
        return base + S::SUMS + tile * S::DV_PAD;
    }
    // The lanes of the calling warp.
    static __device__ __forceinline__ u32 lanes() { return warp::index() % 4 * 32 << 16; }
};

// Both only start the product; one thread. `q` and `k` are K-major, `v` runs along its columns.
template <class S> __device__ __forceinline__ void multiply_scores(u32 d, const u8* q, const u8* k) {
    const u64 a = tcgen05::descriptor(mbarrier::address(q), 16, 1024, tcgen05::Swizzle::b128);
    const u64 b = tcgen05::descriptor(mbarrier::address(k), 16, 1024, tcgen05::Swizzle::b128);
#pragma unroll
    for (int kk = 0; kk < (S::D + 15) / 16; kk++) {
        const u32 slab = kk / 4, bytes = kk % 4 * 32;
        tcgen05::mma<1>(d, tcgen05::advance(a, slab * S::Q_SLAB + bytes),
                        tcgen05::advance(b, slab * S::SLAB + bytes), S::SCORES_SHAPE, kk != 0);
    }
}

template <class S>
__device__ __forceinline__ void multiply_values(u32 d, u32 p, const u8* v, bool add) {
    const u64 b =
        tcgen05::descriptor(mbarrier::address(v), S::SLAB, 1024, tcgen05::Swizzle::b128);
#pragma unroll
    for (int kk = 0; kk < S::N / 16; kk++)
        tcgen05::multiply_rows(d, p + 8 * kk, tcgen05::advance(b, kk * 16 * S::ROW),
                               S::VALUES_SHAPE, add || kk != 0);
}

// Blocks of keys, [first, end), that some row of a tile sees: not all that the job walks. A tile that sees
// none, or has no rows, takes one of the job's all the same, hidden, so that every role has a beginning
// and an end.
template <class S, class JOB>
__device__ __forceinline__ Interval blocks_of(const Call& call, const JOB& job, int tile) {
    const i32 row = job.row + tile * S::ROWS, last = min(row + S::ROWS, job.rows) - 1;
    if (row > last) return {job.end - 1, job.end};
    const Interval top = job.visible.of(row >> call.group_bits);
    const Interval bottom = job.visible.of(last >> call.group_bits);
    const i32 first = min(top.first / S::N, job.end - 1);
    return {first, max((bottom.end + S::N - 1) / S::N, first + 1)};
}

// Row `row` of a job, counted in its sequence.
template <class JOB> __device__ __forceinline__ Row row_at(const Call& call, const JOB& job, i32 row) {
    const i32 query = row >> call.group_bits;
    return {(job.head << call.group_bits) + row - (query << call.group_bits), query,
            row < job.rows};
}

}  // namespace attention
