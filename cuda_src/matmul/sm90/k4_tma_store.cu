// Matmul kernel 4, Hopper: C leaves through shared memory and TMA.
//
// Idea over kernel 3: round the sums to OUT, put them into shared memory with stmatrix (four 8 x 8
// tiles of an accumulator per instruction, a 16-byte row per lane) and let TMA store them. The
// tile of C is cut into pieces of 128 bytes x 64 rows, swizzled like the operands, so that the 8
// rows an stmatrix writes fall in different banks (staging.cuh). f32 results have no stmatrix:
// pairs go by ordinary 8-byte stores to the same pieces, at two rows per bank.
//
// Two rules: writes to shared memory by threads become visible to TMA by a proxy fence, executed
// by each writer before the barrier; shared memory must live until the store has read it.
//
// Why it is faster: kernel 3 stores 2 bytes per lane, to 8 rows per warp: 8 sectors for 64 bytes.
// TMA writes whole rows of 128 bytes, checks bounds by itself, and leaves the load-store units
// alone.
//
// Napkin (64 x 256 tile of bf16): 512 warp stores of 8 sectors were some 2000 clk at 2 sectors per
// clk; 32 KB by TMA are 512 clk at 64 B/clk. Of 58,000 clk that K = 4096 takes, 3 %; at K = 512
// some 20 %.
// Measured at 4096^3 (results/h200/matmul_ladder.json):
// 591.7 TFLOPS, 1.16 times the rung before, 0.77 of cuBLAS.
//
// Limits: still nothing overlaps inside a CTA, and L2 is asked for 40 KB per step.
//
// Any M, K > 0; rows of A [M, K], B [N, K] and C [M, N] start at multiples of 16 bytes. Grid:
// (tiles of M, tiles of N); 128 threads.
#include "common/mbarrier.cuh"
#include "common/tma.cuh"
#include "common/warp.cuh"
#include "common/wgmma.cuh"
#include "matmul/sm90/staging.cuh"

using mbarrier::Barrier;

constexpr int BM = 64, BK = 64;

__device__ __forceinline__ u64 operand(const void* tile) {
    return wgmma::descriptor(mbarrier::address(tile), 16, 1024, wgmma::Swizzle::b128);
}

// All 128 threads write their sums to `c`, pieces of 64 rows x 128 bytes; one sends them off.
template <class OUT, int BN>
__device__ __forceinline__ void store_tile(u8* c, const f32 (&d)[BN / 2], const TensorMap& map_c,
                                           int m0, int n0) {
    constexpr int COLS = 128 / sizeof(OUT), PIECE = BM * 128;
#pragma unroll
    for (int i = 0; i < BN / COLS; i++)
        staging::write_rows<OUT, COLS>(c + i * PIECE, d, i * COLS);
    tma::fence_shared();
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int i = 0; i < BN / COLS; i++)
            tma::store(map_c, c + i * PIECE, n0 + i * COLS, m0);
        tma::commit();
        tma::wait_all();
    }
}

template <class T, class OUT, int BN>
__global__ void __launch_bounds__(128)
k4_tma_store(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
             const __grid_constant__ TensorMap map_c, i32 K) {
    extern __shared__ __align__(1024) u8 shared[];
    u8* a = shared;
    u8* b = a + BM * BK * sizeof(T);
    u8* c = b + BN * BK * sizeof(T);
    Barrier* full = reinterpret_cast<Barrier*>(c + BM * BN * sizeof(OUT));
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
            tma::load(a, map_a, full, k, m0);
            tma::load(b, map_b, full, k, n0);
        }
        mbarrier::wait(full, parity);

        wgmma::fence();
#pragma unroll
        for (int kk = 0; kk < BK / 16; kk++) {
            wgmma::mma<T, BN>(d, wgmma::advance(operand(a), kk * 32),
                              wgmma::advance(operand(b), kk * 32), (k | kk) != 0);
        }
        wgmma::commit();
        wgmma::wait<0>();
        __syncthreads();
    }
    store_tile<OUT, BN>(c, d, map_c, m0, n0);
}
