// Matmul kernel 2, Hopper: TMA fetches, the tensor cores multiply.
//
// Idea: two instructions do the work that kernel 1 did element by element. One thread asks the
// tensor memory accelerator (TMA) for a tile of A and one of B; an mbarrier says when their bytes
// are in shared memory. Then the four warps multiply them with wgmma: 64 x BN x 16 products in one
// instruction, operands straight from shared memory, sums in f32 registers (BN / 2 per thread).
//
// Layout: wgmma reads core matrices of 8 rows x 16 bytes, each 128 contiguous bytes, and a
// descriptor says how far apart they are. A box of 8 columns of K is a column of core matrices, so
// a tile of 64 columns takes 8 boxes. Nothing is swizzled and no bank conflicts arise, but every
// row of a box is a request of 16 bytes, half of the 32-byte sector that L2 delivers.
//
// Why it is faster: an element of A is read from L2 once per 256 columns of C and one of B once
// per 64 rows, not once per product; an SM multiplies 2048 bf16 pairs per clock, not 128.
//
// Napkin (4096^3, 132 SMs, 64 x 256 tiles): a step of 64 columns of K needs 40 KB, 80 KB as
// sectors; L2 sustains some 46 B/clk per SM: 1760 clk, against 512 clk of wgmma. So 29 % of the
// tensor cores at best, 275 TFLOPS at 1.75 GHz, instead of 5.
// Measured at 4096^3 (results/h200/matmul_ladder.json):
// 99.2 TFLOPS, 198.97 times the rung before, 0.13 of cuBLAS.
// Bytes were the wrong thing to count: a step is 2560 rows of 16 bytes, and the time comes to some two
// clocks for each. TMA's requests are the limit before L2's bytes are.
//
// Limits: one buffer, so a CTA either loads or multiplies; up to 3 CTAs per SM overlap by chance.
// 16-byte requests. C leaves element by element.
//
// Any M, N, K > 0; rows of A [M, K] and B [N, K] start at multiples of 16 bytes. Edges cost
// nothing: TMA fills what is outside with zeros. Grid: (tiles of M, tiles of N); 128 threads.
#include "common/mbarrier.cuh"
#include "common/tma.cuh"
#include "common/warp.cuh"
#include "common/wgmma.cuh"

using mbarrier::Barrier;

constexpr int BM = 64, BK = 64;  // rows of A and columns of K in a tile
constexpr int BOX = 8;           // columns of K in a box: 16 bytes

template <class T, int ROWS>
__device__ __forceinline__ void load_tile(T* tile, const TensorMap& map, Barrier* full, int k,
                                          int row) {
#pragma unroll
    for (int i = 0; i < BK / BOX; i++)
        tma::load(tile + i * ROWS * BOX, map, full, k + i * BOX, row);
}

// The next 8 columns of K are a box further, the next 8 rows a core matrix.
template <int ROWS> __device__ __forceinline__ u64 operand(const void* tile) {
    return wgmma::descriptor(mbarrier::address(tile), ROWS * 16, 128, wgmma::Swizzle::none);
}

// Each thread stores the elements it holds; wgmma.cuh says which.
template <class OUT, int BN>
__device__ __forceinline__ void store_tile(OUT* C, const f32 (&d)[BN / 2], int m0, int n0, int M,
                                           int N) {
    const int m = m0 + warp::index() * 16 + warp::lane() / 4, n = n0 + warp::lane() % 4 * 2;
    OUT* c = C + i64(m) * N + n;
#pragma unroll
    for (int i = 0; i < BN / 2; i++) {
        const int dm = i / 2 % 2 * 8, dn = i / 4 * 8 + i % 2;
        if (m + dm < M && n + dn < N) c[i64(dm) * N + dn] = from_f32<OUT>(d[i]);
    }
}

template <class T, class OUT, int BN>
__global__ void __launch_bounds__(128)
k2_tma_wgmma(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
             OUT* C, i32 M, i32 N, i32 K) {
    extern __shared__ __align__(1024) u8 shared[];
    T* a = reinterpret_cast<T*>(shared);
    T* b = a + BM * BK;
    Barrier* full = reinterpret_cast<Barrier*>(b + BN * BK);
    const int m0 = blockIdx.x * BM, n0 = blockIdx.y * BN;

    if (threadIdx.x == 0) {
        mbarrier::init(full, 1);
        mbarrier::fence_init();
    }
    __syncthreads();

    f32 d[BN / 2];
    u32 parity = 0;
    for (int k = 0; k < K; k += BK, parity ^= 1) {
        if (threadIdx.x == 0) {
            mbarrier::arrive_and_expect(full, (BM + BN) * BK * sizeof(T));
            load_tile<T, BM>(a, map_a, full, k, m0);
            load_tile<T, BN>(b, map_b, full, k, n0);
        }
        mbarrier::wait(full, parity);

        wgmma::fence();
#pragma unroll
        for (int kk = 0; kk < BK / 16; kk++) {  // 16 columns of K are two boxes
            wgmma::mma<T, BN>(d, wgmma::advance(operand<BM>(a), kk * 2 * BM * 16),
                              wgmma::advance(operand<BN>(b), kk * 2 * BN * 16), (k | kk) != 0);
        }
        wgmma::commit();
        wgmma::wait<0>();
        __syncthreads();  // all four warps are done: the next load may overwrite the tiles
    }
    store_tile<OUT, BN>(C, d, m0, n0, M, N);
}
