// What a CTA of sm100/gemm.cu is made of: the kernel's template arguments and what follows from them,
// its shared memory and barriers, where its tiles are.
#pragma once

#include "common/clc.cuh"
#include "common/cluster.cuh"
#include "common/mbarrier.cuh"
#include "common/tcgen05_kinds.cuh"
#include "common/tma_group.cuh"
#include "matmul/epilogue.cuh"
#include "matmul/sm90/finish.cuh"
#include "matmul/sm90/tiles.cuh"

using mbarrier::Barrier;
using tcgen05::Format;
using tcgen05::Major;

enum class Store { rows, columns };  // C by TMA, row-major; or by plain stores, column-major

constexpr int ROW = 128;          // bytes of a row of operands along K
constexpr int SLAB = 64 * ROW;    // bytes of 64 of M or N by 64 of K, for operands along M or N
constexpr int ANSWERS = 2;        // of cluster launch control, kept at a time
constexpr int WRITERS = 4, SCHEDULER = 4, LOADER = 5, MULTIPLIER = 6;  // warps; the first four write

template <Format F_, class OUT, int BN_, int STAGES_, int CTAS_, int CLUSTER_, Major A_, Major B_,
          Store STORE_, Act ACT_, bool EXTRAS_>
struct Gemm {
    using Out = OUT;
    static constexpr Format F = F_;
    static constexpr tcgen05::Kind KIND = tcgen05::kind(F);
    static constexpr int BM = 128, BN = BN_, STAGES = STAGES_, CTAS = CTAS_, CLUSTER = CLUSTER_;
    static constexpr Major A = A_, B = B_;
    static constexpr Store STORE = STORE_;
    static constexpr Act ACT = ACT_;
    static constexpr bool EXTRAS = EXTRAS_;

    static constexpr int BK = ROW / tcgen05::unit_bytes(F);
    static constexpr int GROUPS = CLUSTER / CTAS;  // that multiply: CTAs, or pairs of them
    static constexpr u32 SHAPE = tcgen05::shape(F, BM * CTAS, BN, A, B);

    // A stage: A's rows, this CTA's part of B's.
    static constexpr int B_ROWS = BN / CTAS;
    static constexpr int A_BYTES = BM * ROW;
    static constexpr int B_BYTES = B == Major::k ? B_ROWS * ROW : (B_ROWS + 63) / 64 * SLAB;
    static constexpr int STAGE_BYTES = A_BYTES + B_BYTES;

    // Factors of blocks: for each stage chunks of 128 rows and four blocks of K, of A and of all of B.
    static constexpr bool SCALED = tcgen05::scaled(KIND);
    static constexpr int K_CHUNKS = !SCALED ? 0 : KIND == tcgen05::Kind::mxf8f6f4 ? 1 : 4;
    static constexpr int B_CHUNKS = (BN + 127) / 128;  // per K chunk; A has one
    static constexpr int SCALE_BYTES = K_CHUNKS * (1 + B_CHUNKS) * tcgen05::SCALE_CHUNK;
    static constexpr int SCALE_COLUMNS = K_CHUNKS * (1 + B_CHUNKS) * tcgen05::SCALE_COLUMNS;

    // Accumulators side by side in TMEM, factors behind them.
    static constexpr int STRIDE = (BN + 31) / 32 * 32;
    static constexpr int FITTING = (int(tcgen05::COLUMNS) - SCALE_COLUMNS) / STRIDE;
    static constexpr int SUMS = FITTING < 4 ? FITTING : 4;

    // C on its way: two pieces.
    static constexpr int PIECE_COLS = 32;
    static constexpr int PIECE_BYTES = STORE == Store::rows ? BM * PIECE_COLS * int(sizeof(OUT)) : 0;

    static_assert(SUMS >= 1, "sums and factors fit in TMEM");
    static_assert(BN % (STORE == Store::rows ? PIECE_COLS : 16) == 0, "whole pieces");
    static_assert(A == Major::k && B == Major::k || KIND == tcgen05::Kind::f16,
                  "only 16-bit types may run along M or N");
    static_assert(B == Major::k ? B_ROWS % (8 * GROUPS) == 0 : B_BYTES / SLAB % GROUPS == 0,
                  "equal parts of B");
};

// Shared memory: ring, pieces of C, factors, answers, barriers, the address of TMEM.
//   full, empty       [STAGES]   of a stage: its bytes have landed; its MMAs are over
//   ready, taken      [SUMS]     of an accumulator: complete; read
//   told, heard       [ANSWERS]  of an answer: there; read by all (in the cluster's first CTA)
//   begun             [1]        the first CTA's loader has begun another tile
template <class G> struct Shared {
    u8 *ring, *pieces, *factors;
    clc::Answer* answers;
    Barrier *full, *empty, *ready, *taken, *told, *heard, *begun;
    u32* tmem;

    __device__ __forceinline__ explicit Shared(u8* base)
        : ring(base), pieces(base + G::STAGES * G::STAGE_BYTES),
          factors(pieces + 2 * G::PIECE_BYTES),
          answers(reinterpret_cast<clc::Answer*>(factors + G::STAGES * G::SCALE_BYTES)),
          full(reinterpret_cast<Barrier*>(answers + ANSWERS)), empty(full + G::STAGES),
          ready(empty + G::STAGES), taken(ready + G::SUMS), told(taken + G::SUMS),
          heard(told + ANSWERS), begun(heard + ANSWERS), tmem(reinterpret_cast<u32*>(begun + 1)) {}
    __device__ __forceinline__ u8* a(u32 stage) const { return ring + stage * G::STAGE_BYTES; }
    __device__ __forceinline__ u8* b(u32 stage) const { return a(stage) + G::A_BYTES; }
    // A's factors [K_CHUNKS], then B's [K_CHUNKS][B_CHUNKS].
    __device__ __forceinline__ u8* factors_a(u32 stage) const {
        return factors + stage * G::SCALE_BYTES;
    }
    __device__ __forceinline__ u8* factors_b(u32 stage) const {
        return factors_a(stage) + G::K_CHUNKS * tcgen05::SCALE_CHUNK;
    }
    // The i-th answer: whether there is another tile, and which block starts it.
    __device__ __forceinline__ bool hear(u32 i, i32& block) const {
        mbarrier::wait(&told[i % ANSWERS], i / ANSWERS & 1);
        const bool more = clc::read(&answers[i % ANSWERS], block);
        tma::fence_shared();  // read, before it is written again
        return more;
    }
};

// A place in a ring of COUNT, and how often (mod 2) it has been passed.
template <int COUNT> struct Cursor {
    u32 at = 0, round = 0;

    __device__ __forceinline__ void next() {
        if (++at == COUNT) at = 0, round ^= 1;
    }
};

struct Maps {
    const TensorMap &a, &b, &c, &scale_a, &scale_b;
};

// Sizes, and how tiles are numbered: by slices of K, then matrices, then tiles.
template <class G> struct Work {
    tiles::Schedule schedule;
    i32 blocks, depth, slices;  // of K, `depth` of them in a slice

    __device__ __forceinline__ Work(i32 M, i32 N, i32 K, i32 batch, i32 slices, i32 depth, i32 group)
        : schedule{ceil_div(M, G::BM * G::CLUSTER), ceil_div(N, G::BN), batch * slices, group},
          blocks(ceil_div(K, G::BK)), depth(depth), slices(slices) {}
    static __device__ __forceinline__ i32 ceil_div(i32 a, i32 b) { return (a + b - 1) / b; }
};

// This CTA's part of a tile of the cluster: where it starts in C (z counts slices, too), and in K.
struct Part {
    i32 m, n, z, matrix, k_first, k_last;
};

template <class G> __device__ __forceinline__ Part part(const Work<G>& work, i32 block) {
    const tiles::Tile tile = work.schedule.at(block / G::CLUSTER);
    const i32 matrix = tile.z / work.slices, first = (tile.z - matrix * work.slices) * work.depth;
    return {(tile.m * G::CLUSTER + i32(cluster::rank())) * G::BM, tile.n * G::BN, tile.z, matrix,
            first, min(first + work.depth, work.blocks)};
}

// One thread prepares all barriers.
template <class G>
__device__ __forceinline__ void set_up(const Shared<G>& shared, const Maps& maps) {
    tma::prefetch(maps.a), tma::prefetch(maps.b);
    if (G::STORE == Store::rows) tma::prefetch(maps.c);
    constexpr int HEARERS = G::CLUSTER * (WRITERS + 1) + G::GROUPS;
    for (int i = 0; i < G::STAGES; i++) {
        mbarrier::init(&shared.full[i], 1);
        mbarrier::init(&shared.empty[i], G::GROUPS);
    }
    for (int i = 0; i < G::SUMS; i++) {
        mbarrier::init(&shared.ready[i], 1);
        mbarrier::init(&shared.taken[i], G::CTAS * WRITERS);
    }
    for (int i = 0; i < ANSWERS; i++) {
        mbarrier::init(&shared.told[i], 1);
        mbarrier::init(&shared.heard[i], HEARERS);
    }
    mbarrier::init(shared.begun, 1);
    mbarrier::fence_init();
}
