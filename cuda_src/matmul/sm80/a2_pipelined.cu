// Ampere rung 2: asynchronous copies, a ring of tiles, swizzled rows.
//
// Ideas over rung 1:
//   - cp.async copies from global to shared memory without passing through registers, and the thread
//     goes on. A ring of STAGES tiles keeps STAGES - 1 of them on their way during the arithmetic;
//     within a tile, ldmatrix fetches the next 16 k while mma works on the present ones. One barrier
//     per tile is left (pipeline.cuh).
//   - Rows are swizzled in shared memory, so that neither copies nor ldmatrix meet a bank twice
//     (tile.cuh).
//   - C leaves by way of shared memory in 16-byte pieces (output.cuh).
//   - CTAs are numbered in groups of tile rows: a wave's operands stay in L2 (raster.cuh).
//
// Why: rung 1 does one thing at a time. Per step of 32 k and tile of 128 x 128 the tensor cores of
// an SM are busy for 500 clocks (A100) or 410 (H200, mma.sync). A load from L2 takes 300 to 800,
// which the ring now hides; ldmatrix takes 256 clocks of shared memory without conflicts, four to
// eight times that with them.
//
// What is left: for every 16 k, a warp with a 64 x 64 part reads 4 KB from shared memory for 32
// mma. At 128 bytes per clock, and with the copies' own writes, four such warps keep shared memory
// busy 93 % of the time that an H200's tensor cores are; with tiles of 128 x 256, 85 %: so the
// larger tile is the default where it fits. Predicted gain: 3x, to 85 % of the mma.sync rate.
// Hopper's wgmma reads shared memory itself and is past this limit (mma.sync peaks at 62 % of it).
// Measured at 4096^3 (results/h200/matmul_sm80.json):
// 433.1 TFLOPS, 3.14 times the rung before, 0.58 of cuBLAS.
//
// Any M and N, K < 2^31 - 64; A [M, K] stored row-major or as [K, M], B stored as [N, K] or [K, N].
#include "matmul/sm80/output.cuh"
#include "matmul/sm80/pipeline.cuh"
#include "matmul/sm80/raster.cuh"

using sm80::Major;
using sm80::Shape;

template <class T, class OUT, class SHAPE, int STAGES, Major A_MAJOR, Major B_MAJOR, int ALIGN_A,
          int ALIGN_B, int ALIGN_C, int GROUP>
__global__ void __launch_bounds__(SHAPE::THREADS, 1)
a2_pipelined(const T* A, const T* B, OUT* C, i64 M, i64 N, i64 K, i64 a_stride, i64 b_stride) {
    using TileA = sm80::Tile<T, SHAPE::BM, SHAPE::BK, A_MAJOR, sm80::Order::swizzled>;
    using TileB = sm80::Tile<T, SHAPE::BN, SHAPE::BK, B_MAJOR, sm80::Order::swizzled>;
    extern __shared__ __align__(128) u8 ring[];

    const u32 tiles_m = u32((M + SHAPE::BM - 1) / SHAPE::BM);
    const u32 tiles_n = u32((N + SHAPE::BN - 1) / SHAPE::BN);
    const auto tile = sm80::raster<GROUP>(blockIdx.x, tiles_m, tiles_n);
    const i64 m = i64(tile.m) * SHAPE::BM, n = i64(tile.n) * SHAPE::BN;

    sm80::AsyncCopy<TileA, SHAPE::THREADS, ALIGN_A> a({A, a_stride, m, M, 0, K});
    sm80::AsyncCopy<TileB, SHAPE::THREADS, ALIGN_B> b({B, b_stride, n, N, 0, K});
    sm80::WarpTile<SHAPE, TileA, TileB, 2> warp;
    const i32 steps = i32((K + SHAPE::BK - 1) / SHAPE::BK);
    if (steps) sm80::multiply_ring<STAGES, TileA, TileB>(warp, a, b, ring, steps);
    sm80::store_staged<ALIGN_C, SHAPE, OUT>(warp, {C, M, N}, m, n, ring);
}
