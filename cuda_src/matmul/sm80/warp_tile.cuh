// What one warp computes: WM x WN of C as 16x8 tiles of mma.sync, fed from shared memory.
#pragma once

#include "common/mma.cuh"
#include "matmul/sm80/tile.cuh"

namespace sm80 {

enum class Side { a, b };

// One operand's fragments for 16 steps of k: WIDTH rows of A, or columns of B, 16 to an ldmatrix.
// SLOTS of them, so that one can be loaded while another is in use.
template <Side SIDE, class TILE, int WIDTH, int SLOTS> struct Fragments {
    static constexpr int COUNT = WIDTH / 16;
    static constexpr bool BY_K = TILE::MAJOR == Major::k;
    u32 held[SLOTS][COUNT][4];
    u32 offset;  // of the row this lane points ldmatrix at, for the first 16 x 16 block

    // Lanes 8j to 8j+7 give the rows of the j-th 8x8 matrix. mma wants A's in the order
    // (m, k) = (0, 0), (8, 0), (0, 8), (8, 8) and B's, of two n tiles,
    // as (n, k) = (0, 0), (0, 8), (8, 0), (8, 8).
    __device__ __forceinline__ explicit Fragments(u32 outer) {
        const u32 lane = threadIdx.x % 32, low = lane / 8 % 2, high = lane / 16;
        const u32 outer_half = SIDE == Side::a ? low : high, k_half = SIDE == Side::a ? high : low;
        offset = BY_K ? TILE::offset(outer + 8 * outer_half + lane % 8, k_half)
                      : TILE::offset(8 * k_half + lane % 8, outer / 8 + outer_half);
    }

    // Along a row two chunks per block: an XOR, as places in a row are swizzled by one. Along a
    // column 16 rows per block, which leave the swizzle as it is.
    __device__ __forceinline__ void load(int slot, u32 tile, int k16) {
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            const u32 along = BY_K ? k16 : i, across = BY_K ? i : k16;
            const u32 row = offset ^ along * 2 * CHUNK_BYTES;
            mma::load_matrices<!BY_K>(held[slot][i], tile + row + across * 16 * TILE::ROW_BYTES);
        }
    }
};

template <class SHAPE, class TILE_A, class TILE_B, int SLOTS> struct WarpTile {
    static constexpr int MS = SHAPE::WM / 16, NS = SHAPE::WN / 8;
    static constexpr int WARPS_N = SHAPE::BN / SHAPE::WN;
    u32 m, n;  // where the warp's part starts in the CTA's tile
    Fragments<Side::a, TILE_A, SHAPE::WM, SLOTS> a;
    Fragments<Side::b, TILE_B, SHAPE::WN, SLOTS> b;
    f32 sum[MS][NS][4];

    __device__ __forceinline__ WarpTile()
        : m(threadIdx.x / 32 / WARPS_N * SHAPE::WM), n(threadIdx.x / 32 % WARPS_N * SHAPE::WN),
          a(m), b(n), sum{} {}

    // 16 steps of k, the k16-th such block of the tiles, from shared memory into `slot`.
    __device__ __forceinline__ void load(int slot, u32 tile_a, u32 tile_b, int k16) {
        a.load(slot, tile_a, k16);
        b.load(slot, tile_b, k16);
    }

    __device__ __forceinline__ void multiply(int slot) {
#pragma unroll
        for (int i = 0; i < MS; ++i)
#pragma unroll
            for (int j = 0; j < NS; ++j) {
                const u32(&pair)[4] = b.held[slot][j / 2];
                mma::m16n8k16<typename TILE_A::T>(sum[i][j], a.held[slot][i], pair[j % 2 * 2],
                                                  pair[j % 2 * 2 + 1]);
            }
    }
};

}  // namespace sm80
