// From Tensor Memory to C: scales, bias, activation, residual; then row-major by TMA, or column-major by
// plain stores.
//
// A warp reaches 32 lanes of TMEM, which are 32 rows of the tile.
//   rows      fragments of 16 rows, as on Hopper, rounded and written by stmatrix to a piece of 32
//             columns in shared memory, which TMA sends off while the next piece is made
//   columns   thread t has row t: for each column a warp stores 32 neighbours of a column-major C, whole
//             sectors, at any address. This is how a transposed product leaves: its rows are C's columns
#pragma once

#include "common/warp.cuh"
#include "matmul/sm100/cta.cuh"
#include "matmul/sm90/staging.cuh"

// What C needs besides the sums; strides in elements.
template <class G> struct Result {
    using OUT = typename G::Out;
    OUT* C;
    i64 column, batch;  // of a column-major C
    i32 M, N;
    f32 alpha;
    Extras<OUT> extras;

    // A fragment of 16 rows and 32 columns; the same warp's block of 16 rows starts at `block`, less
    // the 16 rows that finish::Origin adds for each warp.
    __device__ __forceinline__ void finish(f32 (&d)[G::PIECE_COLS / 2], finish::Origin block) const {
        if constexpr (G::EXTRAS) {
            finish::extras<G::ACT, G::PIECE_COLS>(d, 0, extras, alpha, block, M, N);
        } else {
#pragma unroll
            for (int i = 0; i < G::PIECE_COLS / 2; i++) d[i] = act::apply<G::ACT>(d[i] * alpha);
        }
    }
    // This thread's row m of 16 columns from n.
    __device__ __forceinline__ void store(const f32 (&d)[16], i32 m, i32 n, i32 z) const {
        if (m >= M) return;
        RowTerms<OUT> row{alpha, 0.0f, nullptr};
        if constexpr (G::EXTRAS) row = extras.row(m, z, alpha);
        OUT* to = C + z * batch + n * column + m;
#pragma unroll
        for (int i = 0; i < 16; i++, to += column) {
            if (n + i >= N) break;
            if constexpr (G::EXTRAS)
                *to = from_f32<OUT>(
                    extras.template apply<G::ACT>(d[i], row, extras.column(n + i), n + i));
            else *to = from_f32<OUT>(act::apply<G::ACT>(d[i] * alpha));
        }
    }
};

// The accumulator has been read by this warp: let the group's leader multiply into it.
template <class G>
__device__ __forceinline__ void give_back(const Shared<G>& shared, const Cursor<G::SUMS>& sums) {
    tcgen05::fence_before();
    __syncwarp();
    if (warp::lane() != 0) return;
    if constexpr (G::CTAS == 1) mbarrier::arrive(&shared.taken[sums.at]);
    else mbarrier::arrive_remote(&shared.taken[sums.at], cluster::rank() & ~1u);
}

// A piece to one of two buffers and off; `turn` is the one that is next.
template <class G>
__device__ __forceinline__ void send(const Shared<G>& shared, u32 turn, f32 (&d)[2][G::PIECE_COLS / 2],
                                     const Maps& maps, const Part& part, i32 n) {
    constexpr int PITCH = G::PIECE_COLS * sizeof(typename G::Out);
    u8* piece = shared.pieces + turn * G::PIECE_BYTES;
    const u32 warp = warp::index();
    const bool sender = threadIdx.x == 0;
    if (sender) tma::wait_read<1>();  // the store before the last has read this buffer
    warp::sync(1, warp::GROUP);
#pragma unroll
    for (int half = 0; half < 2; half++)  // write_rows adds 16 rows for each warp
        staging::write_rows<typename G::Out, G::PIECE_COLS>(piece + (warp + half) * 16 * PITCH, d[half],
                                                            0);
    tma::fence_shared();
    warp::sync(1, warp::GROUP);
    if (sender) {
        tma::store(maps.c, piece, n, part.m, part.z);
        tma::commit();
    }
}

template <class G>
__device__ __forceinline__ void write_rows(const Shared<G>& shared, const Cursor<G::SUMS>& sums,
                                           u32 from, u32& turn, const Maps& maps,
                                           const Result<G>& result, const Part& part) {
    const i32 warp = warp::index();
#pragma unroll 1
    for (int i = 0; i < G::BN / G::PIECE_COLS; i++, turn ^= 1) {
        f32 d[2][G::PIECE_COLS / 2];
#pragma unroll
        for (int half = 0; half < 2; half++)
            tcgen05::load(d[half], from + (warp * 32 + half * 16 << 16) + i * G::PIECE_COLS);
        tcgen05::wait_load();
        if (i == G::BN / G::PIECE_COLS - 1) give_back(shared, sums);
        const i32 n = part.n + i * G::PIECE_COLS;
#pragma unroll
        for (int half = 0; half < 2; half++)
            result.finish(d[half], {part.m + (warp + half) * 16, n, part.z});
        send(shared, turn, d, maps, part, n);
    }
}

template <class G>
__device__ __forceinline__ void write_columns(const Shared<G>& shared, const Cursor<G::SUMS>& sums,
                                              u32 from, const Result<G>& result, const Part& part) {
    const i32 first = warp::index() * 32, m = part.m + first + warp::lane();
#pragma unroll 1
    for (int i = 0; i < G::BN / 16; i++) {
        f32 d[16];
        tcgen05::load_lanes(d, from + (first << 16) + i * 16);
        tcgen05::wait_load();
        if (i == G::BN / 16 - 1) give_back(shared, sums);
        result.store(d, m, part.n + i * 16, part.z);
    }
}
