// Matmul kernel 4, Blackwell: C leaves through shared memory and TMA.
//
// Idea over kernel 3: round the sums to OUT, put them into shared memory with stmatrix (four 8 x 8
// tiles per instruction, a 16-byte row per lane) and let TMA store them. TMEM hands out sums in the
// very fragments of wgmma, so this is Hopper's write-out (staging.cuh): the tile of C is cut into
// pieces of 128 bytes x 64 rows, swizzled like the operands, so that the 8 rows an stmatrix writes
// fall in different banks. f32 results have no stmatrix: pairs go by ordinary 8-byte stores to the
// same pieces.
//
// Two rules: writes to shared memory by threads become visible to TMA by a proxy fence, executed by
// each writer before the barrier; shared memory must live until the store has read it.
//
// Why it is faster: kernel 3 stores 2 bytes per lane, to 8 rows per warp: 8 sectors for 64 bytes.
// TMA writes whole rows of 128 bytes, checks bounds by itself, and leaves the load-store units
// alone.
//
// Napkin (64 x 256 tile of bf16): 512 warp stores of 8 sectors were some 2000 clk at 2 sectors per
// clk; 32 KB by TMA are 512 clk at 64 B/clk. Of 64 steps of 2200 clk that is 1 %: nothing to see at
// K = 4096, something at K = 512. What it buys is for kernel 7.
// Published for 4096^3 (results/published.csv):
// 293.6 TFLOP/s on B200.
//
// Limits: still nothing overlaps inside a CTA.
//
// State: emulator-verified, not hardware-verified.
//
// Any M, K > 0; rows of A [M, K], B [N, K] and C [M, N] start at multiples of 16 bytes. Grid:
// (tiles of M, tiles of N); 128 threads.
#include "common/mbarrier.cuh"
#include "common/tcgen05.cuh"
#include "common/tma.cuh"
#include "common/warp.cuh"
#include "matmul/sm90/staging.cuh"

using mbarrier::Barrier;

constexpr int BM = 64, BK = 64;
constexpr int ROW = 128;  // bytes of a row of operands and of a piece of C

__device__ __forceinline__ u64 operand(const void* tile) {
    return tcgen05::descriptor(mbarrier::address(tile), 16, 1024, tcgen05::Swizzle::b128);
}

// One thread adds up A B over all of K.
template <class T, int BN>
__device__ __forceinline__ void multiply(u32 sums, u8* a, u8* b, Barrier* full, Barrier* done,
                                         const TensorMap& map_a, const TensorMap& map_b, int m0,
                                         int n0, int K) {
    u32 parity = 0;
    for (int k = 0; k < K; k += BK, parity ^= 1) {
        mbarrier::arrive_and_expect(full, (BM + BN) * ROW);
        tma::load(a, map_a, full, k, m0);
        tma::load(b, map_b, full, k, n0);
        mbarrier::wait(full, parity);

        tcgen05::fence_after();
#pragma unroll
        for (int kk = 0; kk < BK / 16; kk++)
            tcgen05::mma<1>(sums, tcgen05::advance(operand(a), kk * 32),
                            tcgen05::advance(operand(b), kk * 32), tcgen05::SHAPE<T, BM, BN>,
                            (k | kk) != 0);
        tcgen05::commit<1>(done);
        mbarrier::wait(done, parity);
    }
}

// All 128 threads write their sums to `c`, pieces of 64 rows x 128 bytes; one sends them off.
template <class OUT, int BN>
__device__ __forceinline__ void store_tile(u8* c, u32 sums, const TensorMap& map_c, int m0,
                                           int n0) {
    constexpr int COLS = ROW / sizeof(OUT), PIECE = BM * ROW;
    const u32 mine = sums + (warp::index() * 32 << 16);
#pragma unroll 1
    for (int i = 0; i < BN / COLS; i++) {
        f32 d[COLS / 2];
#pragma unroll
        for (int j = 0; j < COLS; j += tcgen05::LOAD_COLUMNS)
            tcgen05::load(d + j / 2, mine + i * COLS + j);
        tcgen05::wait_load();
        staging::write_rows<OUT, COLS>(c + i * PIECE, d, 0);
    }
    tma::fence_shared();
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int i = 0; i < BN / COLS; i++)
            tma::store(map_c, c + i * PIECE, n0 + i * COLS, m0);
        tma::commit();
        tma::wait_all();
    }
}

template <class T, class OUT, int BN, int COLUMNS>
__global__ void __launch_bounds__(128)
k4_tma_store(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
             const __grid_constant__ TensorMap map_c, i32 K) {
    extern __shared__ __align__(1024) u8 shared[];
    u8 *a = shared, *b = a + BM * ROW, *c = b + BN * ROW;
    Barrier *full = reinterpret_cast<Barrier*>(c + BM * BN * sizeof(OUT)), *done = full + 1;
    u32* tmem = reinterpret_cast<u32*>(done + 1);
    const int m0 = blockIdx.x * BM, n0 = blockIdx.y * BN;

    if (warp::index() == 0) {
        tcgen05::alloc<1>(tmem, COLUMNS);
        tcgen05::relinquish<1>();
    }
    if (threadIdx.x == 0) {
        mbarrier::init(full, 1);
        mbarrier::init(done, 1);
        mbarrier::fence_init();
    }
    __syncthreads();
    const u32 sums = *tmem;

    if (threadIdx.x == 0) multiply<T, BN>(sums, a, b, full, done, map_a, map_b, m0, n0, K);
    __syncthreads();
    tcgen05::fence_after();
    store_tile<OUT, BN>(c, sums, map_c, m0, n0);

    tcgen05::fence_before();
    __syncthreads();  // all warps have read their sums
    if (warp::index() == 0) tcgen05::dealloc<1>(sums, COLUMNS);
}
