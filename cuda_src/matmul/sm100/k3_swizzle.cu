// Matmul kernel 3, Blackwell: 128-byte swizzle.
//
// Idea over kernel 2: let TMA bring whole rows of 128 bytes, 64 columns of K at once, and store
// them so that the MMA can still read 8 rows at a time without bank conflicts. Rows of 128 bytes
// lie on all 32 banks, so the same 16-byte chunk of 8 rows would be on the same 4 banks, an 8-way
// conflict. The swizzle XORs the chunk number (address bits 4 to 6) with the row number (bits 7 to
// 9): the chunks of 8 rows spread over all banks. TMA writes and the MMA reads through the same
// XOR; the kernel never sees it. Only the tensor maps and the descriptors differ from kernel 2.
//
// Why it is faster: one box instead of 8, and requests of 128 bytes, four whole sectors, instead of
// 16.
//
// Napkin (4096^3, 148 SMs at 1.85 GHz, 64 x 256 tiles): a step is some 800 clk of latency, 40 KB
// from L2, at Hopper's 46 B/clk for want of a better figure 900 clk, and 512 of MMA, one after the
// other: 2200 clk, 450 of them: 0.53 ms, 260 TFLOPS. Twice kernel 2.
// Published for 4096^3 (results/published.csv):
// 295.6 TFLOP/s on B200.
//
// Limits: as kernel 2, but for the requests. Most of the time everything waits for something else.
//
// State: emulator-verified, not hardware-verified.
//
// Any M, N, K > 0; rows of A [M, K] and B [N, K] start at multiples of 16 bytes. Grid: (tiles of M,
// tiles of N); 128 threads.
#include "common/mbarrier.cuh"
#include "common/tcgen05.cuh"
#include "common/tma.cuh"
#include "common/warp.cuh"

using mbarrier::Barrier;

constexpr int BM = 64, BK = 64;  // BK elements are 128 bytes: one row of the swizzle

// A tile of rows of 128 bytes; the next 8 rows are 1024 bytes further.
__device__ __forceinline__ u64 operand(const void* tile) {
    return tcgen05::descriptor(mbarrier::address(tile), 16, 1024, tcgen05::Swizzle::b128);
}

// One thread adds up A B over all of K.
template <class T, int BN>
__device__ __forceinline__ void multiply(u32 sums, T* a, T* b, Barrier* full, Barrier* done,
                                         const TensorMap& map_a, const TensorMap& map_b, int m0,
                                         int n0, int K) {
    u32 parity = 0;
    for (int k = 0; k < K; k += BK, parity ^= 1) {
        mbarrier::arrive_and_expect(full, (BM + BN) * BK * sizeof(T));
        tma::load(a, map_a, full, k, m0);
        tma::load(b, map_b, full, k, n0);
        mbarrier::wait(full, parity);

        tcgen05::fence_after();
#pragma unroll
        for (int kk = 0; kk < BK / 16; kk++)  // 16 columns of K are 32 bytes of a row
            tcgen05::mma<1>(sums, tcgen05::advance(operand(a), kk * 32),
                            tcgen05::advance(operand(b), kk * 32), tcgen05::SHAPE<T, BM, BN>,
                            (k | kk) != 0);
        tcgen05::commit<1>(done);
        mbarrier::wait(done, parity);  // the next load may overwrite the tiles
    }
}

// A warp stores its 16 rows, each thread the elements it holds; tcgen05.cuh says which.
template <class OUT, int BN>
__device__ __forceinline__ void store_tile(OUT* C, u32 sums, int m0, int n0, int M, int N) {
    const int m = m0 + warp::index() * 16 + warp::lane() / 4, n = n0 + warp::lane() % 4 * 2;
    OUT* c = C + i64(m) * N + n;
    f32 d[BN / 2];
#pragma unroll
    for (int i = 0; i < BN; i += tcgen05::LOAD_COLUMNS)
        tcgen05::load(d + i / 2, sums + (warp::index() * 32 << 16) + i);
    tcgen05::wait_load();
#pragma unroll
    for (int i = 0; i < BN / 2; i++) {
        const int dm = i / 2 % 2 * 8, dn = i / 4 * 8 + i % 2;
        if (m + dm < M && n + dn < N) c[i64(dm) * N + dn] = from_f32<OUT>(d[i]);
    }
}

template <class T, class OUT, int BN, int COLUMNS>
__global__ void __launch_bounds__(128)
k3_swizzle(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
           OUT* C, i32 M, i32 N, i32 K) {
    extern __shared__ __align__(1024) u8 shared[];  // the swizzle works on addresses: align it
    T* a = reinterpret_cast<T*>(shared);
    T* b = a + BM * BK;
    Barrier *full = reinterpret_cast<Barrier*>(b + BN * BK), *done = full + 1;
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
    store_tile<OUT, BN>(C, sums, m0, n0, M, N);

    tcgen05::fence_before();
    __syncthreads();  // all warps have read their sums
    if (warp::index() == 0) tcgen05::dealloc<1>(sums, COLUMNS);
}
