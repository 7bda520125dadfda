// Matmul kernel 5, Blackwell: two SMs multiply as one, and clusters share what they load.
//
// Idea over kernel 4: an MMA of 256 x BN x 16 across two neighbouring CTAs. Each holds 128 rows of
// A, half of B's columns (rows of B [N, K]) and the sums of its 128 rows; one thread of the even
// CTA, the leader, starts the MMA for both, and each tensor core reads the half of B that it lacks
// from the other's shared memory. So a CTA loads BN / 2 rows of B for BN columns of C. Larger
// clusters hold several such pairs along M: they need the same B, and each CTA loads its part of it
// and multicasts that to the CTAs of its parity.
//
// One barrier is for the pair: the leader's `full` counts the bytes of both CTAs, as TMA may signal
// the partner's barrier. The MMA's end goes to everybody who writes into this memory: a commit
// arrives at `done` of every CTA of the cluster, one for each pair.
//
// Why: L2 has to deliver less. A 64 x 256 step of K drew 40 KB for 64 rows of C; here 16 + 16 KB
// serve 128: 0.4 of the bytes per product. And 128 rows use the whole tensor core: 128 clk per MMA
// as before, for twice the products.
//
// Napkin (4096^3, 148 SMs at 1.85 GHz, 256 x 256 tiles per pair): a step is some 1000 clk of
// latency, now across two SMs, 32 KB from L2 at 46 B/clk 700 clk, and 512 of MMA. 256 tiles on 74
// pairs are 4 waves of 64 steps of 2200 clk: 0.31 ms, 450 TFLOPS, 1.5 times kernel 4.
// Published for 4096^3 (results/published.csv):
// 360.2 TFLOP/s on B200.
//
// Limits: single-buffered; a load waits for the MMA, the MMA for the load, now of two SMs. The last
// wave is half empty.
//
// A CTA whose rows all lie beyond M (an odd number of tiles, rounded up to clusters) loads zeros
// and its part of B, and TMA drops its stores.
//
// State: emulator-verified, not hardware-verified.
//
// Any M, K > 0; rows of A [M, K], B [N, K] and C [M, N] start at multiples of 16 bytes. Grid:
// (tiles of M rounded up to CLUSTER, tiles of N); 128 threads.
#include "common/cluster.cuh"
#include "common/mbarrier.cuh"
#include "common/tcgen05.cuh"
#include "common/tma.cuh"
#include "common/warp.cuh"
#include "matmul/sm90/staging.cuh"

using mbarrier::Barrier;

constexpr int BM = 128, BK = 64;  // of a CTA; a pair has 256 rows
constexpr int ROW = 128;          // bytes of a row of operands and of a piece of C

__device__ __forceinline__ u64 operand(const void* tile) {
    return tcgen05::descriptor(mbarrier::address(tile), 16, 1024, tcgen05::Swizzle::b128);
}

// This CTA's rows of A and its part of B for all CTAs of its parity. The even CTA of the pair
// counts the bytes.
template <int BN, int CLUSTER>
__device__ __forceinline__ void load_tiles(u8* a, u8* b, Barrier* full, const TensorMap& map_a,
                                           const TensorMap& map_b, int k, int m0, int n0) {
    constexpr int PAIRS = CLUSTER / 2, PART = BN / 2 / PAIRS;
    constexpr u16 EVEN = 0x5555 & ((1 << CLUSTER) - 1);
    const u32 rank = cluster::rank(), half = rank % 2, row = rank / 2 * PART;
    const u32 leaders = cluster::map(mbarrier::address(full), rank - half);
    tma::load_pair(a, map_a, leaders, k, m0);
    if constexpr (PAIRS == 1)
        tma::load_pair(b, map_b, leaders, k, n0 + half * BN / 2);
    else
        tma::load_pair_multicast(b + row * ROW, map_b, leaders, EVEN << half, k,
                                 n0 + half * BN / 2 + row);
}

// One thread of each CTA loads; the leader's multiplies, for the pair.
template <class T, int BN, int CLUSTER>
__device__ __forceinline__ void multiply(u32 sums, u8* a, u8* b, Barrier* full, Barrier* done,
                                         const TensorMap& map_a, const TensorMap& map_b, int m0,
                                         int n0, int K) {
    const bool leader = cluster::rank() % 2 == 0;
    u32 parity = 0;
    for (int k = 0; k < K; k += BK, parity ^= 1) {
        if (leader) mbarrier::arrive_and_expect(full, 2 * (BM + BN / 2) * ROW);
        load_tiles<BN, CLUSTER>(a, b, full, map_a, map_b, k, m0, n0);
        if (leader) {
            mbarrier::wait(full, parity);
            tcgen05::fence_after();
#pragma unroll
            for (int kk = 0; kk < BK / 16; kk++)
                tcgen05::mma<2>(sums, tcgen05::advance(operand(a), kk * 32),
                                tcgen05::advance(operand(b), kk * 32),
                                tcgen05::SHAPE<T, 2 * BM, BN>, (k | kk) != 0);
            tcgen05::commit_multicast<2>(done, (1 << CLUSTER) - 1);
        }
        mbarrier::wait(done, parity);
    }
}

// All 128 threads write their sums to `c`, pieces of 128 rows x 128 bytes; one sends them off. A
// warp has 32 rows, 16 of them in a fragment.
template <class OUT, int BN>
__device__ __forceinline__ void store_tile(u8* c, u32 sums, const TensorMap& map_c, int m0,
                                           int n0) {
    constexpr int COLS = ROW / sizeof(OUT), PIECE = BM * ROW;
    const u32 warp = warp::index();
#pragma unroll 1
    for (int i = 0; i < BN / COLS; i++) {
        f32 d[2][COLS / 2];
#pragma unroll
        for (int half = 0; half < 2; half++)
#pragma unroll
            for (int j = 0; j < COLS; j += tcgen05::LOAD_COLUMNS)
                tcgen05::load(d[half] + j / 2, sums + (warp * 32 + half * 16 << 16) + i * COLS + j);
        tcgen05::wait_load();
#pragma unroll
        for (int half = 0; half < 2; half++)  // write_rows adds 16 rows for each warp
            staging::write_rows<OUT, COLS>(c + i * PIECE + (warp + half) * 16 * ROW, d[half], 0);
    }
    tma::fence_shared();
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int i = 0; i < BN / COLS; i++)
            tma::store(map_c, c + i * PIECE, n0 + i * COLS, m0);
        tma::commit();
        tma::wait_all();
    }
    __syncwarp();
}

template <class T, class OUT, int BN, int CLUSTER, int COLUMNS>
__global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(128)
k5_two_sms(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
           const __grid_constant__ TensorMap map_c, i32 K) {
    extern __shared__ __align__(1024) u8 shared[];
    u8 *a = shared, *b = a + BM * ROW, *c = b + BN / 2 * ROW;
    Barrier *full = reinterpret_cast<Barrier*>(c + BM * BN * sizeof(OUT)), *done = full + 1;
    u32* tmem = reinterpret_cast<u32*>(done + 1);
    const int m0 = blockIdx.x * BM, n0 = blockIdx.y * BN;

    if (warp::index() == 0) {
        tcgen05::alloc<2>(tmem, COLUMNS);
        tcgen05::relinquish<2>();
    }
    if (threadIdx.x == 0) {
        mbarrier::init(full, 1);
        mbarrier::init(done, CLUSTER / 2);
        mbarrier::fence_init();
    }
    cluster::sync();  // the neighbours' barriers and TMEM are ready too
    const u32 sums = *tmem;

    if (threadIdx.x == 0)
        multiply<T, BN, CLUSTER>(sums, a, b, full, done, map_a, map_b, m0, n0, K);
    __syncthreads();
    tcgen05::fence_after();
    store_tile<OUT, BN>(c, sums, map_c, m0, n0);

    tcgen05::fence_before();
    cluster::sync();  // both CTAs have read their sums
    if (warp::index() == 0) tcgen05::dealloc<2>(sums, COLUMNS);
}
