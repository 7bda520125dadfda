// Matmul kernel 7, Hopper: C leaves in pieces through two buffers.
//
// Idea over kernel 6: no need to keep a whole tile of C in shared memory. A warpgroup writes 64
// rows x 128 bytes (64 columns of bf16, 32 of f32) into one of its two buffers and lets TMA store
// it; while TMA reads, the next piece goes into the other buffer. wait_read<1> says that at most
// the youngest store still reads: the buffer of the one before is free.
//
// Why: shared memory for one more stage. A stage of 128 x 256 x 64 takes 16 + 32 = 48 KB, of 227
// KB:
//   kernel 6  64 KB of C (bf16)         (227 - 64) / 48 = 3.4: 3 stages, 208 KB
//   here      2 x 2 pieces of 8 KB      (227 - 32) / 48 = 4.1: 4 stages, 224 KB
// and f32 results, which left kernel 6 with 2 stages, take no more than bf16. The first piece is
// under way after 1/4 of the conversions, not after all.
//
// Napkin: with one step multiplying, 3 stages leave 2 x 1024 clk for a load to arrive, 4 leave 3 x
// 1024. Loads take some 800 clk unloaded and twice that when all SMs pull: 2000 is on the edge,
// 3000 is not: 1 to 3 %. The write-out, some 2000 clk of 68,000, is overlapped with itself by
// half: 1 %.
// Measured at 4096^3 (results/h200/matmul_ladder.json):
// 739.5 TFLOPS, 0.97 times the rung before, 0.97 of cuBLAS.
//
// Limits: the tensor cores idle while C leaves, and while the next CTA on this SM fills its ring.
//
// Any M, K > 0; rows of A [M, K], B [N, K] and C [M, N] start at multiples of 16 bytes. Grid:
// (tiles of M rounded up to CLUSTER, tiles of N); 384 threads.
#include "common/cluster.cuh"
#include "common/mbarrier.cuh"
#include "common/tma.cuh"
#include "common/warp.cuh"
#include "common/wgmma.cuh"
#include "matmul/sm90/staging.cuh"

using mbarrier::Barrier;

constexpr int BM = 128, BK = 64;
constexpr int CONSUMERS = 2, WG_ROWS = BM / CONSUMERS;
constexpr int ROW = 128;  // bytes of a row of operands and of a piece of C
constexpr int PIECE = WG_ROWS * ROW;

// The stages in shared memory, A before B, and where in the ring a thread is.
template <int BN, int STAGES> struct Ring {
    static constexpr int A_BYTES = BM * ROW, BYTES = A_BYTES + BN * ROW;
    u8* tiles;
    Barrier *full, *empty;
    u32 stage = 0, round = 0;

    __device__ Ring(u8* tiles, Barrier* barriers)
        : tiles(tiles), full(barriers), empty(barriers + STAGES) {}
    __device__ u8* a() const { return tiles + stage * BYTES; }
    __device__ u8* b() const { return a() + A_BYTES; }
    __device__ void next() {
        if (++stage == STAGES) stage = 0, round ^= 1;
    }
};

// One thread of a CTA fills its own A and its part of everyone's B.
template <int BN, int STAGES, int CLUSTER>
__device__ __forceinline__ void produce(Ring<BN, STAGES> ring, const TensorMap& map_a,
                                        const TensorMap& map_b, int m0, int n0, int K) {
    constexpr int PART = BN / CLUSTER;
    constexpr u16 ALL = (1 << CLUSTER) - 1;
    const int rank = cluster::rank();
    for (int k = 0; k < K; k += BK, ring.next()) {
        Barrier* full = &ring.full[ring.stage];
        mbarrier::wait(&ring.empty[ring.stage], ring.round ^ 1);
        mbarrier::arrive_and_expect(full, ring.BYTES);
        tma::load(ring.a(), map_a, full, k, m0);
        tma::load_multicast(ring.b() + rank * PART * ROW, map_b, full, ALL, k, n0 + rank * PART);
    }
    // A CTA that is gone could not be told that a stage is empty: stay until all of them are.
    for (int i = 0; i < STAGES; i++, ring.next())
        mbarrier::wait(&ring.empty[ring.stage], ring.round ^ 1);
}

__device__ __forceinline__ u64 operand(const void* tile) {
    return wgmma::descriptor(mbarrier::address(tile), 16, 1024, wgmma::Swizzle::b128);
}

// Thread i of a warpgroup tells CTA i of the cluster that the warpgroup is done with a stage.
template <int CLUSTER> __device__ __forceinline__ void release(Barrier* empty) {
    const u32 thread = threadIdx.x % warp::GROUP;
    if (thread < CLUSTER) mbarrier::arrive_remote(empty, thread);
}

// A consumer warpgroup's 64 rows of the product.
template <class T, int BN, int STAGES, int CLUSTER>
__device__ __forceinline__ void multiply(f32 (&d)[BN / 2], Ring<BN, STAGES> ring, int wg, int K) {
    u32 before = 0;
    for (int k = 0; k < K; k += BK, ring.next()) {
        mbarrier::wait(&ring.full[ring.stage], ring.round);
        wgmma::fence();
#pragma unroll
        for (int kk = 0; kk < BK / 16; kk++) {
            wgmma::mma<T, BN>(d, wgmma::advance(operand(ring.a() + wg * WG_ROWS * ROW), kk * 32),
                              wgmma::advance(operand(ring.b()), kk * 32), (k | kk) != 0);
        }
        wgmma::commit();
        wgmma::wait<1>();  // the step before is done
        if (k > 0) release<CLUSTER>(&ring.empty[before]);
        before = ring.stage;
    }
    wgmma::wait<0>();
    release<CLUSTER>(&ring.empty[before]);
}

// A warpgroup sends its 64 rows off in pieces, alternating between two buffers.
template <class OUT, int BN>
__device__ __forceinline__ void store_tile(u8* buffers, const f32 (&d)[BN / 2],
                                           const TensorMap& map_c, int m0, int n0, int wg) {
    constexpr int COLS = ROW / sizeof(OUT);
    const bool sender = threadIdx.x % warp::GROUP == 0;
#pragma unroll
    for (int i = 0; i < BN / COLS; i++) {
        u8* buffer = buffers + i % 2 * PIECE;
        if (sender) tma::wait_read<1>();  // the store before the last has read this buffer
        warp::sync(1 + wg, warp::GROUP);
        staging::write_rows<OUT, COLS>(buffer, d, i * COLS);
        tma::fence_shared();
        warp::sync(1 + wg, warp::GROUP);
        if (sender) {
            tma::store(map_c, buffer, n0 + i * COLS, m0);
            tma::commit();
        }
    }
    if (sender) tma::wait_all();
    __syncwarp();
}

template <class T, class OUT, int BN, int STAGES, int CLUSTER>
__global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(384, 1)
k7_pieces(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
          const __grid_constant__ TensorMap map_c, i32 K) {
    extern __shared__ __align__(1024) u8 shared[];
    u8* buffers = shared + STAGES * Ring<BN, STAGES>::BYTES;
    Ring<BN, STAGES> ring(shared, reinterpret_cast<Barrier*>(buffers + CONSUMERS * 2 * PIECE));
    const int role = warp::group();  // 0 produces, 1 and 2 consume
    const int m0 = blockIdx.x * BM, n0 = blockIdx.y * BN;

    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            mbarrier::init(&ring.full[i], 1);
            mbarrier::init(&ring.empty[i], CONSUMERS * CLUSTER);
        }
        mbarrier::fence_init();
    }
    cluster::meet();

    if (role == 0) {
        warp::give_registers<40>();
        if (threadIdx.x == 0) produce<BN, STAGES, CLUSTER>(ring, map_a, map_b, m0, n0, K);
        __syncwarp();
    } else {
        warp::take_registers<232>();
        const int wg = role - 1;
        f32 d[BN / 2];
        multiply<T, BN, STAGES, CLUSTER>(d, ring, wg, K);
        store_tile<OUT, BN>(buffers + wg * 2 * PIECE, d, map_c, m0 + wg * WG_ROWS, n0, wg);
    }
}
