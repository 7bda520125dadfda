// Matmul kernel 3, Hopper: 128-byte swizzle.
//
// Idea over kernel 2: let TMA bring whole rows of 128 bytes, 64 columns of K at once, and store
// them so that wgmma can still read 8 rows at a time without bank conflicts. Rows of 128 bytes lie
// on all 32 banks, so the same 16-byte chunk of 8 rows would be on the same 4 banks, an 8-way
// conflict. The swizzle XORs the chunk number (address bits 4 to 6) with the row number (bits 7 to
// 9): the chunks of 8 rows spread over all banks. TMA writes and wgmma reads through the same XOR;
// the kernel never sees it. Only the tensor maps and the descriptors differ from kernel 2.
//
// Why it is faster: one box instead of 8, and requests of 128 bytes, four whole sectors, instead
// of 16.
//
// Napkin (4096^3, 64 x 256 tiles): a step of K now draws 40 KB from L2, not 80: 880 clk at 46
// B/clk against 512 clk of wgmma. Twice kernel 2, at most 58 % of the tensor cores: 550 TFLOPS at
// 1.75 GHz; less as latency is hidden only by the 3 CTAs per SM.
// Measured at 4096^3 (results/h200/matmul_ladder.json):
// 508.3 TFLOPS, 5.13 times the rung before, 0.66 of cuBLAS.
//
// Limits: as kernel 2, but for the requests. 64 x 256 tiles ask L2 for more than it can deliver.
//
// Any M, N, K > 0; rows of A [M, K] and B [N, K] start at multiples of 16 bytes. Grid: (tiles of
// M, tiles of N); 128 threads.
#include "common/mbarrier.cuh"
#include "common/tma.cuh"
#include "common/warp.cuh"
#include "common/wgmma.cuh"

using mbarrier::Barrier;

constexpr int BM = 64, BK = 64;  // BK elements are 128 bytes: one row of the swizzle

// A tile of rows of 128 bytes; the next 8 rows are 1024 bytes further.
__device__ __forceinline__ u64 operand(const void* tile) {
    return wgmma::descriptor(mbarrier::address(tile), 16, 1024, wgmma::Swizzle::b128);
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
k3_swizzle(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
           OUT* C, i32 M, i32 N, i32 K) {
    extern __shared__ __align__(1024) u8 shared[];  // the swizzle works on addresses: align it
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
            tma::load(a, map_a, full, k, m0);
            tma::load(b, map_b, full, k, n0);
        }
        mbarrier::wait(full, parity);

        wgmma::fence();
#pragma unroll
        for (int kk = 0; kk < BK / 16; kk++) {  // 16 columns of K are 32 bytes of a row
            wgmma::mma<T, BN>(d, wgmma::advance(operand(a), kk * 32),
                              wgmma::advance(operand(b), kk * 32), (k | kk) != 0);
        }
        wgmma::commit();
        wgmma::wait<0>();
        __syncthreads();  // all four warps are done: the next load may overwrite the tiles
    }
    store_tile<OUT, BN>(C, d, m0, n0, M, N);
}
