// Matmul kernel 5, Hopper: larger tiles, and CTAs that share what they load.
//
// Idea over kernel 4: a tile of 128 x BN by two warpgroups, 64 rows each, and clusters of CTAs
// that lie next to each other along M. Those need the same tile of B, so each loads its part of it
// and multicasts it: TMA writes the same box into every CTA of the cluster and counts its bytes at
// the barrier of each. A step of K ends with a cluster barrier: nobody may write into a
// neighbour's shared memory before the neighbour has multiplied what is there.
//
// Why: L2 has to deliver less. A 64 x 256 step of K draws 40 KB for 512 clk of wgmma, 80 B/clk; a
// 128 x 256 step draws 48 KB for 1024 clk; with half of B from the neighbour 32 KB: 32 B/clk,
// below the 46 that L2 sustains per SM.
//
// Napkin: and yet little or nothing is gained here, perhaps lost. 128 sums per thread of 256
// threads fill the register file, so one CTA per SM is left and nothing overlaps: some 800 clk of
// latency, 700 of transfer, 1024 of wgmma and 500 of barrier (it orders memory, which takes a
// fence) per step are 34 % of the tensor cores: 320 TFLOPS. What L2 saves is collected by kernel 6.
// Measured at 4096^3 (results/h200/matmul_ladder.json):
// 315.9 TFLOPS, 0.53 times the rung before, 0.40 of cuBLAS.
//
// Limits: single-buffered, and all threads of the cluster wait for each other at every step.
//
// A CTA whose rows all lie beyond M (an odd number of tiles, rounded up to clusters) loads zeros
// and its part of B, and TMA drops its stores.
//
// Any M, K > 0; rows of A [M, K], B [N, K] and C [M, N] start at multiples of 16 bytes. Grid:
// (tiles of M rounded up to CLUSTER, tiles of N); 256 threads.
#include "common/cluster.cuh"
#include "common/mbarrier.cuh"
#include "common/tma.cuh"
#include "common/warp.cuh"
#include "common/wgmma.cuh"
#include "matmul/sm90/staging.cuh"

using mbarrier::Barrier;

constexpr int BM = 128, BK = 64;
constexpr int WG_ROWS = 64;  // of a warpgroup
constexpr int ROW = 128;     // bytes of a row of operands and of a piece of C

__device__ __forceinline__ u64 operand(const void* tile) {
    return wgmma::descriptor(mbarrier::address(tile), 16, 1024, wgmma::Swizzle::b128);
}

// A warpgroup writes its 64 rows, then one of its threads sends them off.
template <class OUT, int BN>
__device__ __forceinline__ void store_tile(u8* c, const f32 (&d)[BN / 2], const TensorMap& map_c,
                                           int m0, int n0, int wg) {
    constexpr int COLS = ROW / sizeof(OUT), PIECE = WG_ROWS * ROW;
#pragma unroll
    for (int i = 0; i < BN / COLS; i++)
        staging::write_rows<OUT, COLS>(c + i * PIECE, d, i * COLS);
    tma::fence_shared();
    warp::sync(1 + wg, warp::GROUP);
    if (threadIdx.x % warp::GROUP == 0) {
        for (int i = 0; i < BN / COLS; i++)
            tma::store(map_c, c + i * PIECE, n0 + i * COLS, m0);
        tma::commit();
        tma::wait_all();
    }
}

template <class T, class OUT, int BN, int CLUSTER>
__global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(256, 1)
k5_cluster(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
           const __grid_constant__ TensorMap map_c, i32 K) {
    constexpr int A_BYTES = BM * ROW, B_BYTES = BN * ROW, C_BYTES = WG_ROWS * BN * sizeof(OUT);
    constexpr int PART = BN / CLUSTER;  // rows of B that this CTA loads for all
    constexpr u16 ALL = (1 << CLUSTER) - 1;
    extern __shared__ __align__(1024) u8 shared[];
    u8 *a = shared, *b = a + A_BYTES, *c = b + B_BYTES;
    Barrier* full = reinterpret_cast<Barrier*>(c + 2 * C_BYTES);
    const int rank = cluster::rank(), wg = warp::group();
    const int m0 = blockIdx.x * BM, n0 = blockIdx.y * BN;

    if (threadIdx.x == 0) {
        mbarrier::init(full, 1);
        mbarrier::fence_init();
    }
    cluster::meet();  // the neighbours' barriers are ready too

    f32 d[BN / 2];
    u32 parity = 0;
    for (int k = 0; k < K; k += BK, parity ^= 1) {
        if (threadIdx.x == 0) {
            mbarrier::arrive_and_expect(full, A_BYTES + B_BYTES);  // B: from all of the cluster
            tma::load(a, map_a, full, k, m0);
            tma::load_multicast(b + rank * PART * ROW, map_b, full, ALL, k, n0 + rank * PART);
        }
        mbarrier::wait(full, parity);

        wgmma::fence();
#pragma unroll
        for (int kk = 0; kk < BK / 16; kk++) {
            wgmma::mma<T, BN>(d, wgmma::advance(operand(a + wg * WG_ROWS * ROW), kk * 32),
                              wgmma::advance(operand(b), kk * 32), (k | kk) != 0);
        }
        wgmma::commit();
        wgmma::wait<0>();
        cluster::sync();  // all CTAs are done with their tiles, of which others write a part
    }
    store_tile<OUT, BN>(c + wg * C_BYTES, d, map_c, m0 + wg * WG_ROWS, n0, wg);
}
