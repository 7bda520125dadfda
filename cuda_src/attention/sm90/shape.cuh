// The tile of a Hopper attention kernel and what it takes of shared memory.
//
// WGS warpgroups own 64 queries each and walk the keys N at a time. Rows of Q, K and V lie in slabs of 64
// columns: 128 bytes, one swizzle atom wide.
#pragma once

#include "attention/sm90/schedule.cuh"
#include "common/mbarrier.cuh"
#include "common/types.cuh"
#include "common/warp.cuh"
#include "common/wgmma_registers.cuh"

namespace attention {

template <class T_, int D_, int DV_, int N_, int WGS_, int STAGES_> struct Shape {
    using T = T_;
    static constexpr int D = D_, DV = DV_, N = N_, WGS = WGS_, STAGES = STAGES_;
    static constexpr int ROWS = 64, ROW = 128, COLS = ROW / int(sizeof(T));
    static constexpr int K_SLABS = (D + COLS - 1) / COLS, V_SLABS = (DV + COLS - 1) / COLS;
    static constexpr int SLAB = N * ROW, Q_SLAB = ROWS * ROW;
    static constexpr int Q_BYTES = K_SLABS * Q_SLAB;  // of a warpgroup
    static constexpr int K_BYTES = K_SLABS * SLAB, V_BYTES = V_SLABS * SLAB;
    static constexpr int THREADS = (WGS + 1) * warp::GROUP;

    using Scores = f32[N / 2];   // of a thread
    using Weights = u32[N / 4];
    using Sums = f32[DV / 2];

    static_assert(N % 16 == 0 && D % 8 == 0 && DV % 8 == 0);
};

// Which stage, and the parity of its current round.
template <int STAGES> struct Cursor {
    u32 stage = 0, parity = 0;

    __device__ __forceinline__ void next() {
        if (++stage == STAGES) stage = 0, parity ^= 1;
    }
};

template <class S> struct Shared {
    u8* base;

    __device__ __forceinline__ u8* q(int wg) const { return base + wg * S::Q_BYTES; }
    __device__ __forceinline__ u8* k(u32 stage) const { return q(S::WGS) + stage * S::K_BYTES; }
    __device__ __forceinline__ u8* v(u32 stage) const { return k(S::STAGES) + stage * S::V_BYTES; }
    __device__ __forceinline__ Barrier* barriers() const {
        return reinterpret_cast<Barrier*>(v(S::STAGES));
    }
    __device__ __forceinline__ Barrier* q_full(int wg) const { return barriers() + wg; }
    __device__ __forceinline__ Barrier* q_empty(int wg) const { return q_full(S::WGS) + wg; }
    __device__ __forceinline__ Barrier* k_full(u32 i) const { return q_empty(S::WGS) + i; }
    __device__ __forceinline__ Barrier* k_empty(u32 i) const { return k_full(S::STAGES) + i; }
    __device__ __forceinline__ Barrier* v_full(u32 i) const { return k_empty(S::STAGES) + i; }
    __device__ __forceinline__ Barrier* v_empty(u32 i) const { return v_full(S::STAGES) + i; }

    __device__ __forceinline__ Ticket ticket() const {
        Barrier* first = v_empty(S::STAGES);
        return {first, first + 1, reinterpret_cast<int4*>(first + 2)};
    }

    // By one thread, before anybody uses them. Warpgroups of `ctas` CTAs empty a stage.
    __device__ __forceinline__ void init(int ctas) const {
        for (int wg = 0; wg < S::WGS; wg++) {
            mbarrier::init(q_full(wg), 1);
            mbarrier::init(q_empty(wg), 1);
        }
        for (int i = 0; i < S::STAGES; i++) {
            mbarrier::init(k_full(i), 1);
            mbarrier::init(v_full(i), 1);
            mbarrier::init(k_empty(i), S::WGS * ctas);
            mbarrier::init(v_empty(i), S::WGS * ctas);
        }
        ticket().init(1 + 4 * S::WGS);
        mbarrier::fence_init();
    }
};

// S = Q K^T for a warpgroup's queries and N keys, and O += P V. Both only start the product.
template <class S>
__device__ __forceinline__ void start_scores(typename S::Scores& s, const u8* q, const u8* k) {
    const u64 a = wgmma::descriptor(mbarrier::address(q), 16, 1024, wgmma::Swizzle::b128);
    const u64 b = wgmma::descriptor(mbarrier::address(k), 16, 1024, wgmma::Swizzle::b128);
#pragma unroll
    for (int kk = 0; kk < (S::D + 15) / 16; kk++) {
        const u32 slab = kk / 4, bytes = kk % 4 * 32;
        wgmma::mma<typename S::T, S::N>(s, wgmma::advance(a, slab * S::Q_SLAB + bytes),
                                        wgmma::advance(b, slab * S::SLAB + bytes), kk != 0);
    }
    wgmma::commit();
}

template <class S>
__device__ __forceinline__ void start_values(typename S::Sums& o, const typename S::Weights& p,
                                             const u8* v) {
    const u64 b = wgmma::descriptor(mbarrier::address(v), S::SLAB, 1024, wgmma::Swizzle::b128);
#pragma unroll
    for (int kk = 0; kk < S::N / 16; kk++)
        wgmma::mma_registers<typename S::T, S::DV, Major::mn>(
            o, p + 4 * kk, wgmma::advance(b, kk * 16 * S::ROW));
    wgmma::commit();
}

}  // namespace attention
