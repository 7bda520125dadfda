// Ampere rung 3: split-K, for results with fewer tiles than the GPU has SMs.
//
// Idea over rung 2: cut K into slices and give each (tile, slice) its own CTA. Every CTA writes its
// partial sums in f32 to a workspace [slices, M, N]; a second kernel adds the slices up, in order,
// and rounds once.
//
// Why: 64 x 3072 x 3072 has 24 tiles of 64 x 128. An A100 has 108 SMs, an H200 132: more than three
// quarters would idle, and the rest could not ask for memory fast enough (the work is reading B).
// Four to five slices fill them. Predicted: up to the number of slices times rung 2, less the
// workspace's way through L2 (8 M N bytes per slice) and a second launch of a few microseconds; no
// gain where tiles already fill the GPU.
// Measured at 4096^3 (results/h200/matmul_sm80.json):
// 441.4 TFLOPS, 1.02 times the rung before, 0.58 of cuBLAS.
//
// The alternative, letting the last CTA of a tile add the slices up, saves the launch but needs
// counters that someone zeroes, fences between CTAs, and leaves the sum to few CTAs. Two kernels
// need neither, spread the sum over the whole GPU, and are deterministic: the same split gives the
// same bits on every run.
//
// Limits and layouts are those of rung 2. The workspace takes 4 M N bytes per slice.
#include "matmul/sm80/output.cuh"
#include "matmul/sm80/pipeline.cuh"
#include "matmul/sm80/raster.cuh"

using sm80::Major;
using sm80::Shape;

// Slice blockIdx.y: K from blockIdx.y * slice, a multiple of BK, to at most `slice` further.
template <class T, class SHAPE, int STAGES, Major A_MAJOR, Major B_MAJOR, int ALIGN_A, int ALIGN_B,
          int ALIGN_W, int GROUP>
__global__ void __launch_bounds__(SHAPE::THREADS, 1)
a3_split_k(const T* A, const T* B, f32* W, i64 M, i64 N, i64 K, i64 a_stride, i64 b_stride,
           i64 slice) {
    using TileA = sm80::Tile<T, SHAPE::BM, SHAPE::BK, A_MAJOR, sm80::Order::swizzled>;
    using TileB = sm80::Tile<T, SHAPE::BN, SHAPE::BK, B_MAJOR, sm80::Order::swizzled>;
    extern __shared__ __align__(128) u8 ring[];

    const u32 tiles_m = u32((M + SHAPE::BM - 1) / SHAPE::BM);
    const u32 tiles_n = u32((N + SHAPE::BN - 1) / SHAPE::BN);
    const auto tile = sm80::raster<GROUP>(blockIdx.x, tiles_m, tiles_n);
    const i64 m = i64(tile.m) * SHAPE::BM, n = i64(tile.n) * SHAPE::BN;
    const i64 k = blockIdx.y * slice, k_end = min(k + slice, K);

    sm80::AsyncCopy<TileA, SHAPE::THREADS, ALIGN_A> a({A, a_stride, m, M, k, k_end});
    sm80::AsyncCopy<TileB, SHAPE::THREADS, ALIGN_B> b({B, b_stride, n, N, k, k_end});
    sm80::WarpTile<SHAPE, TileA, TileB, 2> warp;
    const i32 steps = i32((k_end - k + SHAPE::BK - 1) / SHAPE::BK);
    if (steps > 0) sm80::multiply_ring<STAGES, TileA, TileB>(warp, a, b, ring, steps);
    sm80::store_staged<ALIGN_W, SHAPE, f32>(warp, {W + blockIdx.y * M * N, M, N}, m, n, ring);
}

// C[i] = W[0, i] + W[1, i] + ..., VEC neighbours per thread; `size` = M N is a multiple of VEC.
template <class OUT, int VEC>
__global__ void __launch_bounds__(256) a3_reduce(const f32* W, OUT* C, i64 size, i32 slices) {
    const i64 at = (i64(blockIdx.x) * blockDim.x + threadIdx.x) * VEC;
    if (at >= size) return;
    Vec<f32, VEC> sum{};
#pragma unroll 4
    for (i32 s = 0; s < slices; ++s) {
        const auto* part = reinterpret_cast<const Vec<f32, VEC>*>(W + s * size + at);
        const Vec<f32, VEC> loaded = load<Cache::normal>(part);
        for (int i = 0; i < VEC; ++i) sum.lane[i] += loaded.lane[i];
    }
    Vec<OUT, VEC> rounded;
    for (int i = 0; i < VEC; ++i) rounded.lane[i] = from_f32<OUT>(sum.lane[i]);
    store<Cache::normal>(reinterpret_cast<Vec<OUT, VEC>*>(C + at), rounded);
}
