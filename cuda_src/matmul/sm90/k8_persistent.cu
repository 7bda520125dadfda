// Matmul kernel 8, Hopper: persistent CTAs, the write-out under the next tile's loads.
//
// Idea over kernel 7: start one CTA per SM and let it compute tile after tile. All roles walk the
// same list of tiles: cluster i takes tiles i, i + clusters, i + 2 clusters, ... The ring does not
// know where a tile ends, so the producer goes straight on to the next tile: while the consumers
// write C out, it fills all stages, and the next tile starts with a full ring. Barriers are set up
// once.
//
// Order: clusters that run at the same time should share strips of A and B, so that what TMA asks
// for is in L2 already. Row after row, 66 clusters would read some 4 strips of A and all of B; in
// groups of `group` tile rows, walked column by column, they read a near-square patch (tiles.cuh).
//
// Why it is faster: kernel 7 pays for every tile the start of a CTA, barriers, the first
// descriptor fetch, and the latency of the first loads.
//
// Napkin (4096^3): some 2500 clk of set-up and first loads and 2000 of write-out beside 65,500 of
// multiplication. The former disappear, of the latter the loads' share: 4 %. Few tiles hurt as
// before: 512 tiles on 132 SMs are 3.88 waves, and the last is paid in full.
// Measured at 4096^3 (results/h200/matmul_ladder.json):
// 775.7 TFLOPS, 1.05 times the rung before, 1.01 of cuBLAS.
//
// Limits: the write-out itself is hidden from memory, not from the tensor cores, which wait for
// both consumers (the library's kernel, gemm.cu, can let one multiply while the other writes); the
// schedule is fixed: an SM that is slowed down keeps its share of tiles.
//
// All CTAs of a cluster walk the same list, CTAs whose rows lie beyond M with the others; none
// exits before all are done with its barriers.
//
// Any M, K > 0; rows of A [M, K], B [N, K] and C [M, N] start at multiples of 16 bytes. Grid: any
// multiple of CLUSTER up to the number of tiles, at best one CTA per SM; 384 threads.
#include "common/cluster.cuh"
#include "common/mbarrier.cuh"
#include "common/tma.cuh"
#include "common/warp.cuh"
#include "common/wgmma.cuh"
#include "matmul/sm90/staging.cuh"
#include "matmul/sm90/tiles.cuh"

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
__device__ __forceinline__ void produce(Ring<BN, STAGES>& ring, const TensorMap& map_a,
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
__device__ __forceinline__ void multiply(f32 (&d)[BN / 2], Ring<BN, STAGES>& ring, int wg, int K) {
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

// A warpgroup sends its 64 rows off in pieces, alternating between two buffers; `next` is the one
// whose turn it is.
template <class OUT, int BN>
__device__ __forceinline__ void store_tile(u8* buffers, u32& next, const f32 (&d)[BN / 2],
                                           const TensorMap& map_c, int m0, int n0, int wg) {
    constexpr int COLS = ROW / sizeof(OUT);
    const bool sender = threadIdx.x % warp::GROUP == 0;
#pragma unroll
    for (int i = 0; i < BN / COLS; i++, next ^= 1) {
        u8* buffer = buffers + next * PIECE;
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
}

__device__ __forceinline__ i32 ceil_div(i32 a, i32 b) { return (a + b - 1) / b; }

// The tiles of this CTA: calls `work(m0, n0)` for each.
template <int BN, int CLUSTER, class Work>
__device__ __forceinline__ void for_each_tile(i32 M, i32 N, i32 group, Work work) {
    const tiles::Schedule schedule{ceil_div(M, BM * CLUSTER), ceil_div(N, BN), 1, group};
    const i32 clusters = gridDim.x / CLUSTER, rank = cluster::rank();
    for (i32 i = blockIdx.x / CLUSTER; i < schedule.count(); i += clusters) {
        const tiles::Tile tile = schedule.at(i);
        work((tile.m * CLUSTER + rank) * BM, tile.n * BN);
    }
}

template <class T, class OUT, int BN, int STAGES, int CLUSTER>
__global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(384, 1)
k8_persistent(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
              const __grid_constant__ TensorMap map_c, i32 M, i32 N, i32 K, i32 group) {
    extern __shared__ __align__(1024) u8 shared[];
    u8* buffers = shared + STAGES * Ring<BN, STAGES>::BYTES;
    Ring<BN, STAGES> ring(shared, reinterpret_cast<Barrier*>(buffers + CONSUMERS * 2 * PIECE));
    const int role = warp::group();  // 0 produces, 1 and 2 consume

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
        if (threadIdx.x == 0) {
            for_each_tile<BN, CLUSTER>(M, N, group, [&](int m0, int n0) {
                produce<BN, STAGES, CLUSTER>(ring, map_a, map_b, m0, n0, K);
            });
            // A CTA that is gone could not be told that a stage is empty: stay until all of them are.
            for (int i = 0; i < STAGES; i++, ring.next())
                mbarrier::wait(&ring.empty[ring.stage], ring.round ^ 1);
        }
    } else {
        warp::take_registers<232>();
        const int wg = role - 1;
        u8* mine = buffers + wg * 2 * PIECE;
        u32 next = 0;
        for_each_tile<BN, CLUSTER>(M, N, group, [&](int m0, int n0) {
            f32 d[BN / 2];
            multiply<T, BN, STAGES, CLUSTER>(d, ring, wg, K);
            store_tile<OUT, BN>(mine, next, d, map_c, m0 + wg * WG_ROWS, n0, wg);
        });
        if (threadIdx.x % warp::GROUP == 0) tma::wait_all();
        __syncwarp();
    }
}
