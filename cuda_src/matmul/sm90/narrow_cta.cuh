// What a CTA of narrow.cu is made of: the kernel's template arguments and what follows from them, its
// shared memory, its part of the work.
#pragma once

#include "common/mbarrier.cuh"
#include "common/tma.cuh"
#include "matmul/epilogue.cuh"
#include "matmul/sm90/finish.cuh"
#include "matmul/sm90/ring.cuh"

using mbarrier::Barrier;

template <class T, class OUT, int ROWS_, int BN_, int STAGES_, int SPLIT_, Sums SUMS_, Act ACT_,
          bool EXTRAS_>
struct Narrow {
    using In = T;
    using Out = OUT;
    static constexpr int ROWS = ROWS_, BN = BN_, STAGES = STAGES_, SPLIT = SPLIT_;
    static constexpr Sums SUMS = SUMS_;
    static constexpr Act ACT = ACT_;
    static constexpr bool EXTRAS = EXTRAS_, BLOCKWISE = SUMS == Sums::blocks;

    static constexpr int BK = 128 / sizeof(T);
    static constexpr int BM = (ROWS + 63) / 64 * 64;  // what the MMAs multiply
    static constexpr int W_BYTES = BM * 128, STAGE_BYTES = W_BYTES + BN * 128;
    static constexpr int CONSUMERS = BM * 2, THREADS = CONSUMERS + 32;
    static constexpr int PITCH = BM + 4;  // of partial sums: eight token rows, eight banks
    // Arrivals per warpgroup that empty a stage: warps read the tokens' factors alone.
    static constexpr int RELEASES = BLOCKWISE ? 4 : 1;
    using Cursor = ring::Cursor<STAGES>;
    using Sum = f32[BN / 2];

    // The ring, whose place partial sums take later; factors of tokens, at TMA's 128 bytes; barriers.
    static constexpr int RING_BYTES = STAGES * STAGE_BYTES, PARTIAL_BYTES = BN * PITCH * 4;
    static constexpr int SCALES = RING_BYTES > PARTIAL_BYTES ? RING_BYTES : PARTIAL_BYTES;
    static constexpr int SCALE_BYTES = BLOCKWISE ? (BN * 4 + 127) / 128 * 128 : 0;
    static constexpr int BARRIERS = SCALES + STAGES * SCALE_BYTES;

    static_assert(ROWS % 8 == 0, "whole swizzle atoms");
    static_assert(!BLOCKWISE || (ROWS % 16 == 0 && sizeof(T) == 1), "one factor for a warp's rows");
};

template <class S> struct Shared {
    u8* base;
    Barrier *full, *empty;

    __device__ __forceinline__ explicit Shared(u8* base)
        : base(base), full(reinterpret_cast<Barrier*>(base + S::BARRIERS)),
          empty(full + S::STAGES) {}
    __device__ __forceinline__ u8* w(u32 stage) const { return base + stage * S::STAGE_BYTES; }
    __device__ __forceinline__ u8* x(u32 stage) const { return w(stage) + S::W_BYTES; }
    __device__ __forceinline__ f32* scales(u32 stage) const {
        return reinterpret_cast<f32*>(base + S::SCALES + stage * S::SCALE_BYTES);
    }
    __device__ __forceinline__ f32* partial() const { return reinterpret_cast<f32*>(base); }
};

struct Maps {
    const TensorMap &w, &x, &scale;
};

// Where this CTA's tile of C starts, and its part of K in blocks of 128 bytes.
struct Work {
    i32 n, token, z, k_first, k_last;

    __device__ __forceinline__ i32 k_blocks() const { return k_last - k_first; }
};

// The rows of W that no copy fills: their products are thrown away, but they are read.
template <class S> __device__ __forceinline__ void clear_padding(const Shared<S>& shared) {
    constexpr int CHUNKS = (S::BM - S::ROWS) * 8;  // of 16 bytes, per stage
    for (int i = threadIdx.x; i < S::STAGES * CHUNKS; i += S::THREADS) {
        u8* rows = shared.w(i / CHUNKS) + S::ROWS * 128;
        *reinterpret_cast<uint4*>(rows + i % CHUNKS * 16) = uint4{};
    }
}

template <class S> __device__ __forceinline__ void set_up(const Shared<S>& shared) {
    if (threadIdx.x == S::CONSUMERS) {
        for (int i = 0; i < S::STAGES; i++) {
            mbarrier::init(&shared.full[i], 1);
            mbarrier::init(&shared.empty[i], S::BM / 64 * S::RELEASES);
        }
        mbarrier::fence_init();
    }
    if constexpr (S::ROWS < S::BM) {
        clear_padding(shared);
        tma::fence_shared();
    }
    __syncthreads();
}
