// What a CTA of gemm.cu is made of: the kernel's template arguments and what follows from them, its
// shared memory, its list of tiles.
#pragma once

#include "common/cluster.cuh"
#include "common/mbarrier.cuh"
#include "common/tma.cuh"
#include "common/wgmma.cuh"
#include "matmul/epilogue.cuh"
#include "matmul/sm90/extras.cuh"
#include "matmul/sm90/finish.cuh"
#include "matmul/sm90/ring.cuh"
#include "matmul/sm90/tiles.cuh"

using mbarrier::Barrier;

enum class Share { rows, columns, pingpong };  // how the two consumer warpgroups divide the work
enum class Store { rows, columns, direct };    // how C leaves

constexpr int CONSUMERS = 2;           // warpgroups
constexpr int PIECE_BYTES = 64 * 128;  // of C on its way; each warpgroup has two
constexpr int BARRIER_TURN = 1, BARRIER_PIECES = 3, BARRIER_BOTH = 5;  // named barriers

template <class T, class OUT, int BM_, int BN_, int STAGES_, int CM_, int CN_, int SPLIT_,
          Share SHARE, Major A_, Major B_, Store STORE_, Sums SUMS_, Act ACT_, Terms TERMS_>
struct Gemm {
    using In = T;
    using Out = OUT;
    static constexpr int BM = BM_, BN = BN_, STAGES = STAGES_, CM = CM_, CN = CN_, SPLIT = SPLIT_;
    static constexpr Major A = A_, B = B_;
    static constexpr Store STORE = STORE_;
    static constexpr Sums SUMS = SUMS_;
    static constexpr Act ACT = ACT_;
    static constexpr Terms TERMS = TERMS_;

    static constexpr bool PINGPONG = SHARE == Share::pingpong, BLOCKWISE = SUMS == Sums::blocks;
    static constexpr int BK = 128 / sizeof(T), CLUSTER = CM * CN * SPLIT;
    // A warpgroup's part of a tile of C, in blocks of 64 rows.
    static constexpr int ROWS = SHARE == Share::rows ? BM / CONSUMERS : BM, BLOCKS = ROWS / 64;
    static constexpr int COLS = SHARE == Share::columns ? BN / CONSUMERS : BN;
    static constexpr bool BY_ROWS = SHARE == Share::rows, BY_COLUMNS = SHARE == Share::columns;
    // Accumulators that need the last registers.
    static constexpr bool HEAVY = BLOCKS * COLS / 2 > 192;
    // Arrivals per warpgroup that empty a stage: warps read their row scales alone.
    static constexpr int RELEASES = BLOCKWISE ? 4 : 1;

    // Columns per piece: the widest rows of 128, 64 or 32 bytes that divide a warpgroup's part.
    static constexpr int ROW_BYTES = COLS * sizeof(OUT);
    static constexpr int PIECE_COLS = STORE == Store::columns
        ? (COLS < 64 ? COLS : 64)
        : (ROW_BYTES % 128 == 0 ? 128 : ROW_BYTES % 64 == 0 ? 64 : 32) / int(sizeof(OUT));

    using Stage = ring::Stage<BM, BN, B>;
    using Place = ring::Place<CM, CN>;
    using Cursor = ring::Cursor<STAGES>;
    using Sum = f32[BLOCKS][COLS / 2];

    static_assert(SPLIT == 1 || (CM * CN == 1 && BM == 128 && BY_ROWS),
                  "a split tile is finished half by half");
    static_assert(!BLOCKWISE || COLS <= 128 + (COLS & -COLS), "two column blocks a tile");
    static_assert(COLS % PIECE_COLS == 0, "the tile is whole pieces");
};

// Shared memory: the ring, the pieces of C, row scales by stage, barriers.
template <class G> struct Shared {
    u8* ring;
    u8* pieces;
    f32* row_scales;
    Barrier *full, *empty;

    __device__ __forceinline__ explicit Shared(u8* base)
        : ring(base), pieces(base + G::STAGES * G::Stage::BYTES),
          row_scales(reinterpret_cast<f32*>(pieces + 2 * CONSUMERS * PIECE_BYTES)),
          full(reinterpret_cast<Barrier*>(row_scales + (G::BLOCKWISE ? G::STAGES * G::BM : 0))),
          empty(full + G::STAGES) {}
    __device__ __forceinline__ u8* a(u32 stage) const { return ring + stage * G::Stage::BYTES; }
    __device__ __forceinline__ u8* b(u32 stage) const { return a(stage) + G::Stage::A_BYTES; }
};

struct Maps {
    const TensorMap &a, &b, &c, &scale;
};

// What this CTA does: tiles `first`, `first + step`, ... of `count`, each over `k_blocks` of K.
template <class G> struct Work {
    tiles::Schedule schedule;
    typename G::Place place;
    u32 rank;
    i32 count, first, step, k_first, k_blocks;

    __device__ __forceinline__ Work(i32 M, i32 N, i32 K, i32 batch, i32 group)
        : schedule{ceil_div(M, G::BM * G::CM), ceil_div(N, G::BN * G::CN), batch, group},
          rank(G::CLUSTER > 1 ? cluster::rank() : 0) {
        place = G::SPLIT == 1 ? G::Place::at(rank) : typename G::Place{0, 0};
        count = schedule.count();
        first = blockIdx.x / G::CLUSTER;
        step = gridDim.x / G::CLUSTER;
        const i32 all = ceil_div(K, G::BK);
        k_first = G::SPLIT > 1 ? all * rank / G::SPLIT : 0;
        k_blocks = G::SPLIT > 1 ? all * (rank + 1) / G::SPLIT - k_first : all;
    }
    // The element of C where this CTA's tile starts.
    __device__ __forceinline__ finish::Origin origin(i32 t) const {
        const tiles::Tile tile = schedule.at(t);
        return {(tile.m * G::CM + i32(place.m)) * G::BM, (tile.n * G::CN + i32(place.n)) * G::BN,
                tile.z};
    }
    static __device__ __forceinline__ i32 ceil_div(i32 a, i32 b) { return (a + b - 1) / b; }
};

// One thread prepares the barriers; nobody in the cluster touches them before.
template <class G>
__device__ __forceinline__ void set_up(const Shared<G>& shared, const Maps& maps) {
    if (threadIdx.x == 0) {
        tma::prefetch(maps.a), tma::prefetch(maps.b);
        if (G::STORE != Store::direct) tma::prefetch(maps.c);
        for (int i = 0; i < G::STAGES; i++) {
            mbarrier::init(&shared.full[i], 1);
            mbarrier::init(&shared.empty[i],
                           (G::PINGPONG ? 1 : CONSUMERS) * G::RELEASES * G::Place::FEEDERS);
        }
        mbarrier::fence_init();
    }
    if constexpr (G::CLUSTER > 1) cluster::meet();
    else __syncthreads();
}
