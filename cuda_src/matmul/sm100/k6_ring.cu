// Matmul kernel 6, Blackwell: a ring of stages between a loading and a multiplying warp.
//
// Idea over kernel 5: several tiles in flight, and warps with roles. Warp 4 does nothing but fill
// the ring, warp 5 nothing but start MMAs, warps 0 to 3 wait for the sums and write them out. Two
// mbarriers per stage say all there is to say:
//   full   completed by the bytes of TMA, one arrival (the leader's "expect so many", for the pair)
//   empty  one arrival per pair of the cluster, when its MMAs have read the stage: the commit
//          arrives by itself, in every CTA that loads into this memory
// and a third kind, `ready`, is committed once, when the last MMA of the tile is started. Producers
// start with parity 1, "the phase before is over": a fresh ring is empty.
//
// Registers need no moving between roles, as on Hopper: sums are in TMEM. One thread loads, one
// multiplies, in the leading CTA of a pair only.
//
// Napkin (4096^3, 148 SMs at 1.85 GHz, 256 x 256 tiles per pair): a step takes max(512 clk of MMA,
// 32 KB / 46 = 700 clk of loads), no longer their sum plus latency. 4 waves of 64 steps, and some
// 5000 clk in each to fill the ring and to write out: 200,000 clk, 1270 TFLOPS, 2.8 times kernel 5;
// if L2 keeps up with the MMAs, 1680.
// Published for 4096^3 (results/published.csv):
// 1429.6 TFLOP/s on B200.
//
// Limits: a whole tile of C waits in shared memory (64 KB of bf16), which leaves 5 stages; each CTA
// starts with an empty ring and ends with nothing to multiply.
//
// A CTA beyond M still loads (zeros) and signals: the ring of its neighbours turns on.
//
// State: emulator-verified, not hardware-verified.
//
// Any M, K > 0; rows of A [M, K], B [N, K] and C [M, N] start at multiples of 16 bytes. Grid:
// (tiles of M rounded up to CLUSTER, tiles of N); 192 threads.
#include "common/cluster.cuh"
#include "common/mbarrier.cuh"
#include "common/tcgen05.cuh"
#include "common/tma.cuh"
#include "common/warp.cuh"
#include "matmul/sm90/staging.cuh"

using mbarrier::Barrier;

constexpr int BM = 128, BK = 64;  // of a CTA; a pair has 256 rows
constexpr int ROW = 128;          // bytes of a row of operands and of a piece of C
constexpr int LOADER = 4, MULTIPLIER = 5;  // warps; the ones before write out

// The stages in shared memory, A before B, and where in the ring a thread is.
template <int BN, int STAGES> struct Ring {
    static constexpr int A_BYTES = BM * ROW, BYTES = A_BYTES + BN / 2 * ROW;
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

// One thread of a CTA fills its ring, and its part of its neighbours'.
template <int BN, int STAGES, int CLUSTER>
__device__ __forceinline__ void produce(Ring<BN, STAGES> ring, const TensorMap& map_a,
                                        const TensorMap& map_b, int m0, int n0, int K) {
    const bool leader = cluster::rank() % 2 == 0;
    for (int k = 0; k < K; k += BK, ring.next()) {
        Barrier* full = &ring.full[ring.stage];
        mbarrier::wait(&ring.empty[ring.stage], ring.round ^ 1);
        if (leader) mbarrier::arrive_and_expect(full, 2 * ring.BYTES);
        load_tiles<BN, CLUSTER>(ring.a(), ring.b(), full, map_a, map_b, k, m0, n0);
    }
    // A CTA that is gone could not be told that a stage is empty: stay until all of them are.
    for (int i = 0; i < STAGES; i++, ring.next())
        mbarrier::wait(&ring.empty[ring.stage], ring.round ^ 1);
}

__device__ __forceinline__ u64 operand(const void* tile) {
    return tcgen05::descriptor(mbarrier::address(tile), 16, 1024, tcgen05::Swizzle::b128);
}

// One thread of the leader multiplies, for the pair, and says so to those who load or write out.
template <class T, int BN, int STAGES, int CLUSTER>
__device__ __forceinline__ void multiply(u32 sums, Ring<BN, STAGES> ring, Barrier* ready, int K) {
    for (int k = 0; k < K; k += BK, ring.next()) {
        mbarrier::wait(&ring.full[ring.stage], ring.round);
        tcgen05::fence_after();
#pragma unroll
        for (int kk = 0; kk < BK / 16; kk++)
            tcgen05::mma<2>(sums, tcgen05::advance(operand(ring.a()), kk * 32),
                            tcgen05::advance(operand(ring.b()), kk * 32),
                            tcgen05::SHAPE<T, 2 * BM, BN>, (k | kk) != 0);
        tcgen05::commit_multicast<2>(&ring.empty[ring.stage], (1 << CLUSTER) - 1);
    }
    tcgen05::commit_multicast<2>(ready, 3 << cluster::rank());
}

// Four warps write their sums to `c`, pieces of 128 rows x 128 bytes; one thread sends them off. A
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
    warp::sync(1, warp::GROUP);
    if (threadIdx.x == 0) {
        for (int i = 0; i < BN / COLS; i++)
            tma::store(map_c, c + i * PIECE, n0 + i * COLS, m0);
        tma::commit();
        tma::wait_all();
    }
}

template <class T, class OUT, int BN, int STAGES, int CLUSTER>
__global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(192, 1)
k6_ring(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
        const __grid_constant__ TensorMap map_c, i32 K) {
    extern __shared__ __align__(1024) u8 shared[];
    u8* c = shared + STAGES * Ring<BN, STAGES>::BYTES;
    Barrier* barriers = reinterpret_cast<Barrier*>(c + BM * BN * sizeof(OUT));
    Ring<BN, STAGES> ring(shared, barriers);
    Barrier* ready = barriers + 2 * STAGES;
    u32* tmem = reinterpret_cast<u32*>(ready + 1);
    const int role = warp::index(), m0 = blockIdx.x * BM, n0 = blockIdx.y * BN;

    if (role == MULTIPLIER) {
        tcgen05::alloc<2>(tmem, tcgen05::COLUMNS);
        tcgen05::relinquish<2>();
    }
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            mbarrier::init(&ring.full[i], 1);
            mbarrier::init(&ring.empty[i], CLUSTER / 2);
        }
        mbarrier::init(ready, 1);
        mbarrier::fence_init();
    }
    cluster::sync();  // the neighbours' barriers and TMEM are ready too
    const u32 sums = *tmem;

    if (role == LOADER) {
        if (warp::elect()) produce<BN, STAGES, CLUSTER>(ring, map_a, map_b, m0, n0, K);
    } else if (role == MULTIPLIER) {
        if (cluster::rank() % 2 == 0 && warp::elect())
            multiply<T, BN, STAGES, CLUSTER>(sums, ring, ready, K);
    } else {
        mbarrier::wait(ready, 0);
        tcgen05::fence_after();
        store_tile<OUT, BN>(c, sums, map_c, m0, n0);
    }
    __syncwarp();

    tcgen05::fence_before();
    cluster::sync();  // both CTAs have read their sums
    if (role == MULTIPLIER) tcgen05::dealloc<2>(sums, tcgen05::COLUMNS);
}
