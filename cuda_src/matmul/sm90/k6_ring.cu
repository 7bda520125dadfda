// Matmul kernel 6, Hopper: a ring of stages between a producer and the consumers.
//
// Idea over kernel 5: several tiles in flight, and warpgroups with roles. One thread of the
// producer does nothing but fill the ring: it waits until a stage is empty, says how many bytes to
// expect and starts the copies. Two consumer warpgroups multiply stage after stage. Nobody meets
// at a barrier of all threads any more; two mbarriers per stage say all there is to say:
//   full   completed by the bytes of TMA, one arrival (the producer's "expect so many")
//   empty  one arrival per consumer warpgroup of every CTA of the cluster, because its CTAs write
//          into each other's stages; one thread arrives for its warpgroup, not 128
// Producers start with parity 1, "the phase before is over": a fresh ring is empty.
//
// wgmma is asynchronous too: while one step multiplies, the next is already issued. A stage is
// released one step late, when only the younger group is still in flight.
//
// Registers: 384 threads would get 168 each. The producer needs few: setmaxnreg lowers its
// warpgroup to 40 and lifts the consumers to 232: (40 + 2 x 232) x 128 = 64,512 of 65,536.
//
// Napkin: a step takes max(1024 clk of wgmma, 32 KB / 46 = 700 clk of loads), no longer their sum
// plus latency: 2.5 times kernel 5. Per 4096 x 4096 tile row: 64 steps are 65,500 clk, filling the
// ring and writing out some 4000: 94 %, and 512 tiles on 132 SMs are 97 % of 4 waves: 860 TFLOPS
// at 1.75 GHz if power allowed that clock, so rather 700.
// Measured at 4096^3 (results/h200/matmul_ladder.json):
// 759.1 TFLOPS, 2.40 times the rung before, 0.97 of cuBLAS.
//
// Limits: a whole tile of C waits in shared memory (64 KB of bf16), which leaves 3 stages; each
// CTA starts with an empty ring and ends with nothing to multiply.
//
// A CTA beyond M still loads (zeros), multiplies and releases: the ring of its neighbours turns
// on.
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
    __syncwarp();
}

template <class T, class OUT, int BN, int STAGES, int CLUSTER>
__global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(384, 1)
k6_ring(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
        const __grid_constant__ TensorMap map_c, i32 K) {
    constexpr int C_BYTES = WG_ROWS * BN * sizeof(OUT);  // of a warpgroup
    extern __shared__ __align__(1024) u8 shared[];
    u8* c = shared + STAGES * Ring<BN, STAGES>::BYTES;
    Ring<BN, STAGES> ring(shared, reinterpret_cast<Barrier*>(c + CONSUMERS * C_BYTES));
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
        store_tile<OUT, BN>(c + wg * C_BYTES, d, map_c, m0 + wg * WG_ROWS, n0, wg);
    }
}
