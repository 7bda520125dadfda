// Matmul kernel 7, Blackwell: C leaves in pieces through two buffers.
//
// Idea over kernel 6: no need to keep a whole tile of C in shared memory. The four warps take 32
// columns of sums out of TMEM, write them into one of two buffers of 128 rows and let TMA store
// that; while TMA reads, the next 32 columns go into the other buffer. wait_read<1> says that at
// most the youngest store still reads: the buffer of the one before is free. TMEM is the large
// buffer: it keeps what is not converted yet, where on Hopper registers had to.
//
// Why: shared memory for one more stage. A stage of 128 x 64 and 128 x 64 takes 32 KB, of 227 KB:
//   kernel 6  64 KB of C (bf16)         (227 - 64) / 32 = 5.1: 5 stages, 224 KB
//   here      2 pieces of 8 KB          (227 - 16) / 32 = 6.6: 6 stages, 208 KB
// and f32 results, which left kernel 6 with 3 stages, take pieces of 16 KB: 6 stages too. The first
// piece is under way after 1/8 of the conversions, not after all.
//
// Rows of a piece of bf16 are 64 bytes, so its swizzle is the one of 64 bytes: two rows share the
// 32 banks, and 8 rows of an stmatrix tile still fall in different ones.
//
// Napkin: of some 5000 clk that kernel 6 spends on each of 4 tiles outside of the loop, 2000 are
// the write-out, overlapped here with itself by half: 1000 of 45,000, 2 %. A deeper ring: 1 to 3 %.
// Published for 4096^3 (results/published.csv):
// 1493 TFLOP/s on B200.
//
// Limits: the tensor core idles while C leaves, and while the next CTA on this SM fills its ring.
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
constexpr int ROW = 128;          // bytes of a row of operands
constexpr int COLS = tcgen05::LOAD_COLUMNS;  // of a piece of C
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

// Four warps send C off in pieces, alternating between two buffers. A warp has 32 rows of a piece,
// 16 of them in a fragment.
template <class OUT, int BN>
__device__ __forceinline__ void store_tile(u8* buffers, u32 sums, const TensorMap& map_c, int m0,
                                           int n0) {
    constexpr int PITCH = COLS * sizeof(OUT), PIECE = BM * PITCH;
    const u32 warp = warp::index();
    const bool sender = threadIdx.x == 0;
#pragma unroll 1
    for (int i = 0; i < BN / COLS; i++) {
        f32 d[2][COLS / 2];
        u8* buffer = buffers + i % 2 * PIECE;
#pragma unroll
        for (int half = 0; half < 2; half++)
            tcgen05::load(d[half], sums + (warp * 32 + half * 16 << 16) + i * COLS);
        tcgen05::wait_load();
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
    if (sender) tma::wait_all();
}

template <class T, class OUT, int BN, int STAGES, int CLUSTER>
__global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(192, 1)
k7_pieces(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
        const __grid_constant__ TensorMap map_c, i32 K) {
    extern __shared__ __align__(1024) u8 shared[];
    u8* buffers = shared + STAGES * Ring<BN, STAGES>::BYTES;
    Barrier* barriers = reinterpret_cast<Barrier*>(buffers + 2 * BM * COLS * sizeof(OUT));
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
        store_tile<OUT, BN>(buffers, sums, map_c, m0, n0);
    }
    __syncwarp();

    tcgen05::fence_before();
    cluster::sync();  // both CTAs have read their sums
    if (role == MULTIPLIER) tcgen05::dealloc<2>(sums, tcgen05::COLUMNS);
}
