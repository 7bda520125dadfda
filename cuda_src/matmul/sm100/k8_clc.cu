// Matmul kernel 8, Blackwell: running clusters steal the tiles of those that have not started,
// and the tensor core multiplies the next tile while this one is written out.
//
// Idea over kernel 7, first: a cluster that is done with its tile takes the next one of the grid.
// The grid is one cluster per tile, as before; warp 4 of the cluster's first CTA asks the hardware
// to cancel a cluster that has not started and to tell whose place is free (cluster launch control,
// clc.cuh). So a CTA sets up once, like a persistent one, and yet nobody fixes who does which tile:
// an SM that is slowed down takes fewer.
//
// Second: TMEM has 512 columns and a tile of 128 needs 128. The sums are a ring, too: while four
// warps read one accumulator, the MMAs of the next tile go on in another. Only the first fill of
// the ring and the last write-out are left uncovered.
//
// Who waits for whom, all of it by mbarriers (counts in brackets):
//   full, empty       of a stage, as in kernel 6
//   ready [1]         of an accumulator: the commit behind its last MMA, in both CTAs
//   taken [2 x 4]     of an accumulator, in the leader: the pair's writing warps have read it
//   told [1]          of an answer: 16 bytes of clc, in every CTA
//   heard [all roles] of an answer, in the first CTA: it may be overwritten
//   begun [1]         the first CTA's loader has begun a tile, so that the next question may be
//                     asked. Earlier, a cluster would hoard tiles that others could begin.
//
// Order: the grid is numbered as kernel 8 of Hopper walks it, in groups of `group` tile rows
// (tiles.cuh); clusters start, and are stolen, in this order.
//
// Why the tile is smaller again (256 x 128 for a pair): 512 tiles on 74 pairs are 6.92 waves, all
// but 7, where 256 x 256 gives 3.46, which cost 4. It asks more of L2: 24 KB for each 256 clk.
//
// Napkin (4096^3, 148 SMs at 1.85 GHz): 7 waves of 64 steps of 256 clk and 4000 clk to begin and to
// end: 119,000 clk, where kernel 7 needs 151,000 with the same optimism. 1.27 times kernel 7.
// Published for 4096^3 (results/published.csv):
// 1772.9 TFLOP/s on B200.
//
// Limits: where all tiles take equally long, a fixed list of tiles does as well.
//
// All CTAs of a cluster hear the same answers, CTAs whose rows lie beyond M with the others; none
// exits before all are done with its barriers and its TMEM.
//
// State: emulator-verified, not hardware-verified.
//
// Any M, K > 0; rows of A [M, K], B [N, K] and C [M, N] start at multiples of 16 bytes. Grid:
// tiles of M rounded up to CLUSTER, times tiles of N; 224 threads.
#include "common/clc.cuh"
#include "common/cluster.cuh"
#include "common/mbarrier.cuh"
#include "common/tcgen05.cuh"
#include "common/tma.cuh"
#include "common/warp.cuh"
#include "matmul/sm90/staging.cuh"
#include "matmul/sm90/tiles.cuh"

using mbarrier::Barrier;

constexpr int BM = 128, BK = 64;  // of a CTA; a pair has 256 rows
constexpr int ROW = 128;          // bytes of a row of operands
constexpr int COLS = tcgen05::LOAD_COLUMNS, ANSWERS = 2;  // of a piece of C; kept at a time
constexpr int SCHEDULER = 4, LOADER = 5, MULTIPLIER = 6;  // warps; the ones before write out

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

// The accumulators in TMEM, and where among them a thread is.
template <int BN> struct Sums {
    static constexpr int STRIDE = BN <= 64 ? 64 : BN <= 128 ? 128 : 256;
    static constexpr int COUNT = tcgen05::COLUMNS / STRIDE;
    Barrier *ready, *taken;
    u32 tmem, place = 0, round = 0;

    __device__ Sums(Barrier* barriers) : ready(barriers), taken(barriers + COUNT) {}
    __device__ u32 address() const { return tmem + place * STRIDE; }
    __device__ void next() {
        if (++place == COUNT) place = 0, round ^= 1;
    }
};

// The answers of cluster launch control; `heard` and `begun` are for the cluster's first CTA.
struct Answers {
    clc::Answer* answers;
    Barrier *told, *heard, *begun;

    __device__ Answers(clc::Answer* answers, Barrier* barriers)
        : answers(answers), told(barriers), heard(told + ANSWERS), begun(heard + ANSWERS) {}
    // The i-th answer: whether there is another tile, and which block starts it.
    __device__ bool hear(u32 i, i32& block) const {
        mbarrier::wait(&told[i % ANSWERS], i / ANSWERS & 1);
        const bool more = clc::read(&answers[i % ANSWERS], block);
        tma::fence_shared();  // read, before it is written again
        return more;
    }
};

// This CTA's rows of A, and its part of B for all CTAs of its parity; the pair's leader counts.
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
__device__ __forceinline__ void produce(Ring<BN, STAGES>& ring, const TensorMap& map_a,
                                        const TensorMap& map_b, int m0, int n0, int K) {
    const bool leader = cluster::rank() % 2 == 0;
    for (int k = 0; k < K; k += BK, ring.next()) {
        Barrier* full = &ring.full[ring.stage];
        mbarrier::wait(&ring.empty[ring.stage], ring.round ^ 1);
        if (leader) mbarrier::arrive_and_expect(full, 2 * ring.BYTES);
        load_tiles<BN, CLUSTER>(ring.a(), ring.b(), full, map_a, map_b, k, m0, n0);
    }
}

__device__ __forceinline__ u64 operand(const void* tile) {
    return tcgen05::descriptor(mbarrier::address(tile), 16, 1024, tcgen05::Swizzle::b128);
}

// One thread of the leader multiplies, for the pair, and says so to those who load or write out.
template <class T, int BN, int STAGES, int CLUSTER>
__device__ __forceinline__ void multiply(Sums<BN>& sums, Ring<BN, STAGES>& ring, int K) {
    mbarrier::wait(&sums.taken[sums.place], sums.round ^ 1);
    for (int k = 0; k < K; k += BK, ring.next()) {
        mbarrier::wait(&ring.full[ring.stage], ring.round);
        tcgen05::fence_after();
#pragma unroll
        for (int kk = 0; kk < BK / 16; kk++)
            tcgen05::mma<2>(sums.address(), tcgen05::advance(operand(ring.a()), kk * 32),
                            tcgen05::advance(operand(ring.b()), kk * 32),
                            tcgen05::SHAPE<T, 2 * BM, BN>, (k | kk) != 0);
        tcgen05::commit_multicast<2>(&ring.empty[ring.stage], (1 << CLUSTER) - 1);
    }
    tcgen05::commit_multicast<2>(&sums.ready[sums.place], 3 << cluster::rank());
    sums.next();
}

// Four warps send C off in pieces, alternating between two buffers; `turn` is the one that is next.
// A warp has 32 rows of a piece, 16 of them in a fragment.
template <class OUT, int BN>
__device__ __forceinline__ void store_tile(u8* buffers, u32& turn, Sums<BN>& sums,
                                           const TensorMap& map_c, int m0, int n0) {
    constexpr int PITCH = COLS * sizeof(OUT), PIECE = BM * PITCH;
    const u32 warp = warp::index();
    const bool sender = threadIdx.x == 0;
    mbarrier::wait(&sums.ready[sums.place], sums.round);
    tcgen05::fence_after();
#pragma unroll 1
    for (int i = 0; i < BN / COLS; i++, turn ^= 1) {
        f32 d[2][COLS / 2];
        u8* buffer = buffers + turn * PIECE;
#pragma unroll
        for (int half = 0; half < 2; half++)
            tcgen05::load(d[half], sums.address() + (warp * 32 + half * 16 << 16) + i * COLS);
        tcgen05::wait_load();
        if (i == BN / COLS - 1) {  // all are read: let the leader multiply into them
            tcgen05::fence_before();
            __syncwarp();
            if (warp::lane() == 0)
                mbarrier::arrive_remote(&sums.taken[sums.place], cluster::rank() & ~1u);
        }
        if (sender) tma::wait_read<1>();  // the store before the last has read this buffer
        warp::sync(1, warp::GROUP);
#pragma unroll
        for (int half = 0; half < 2; half++)  // write_rows adds 16 rows for each warp
            staging::write_rows<OUT, COLS>(buffer + (warp + half) * 16 * PITCH, d[half], 0);
        tma::fence_shared();
        warp::sync(1, warp::GROUP);
        if (sender) {
            tma::store(map_c, buffer, n0 + i * COLS, m0);
            tma::commit();
        }
    }
    sums.next();
}

// One thread of the cluster's first CTA asks for tiles until there are none.
template <int CLUSTER> __device__ __forceinline__ void schedule(const Answers& answers) {
    i32 block;
    u32 i = 0;
    do {
        mbarrier::wait(answers.begun, i & 1);
        mbarrier::wait(&answers.heard[i % ANSWERS], i / ANSWERS & 1 ^ 1);
        for (u32 rank = 0; rank < CLUSTER; rank++)
            mbarrier::arrive_and_expect_remote(&answers.told[i % ANSWERS], rank,
                                               sizeof(clc::Answer));
        clc::ask(&answers.answers[i % ANSWERS], &answers.told[i % ANSWERS]);
    } while (answers.hear(i++, block));
}

__device__ __forceinline__ i32 ceil_div(i32 a, i32 b) { return (a + b - 1) / b; }

// The tiles of this cluster: calls `work(m0, n0)` for each. A role is a thread, or warps as a whole
// (WARPS), each of which is heard once.
template <int BN, int CLUSTER, bool WARPS, class Work>
__device__ __forceinline__ void for_each_tile(const Answers& answers, i32 M, i32 N, i32 group,
                                              Work work) {
    const tiles::Schedule schedule{ceil_div(M, BM * CLUSTER), ceil_div(N, BN), 1, group};
    const i32 rank = cluster::rank();
    i32 block = blockIdx.x;
    for (u32 i = 0;; i++) {
        const tiles::Tile tile = schedule.at(block / CLUSTER);
        work((tile.m * CLUSTER + rank) * BM, tile.n * BN);
        if (!answers.hear(i, block)) return;
        if (WARPS) __syncwarp();
        if (!WARPS || warp::lane() == 0) mbarrier::arrive_remote(&answers.heard[i % ANSWERS], 0);
    }
}

// One thread prepares all barriers.
template <int BN, int STAGES, int CLUSTER>
__device__ __forceinline__ void set_up(const Ring<BN, STAGES>& ring, const Sums<BN>& sums,
                                       const Answers& answers) {
    constexpr int WRITERS = 4, HEARERS = CLUSTER * (WRITERS + 1) + CLUSTER / 2;  // all roles
    for (int i = 0; i < STAGES; i++) {
        mbarrier::init(&ring.full[i], 1);
        mbarrier::init(&ring.empty[i], CLUSTER / 2);
    }
    for (int i = 0; i < sums.COUNT; i++) {
        mbarrier::init(&sums.ready[i], 1);
        mbarrier::init(&sums.taken[i], 2 * WRITERS);
    }
    for (int i = 0; i < ANSWERS; i++) {
        mbarrier::init(&answers.told[i], 1);
        mbarrier::init(&answers.heard[i], HEARERS);
    }
    mbarrier::init(answers.begun, 1);
    mbarrier::fence_init();
}

template <class T, class OUT, int BN, int STAGES, int CLUSTER>
__global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(224, 1)
k8_clc(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
       const __grid_constant__ TensorMap map_c, i32 M, i32 N, i32 K, i32 group) {
    extern __shared__ __align__(1024) u8 shared[];
    u8* buffers = shared + STAGES * Ring<BN, STAGES>::BYTES;
    clc::Answer* slots = reinterpret_cast<clc::Answer*>(buffers + 2 * BM * COLS * sizeof(OUT));
    Barrier* barriers = reinterpret_cast<Barrier*>(slots + ANSWERS);
    Ring<BN, STAGES> ring(shared, barriers);
    Sums<BN> sums(barriers + 2 * STAGES);
    const Answers answers(slots, sums.taken + sums.COUNT);
    u32* tmem = reinterpret_cast<u32*>(answers.begun + 1);
    const int role = warp::index(), rank = cluster::rank();

    if (role == MULTIPLIER) {
        tcgen05::alloc<2>(tmem, tcgen05::COLUMNS);
        tcgen05::relinquish<2>();
    }
    if (threadIdx.x == 0) set_up<BN, STAGES, CLUSTER>(ring, sums, answers);
    cluster::sync();  // the neighbours' barriers and TMEM are ready too
    sums.tmem = *tmem;

    if (role == SCHEDULER) {
        if (rank == 0 && warp::elect()) schedule<CLUSTER>(answers);
    } else if (role == LOADER) {
        if (warp::elect()) {
            for_each_tile<BN, CLUSTER, false>(answers, M, N, group, [&](int m0, int n0) {
                if (rank == 0) mbarrier::arrive(answers.begun);
                produce<BN, STAGES, CLUSTER>(ring, map_a, map_b, m0, n0, K);
            });
            // A CTA that is gone could not be told that a stage is empty: stay until all are.
            for (int i = 0; i < STAGES; i++, ring.next())
                mbarrier::wait(&ring.empty[ring.stage], ring.round ^ 1);
        }
    } else if (role == MULTIPLIER) {
        if (rank % 2 == 0 && warp::elect())
            for_each_tile<BN, CLUSTER, false>(answers, M, N, group, [&](int, int) {
                multiply<T, BN, STAGES, CLUSTER>(sums, ring, K);
            });
    } else {
        u32 turn = 0;
        for_each_tile<BN, CLUSTER, true>(answers, M, N, group, [&](int m0, int n0) {
            store_tile<OUT, BN>(buffers, turn, sums, map_c, m0, n0);
        });
        if (threadIdx.x == 0) tma::wait_all();
    }
    __syncwarp();

    tcgen05::fence_before();
    cluster::sync();  // both CTAs have read their sums
    if (role == MULTIPLIER) tcgen05::dealloc<2>(sums.tmem, tcgen05::COLUMNS);
}
