// Matmul kernel 1: one thread, one output. The rung every ladder starts from, on every architecture.
//
// C[m, n] = sum_k A[m, k] B[k, n], f32 accumulation, one rounding at the end. A 32 x 32 CTA owns a
// 32 x 32 tile of C; lanes of a warp run along n, so a warp's 32 outputs share one A element
// (a broadcast) and read 32 B elements: one or two sectors each when B's n stride is 1, 32 separate
// sectors when B is stored [N, K]. Nothing is reused except by luck of the caches: 2 M N K element
// loads for 2 M N K FLOPs, so the load units are the limit, not the arithmetic.
//
// Any M, N, K >= 0 (K = 0 writes zeros) and any element strides of A and B: transposed views cost
// nothing but locality. C is row-major. Tiles are numbered along one grid axis, so neither M nor N
// meets the 65535 limit of grid.y.
#include "common/types.cuh"

template <class T, class OUT, int TILE>
__global__ void __launch_bounds__(TILE* TILE)
k1_naive(const T* A, const T* B, OUT* C, i64 M, i64 N, i64 K,
         i64 a_m, i64 a_k, i64 b_k, i64 b_n) {
    const i64 tiles_n = (N + TILE - 1) / TILE;
    const i64 m = i64(blockIdx.x) / tiles_n * TILE + threadIdx.y;
    const i64 n = i64(blockIdx.x) % tiles_n * TILE + threadIdx.x;
    if (m >= M || n >= N) return;

    const T* a = A + m * a_m;
    const T* b = B + n * b_n;
    f32 sum = 0.0f;
    for (i64 k = 0; k < K; ++k) {
        sum = fmaf(to_f32(*a), to_f32(*b), sum);
        a += a_k;
        b += b_k;
    }
    C[m * N + n] = from_f32<OUT>(sum);
}
