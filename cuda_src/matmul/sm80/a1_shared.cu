// Ampere rung 1: tiles in shared memory, tensor cores by mma.sync.
//
// Idea over the naive kernel: a CTA copies a BM x BK tile of A and a BK x BN tile of B to shared
// memory once and uses each element BN or BM times; a warp loads 16x16 blocks of it with ldmatrix
// into the registers that mma.sync reads, and uses each again for its whole WM x WN part of C.
//
// Why: per two elements loaded from global memory the naive kernel does one multiply-add; a tile of
// 128 x 128 does 64 per element. At 4096^3 the operands cross from L2 32 times each, 2 GB instead of
// 275 GB, and the arithmetic moves from FMA units to tensor cores (16x the rate on an A100).
//
// Each step along k is strictly: load to registers (LDG), barrier, store to shared memory (STS),
// barrier, ldmatrix, mma. Nothing overlaps within a CTA: the tensor cores idle for the latency of
// global memory in every step, and rows in their plain order meet in the same banks (8 rows of 64
// bytes: four-way conflicts, with ldmatrix.trans eight-way). Two CTAs per SM hide part of it.
// Predicted: 20 to 30 % of the rate that mma.sync can reach, some 20 to 50 times the naive kernel.
// Measured at 4096^3 (results/h200/matmul_sm80.json):
// 138.1 TFLOPS, 0.17 of cuBLAS.
//
// Any M and N, K < 2^31 - 64; A [M, K] stored row-major or as [K, M], B stored as [N, K] or [K, N].
#include "matmul/sm80/copy.cuh"
#include "matmul/sm80/output.cuh"

using sm80::Major;
using sm80::Shape;

template <class T, class OUT, class SHAPE, Major A_MAJOR, Major B_MAJOR, int ALIGN_A, int ALIGN_B,
          int ALIGN_C>
__global__ void __launch_bounds__(SHAPE::THREADS, 1)
a1_shared(const T* A, const T* B, OUT* C, i64 M, i64 N, i64 K, i64 a_stride, i64 b_stride) {
    using TileA = sm80::Tile<T, SHAPE::BM, SHAPE::BK, A_MAJOR, sm80::Order::plain>;
    using TileB = sm80::Tile<T, SHAPE::BN, SHAPE::BK, B_MAJOR, sm80::Order::plain>;
    extern __shared__ __align__(128) u8 shared[];
    u8 *const tile_a = shared, *const tile_b = shared + TileA::BYTES;
    const u32 at_a = u32(__cvta_generic_to_shared(tile_a)), at_b = at_a + TileA::BYTES;

    const i64 tiles_n = (N + SHAPE::BN - 1) / SHAPE::BN;
    const i64 m = blockIdx.x / tiles_n * SHAPE::BM, n = blockIdx.x % tiles_n * SHAPE::BN;
    sm80::RegisterCopy<TileA, SHAPE::THREADS, ALIGN_A> a({A, a_stride, m, M, 0, K});
    sm80::RegisterCopy<TileB, SHAPE::THREADS, ALIGN_B> b({B, b_stride, n, N, 0, K});
    sm80::WarpTile<SHAPE, TileA, TileB, 1> warp;

    for (i64 k = 0; k < K; k += SHAPE::BK) {
        a.load();
        b.load();
        __syncthreads();  // all warps are done with the previous tiles
        a.store(tile_a);
        b.store(tile_b);
        __syncthreads();  // the new ones are complete
#pragma unroll
        for (int k16 = 0; k16 < SHAPE::BK / 16; ++k16) {
            warp.load(0, at_a, at_b, k16);
            warp.multiply(0);
        }
    }
    sm80::store_fragments<ALIGN_C, OUT>(warp, {C, M, N}, m, n);
}
