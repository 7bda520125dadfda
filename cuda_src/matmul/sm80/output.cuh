// From the accumulators of a warp to C, row-major.
#pragma once

#include "common/stmatrix.cuh"
#include "common/vec.cuh"
#include "matmul/sm80/warp_tile.cuh"

namespace sm80 {

// C and its size; M x N, rows N elements apart.
template <class OUT> struct Output {
    OUT* C;
    i64 M, N;
};

__device__ __forceinline__ Vec<f32, 2> pack(f32 x, f32 y, f32) { return {x, y}; }
__device__ __forceinline__ __half2 pack(f32 x, f32 y, f16) { return __floats2half2_rn(x, y); }
__device__ __forceinline__ __nv_bfloat162 pack(f32 x, f32 y, bf16) {
    return __floats2bfloat162_rn(x, y);
}

// Two neighbours rounded to OUT, as the word that stores them.
template <class OUT> __device__ __forceinline__ typename Word<2 * sizeof(OUT)>::type
packed(f32 x, f32 y) {
    const auto pair = pack(x, y, OUT{});
    typename Word<sizeof(pair)>::type word;
    memcpy(&word, &pair, sizeof(word));
    return word;
}

// Straight from the registers: every lane stores pairs of neighbours, four lanes 8 elements of a
// row, so that a store instruction touches 8 rows. ALIGN: what divides C and its row stride.
template <int ALIGN, class OUT, class WARP>
__device__ __forceinline__ void store_fragments(const WARP& warp, Output<OUT> out, i64 m0, i64 n0) {
    const u32 lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < WARP::MS * 2; ++i) {
        const i64 m = m0 + warp.m + i * 8 + lane / 4;
        if (m >= out.M) break;
#pragma unroll
        for (int j = 0; j < WARP::NS; ++j) {
            const i64 n = n0 + warp.n + j * 8 + lane % 4 * 2;
            const f32* sum = &warp.sum[i / 2][j][i % 2 * 2];
            OUT* to = out.C + m * out.N + n;
            if constexpr (ALIGN >= 2 * sizeof(OUT)) {
                using Pair = typename Word<2 * sizeof(OUT)>::type;
                if (n < out.N) *reinterpret_cast<Pair*>(to) = packed<OUT>(sum[0], sum[1]);
            } else {
                if (n < out.N) to[0] = from_f32<OUT>(sum[0]);
                if (n + 1 < out.N) to[1] = from_f32<OUT>(sum[1]);
            }
        }
    }
}

// 16 rows of a warp's part of C in shared memory, swizzled in units of 8 elements.
template <class OUT, int WN> struct Staging {
    static constexpr u32 UNIT_BYTES = 8 * sizeof(OUT), ROW_BYTES = WN * sizeof(OUT);
    static constexpr u32 BYTES = 16 * ROW_BYTES;

    static __device__ __forceinline__ u32 offset(u32 row, u32 byte) {
        const u32 unit = swizzle<WN / 8, LINE_BYTES / UNIT_BYTES>(row, byte / UNIT_BYTES);
        return row * ROW_BYTES + unit * UNIT_BYTES + byte % UNIT_BYTES;
    }

    // A row of WN / 8 fragments. Hopper's stmatrix stores four 8x8 matrices at once.
    static __device__ __forceinline__ void write(u8* rows, const f32 (&sum)[WN / 8][4]) {
        constexpr bool by_matrix = sizeof(OUT) == 2 && __CUDA_ARCH__ >= 900;
        if constexpr (by_matrix) write_matrices(rows, sum);
        else write_pairs(rows, sum);
    }

    static __device__ __forceinline__ void write_matrices(u8* rows, const f32 (&sum)[WN / 8][4]) {
        const u32 lane = threadIdx.x % 32;
#pragma unroll
        for (int j = 0; j < WN / 8; j += 2) {
            u8* row = rows + offset(lane % 16, (j + lane / 16) * UNIT_BYTES);
            stmatrix::x4(u32(__cvta_generic_to_shared(row)),
                         packed<OUT>(sum[j][0], sum[j][1]), packed<OUT>(sum[j][2], sum[j][3]),
                         packed<OUT>(sum[j + 1][0], sum[j + 1][1]),
                         packed<OUT>(sum[j + 1][2], sum[j + 1][3]));
        }
    }

    static __device__ __forceinline__ void write_pairs(u8* rows, const f32 (&sum)[WN / 8][4]) {
        using Pair = typename Word<2 * sizeof(OUT)>::type;
        const u32 lane = threadIdx.x % 32;
#pragma unroll
        for (int j = 0; j < WN / 8; ++j)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const u32 at = offset(lane / 4 + 8 * half, j * UNIT_BYTES + lane % 4 * sizeof(Pair));
                *reinterpret_cast<Pair*>(rows + at) =
                    packed<OUT>(sum[j][2 * half], sum[j][2 * half + 1]);
            }
    }

    // The 16 rows to C at (m, n), in pieces of ALIGN bytes: consecutive lanes, consecutive pieces.
    template <int ALIGN> static __device__ __forceinline__
    void read(const u8* rows, Output<OUT> out, i64 m, i64 n) {
        using Piece = typename Word<ALIGN>::type;
        constexpr u32 per_row = ROW_BYTES / ALIGN;
#pragma unroll 4
        for (u32 i = threadIdx.x % 32; i < 16 * per_row; i += 32) {
            const u32 row = i / per_row, byte = i % per_row * ALIGN;
            const i64 column = n + byte / sizeof(OUT);
            if (m + row < out.M && column < out.N)
                *reinterpret_cast<Piece*>(out.C + (m + row) * out.N + column) =
                    *reinterpret_cast<const Piece*>(rows + offset(row, byte));
        }
    }
};

// By way of shared memory, 16 rows at a time: what a warp stores are then pieces of ALIGN bytes in a
// row, whole sectors at 16, and half as many instructions as pairs take. `shared` has room for one
// Staging per warp; no warp touches another's.
template <int ALIGN, class SHAPE, class OUT, class WARP>
__device__ __forceinline__ void store_staged(const WARP& warp, Output<OUT> out, i64 m0, i64 n0,
                                             u8* shared) {
    using Rows = Staging<OUT, SHAPE::WN>;
    u8* rows = shared + threadIdx.x / 32 * Rows::BYTES;
#pragma unroll
    for (int i = 0; i < WARP::MS; ++i) {
        Rows::write(rows, warp.sum[i]);
        __syncwarp();
        Rows::template read<ALIGN>(rows, out, m0 + warp.m + 16 * i, n0 + warp.n);
        __syncwarp();
    }
}

}  // namespace sm80
