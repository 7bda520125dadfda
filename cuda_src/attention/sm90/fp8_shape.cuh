// The tile of the e4m3 attention kernel, and what it takes of shared memory.
//
// As shape.cuh, but rows of slabs hold 128 columns, and values lie there twice: as they came, and
// transposed, for wgmma takes 8-bit operands along K alone, and keys are the K of P V.
//
// Transposed values are core matrices of 8 columns x 16 keys without a swizzle: 128 bytes in a row that
// stmatrix writes and wgmma reads as a whole. Those of 16 keys follow each other, DV * 16 bytes. Both
// directions are permuted so that no register has to change threads:
//   keys     byte 4 q + i of a column's 16 is key (2 q, 2 q + 1, 2 q + 8, 2 q + 9)[i], q = 0..3: those
//            that thread q of a quad has scores of, in the order in which it packs its weights;
//   columns  row 8 p + i of 16 is column 2 i + p, p = 0, 1: bytes of a pair, taken apart. Of sums, a
//            thread then has four neighbouring columns of each 16.
#pragma once

#include "attention/sm90/shape.cuh"
#include "common/wgmma_registers8.cuh"

namespace attention {

template <int D_, int DV_, int N_, int WGS_, int STAGES_> struct Shape8 {
    using T = e4m3;
    static constexpr int D = D_, DV = DV_, N = N_, WGS = WGS_, STAGES = STAGES_;
    static constexpr int ROWS = 64, ROW = 128, COLS = ROW;
    static constexpr int K_SLABS = (D + COLS - 1) / COLS, V_SLABS = (DV + COLS - 1) / COLS;
    static constexpr int SLAB = N * ROW, Q_SLAB = ROWS * ROW;
    static constexpr int Q_BYTES = K_SLABS * Q_SLAB;  // of a warpgroup
    static constexpr int K_BYTES = K_SLABS * SLAB, V_BYTES = V_SLABS * SLAB, T_BYTES = N * DV;
    static constexpr int V_STAGES = STAGES > 2 ? STAGES - 1 : STAGES;  // values wait for nobody but transposers
    // Tensor cores lose low bits of sums: those of so many blocks are added up elsewhere, if there is room.
    static constexpr bool KEEPS = DV <= 128;
    static constexpr int KEEP_EVERY = 1024 / N, KEPT_BYTES = KEEPS ? ROWS * DV * int(sizeof(f32)) : 0;
    // Registers of a thread of the producer warpgroup, and of the others.
    static constexpr bool WIDE = DV > 128 && N > 96;
    static constexpr int GIVEN = WGS == 3 ? 32 : WIDE ? 24 : 40;
    static constexpr int TAKEN = WGS == 3 ? 160 : WIDE ? 240 : 232;
    static constexpr int TRANSPOSERS = 3;  // warps of the producer warpgroup

    using Scores = f32[N / 2];  // of a thread
    using Weights = u32[N / 8];
    using Sums = f32[DV / 2];

    static_assert(N % 32 == 0 && D % 32 == 0 && DV % 32 == 0);
};

template <int D, int DV, int N, int WGS, int STAGES>
struct Shared<Shape8<D, DV, N, WGS, STAGES>> {
    using S = Shape8<D, DV, N, WGS, STAGES>;
    u8* base;

    __device__ __forceinline__ u8* q(int wg) const { return base + wg * S::Q_BYTES; }
    __device__ __forceinline__ u8* k(u32 stage) const { return q(WGS) + stage * S::K_BYTES; }
    __device__ __forceinline__ u8* v(u32 stage) const { return k(STAGES) + stage * S::V_BYTES; }
    __device__ __forceinline__ u8* t(u32 stage) const { return v(S::V_STAGES) + stage * S::T_BYTES; }
    __device__ __forceinline__ Barrier* barriers() const { return reinterpret_cast<Barrier*>(t(STAGES) + WGS * S::KEPT_BYTES); }
    __device__ __forceinline__ u8* kept(int wg) const { return t(STAGES) + wg * S::KEPT_BYTES; }
    __device__ __forceinline__ Barrier* q_full(int wg) const { return barriers() + wg; }
    __device__ __forceinline__ Barrier* q_empty(int wg) const { return q_full(WGS) + wg; }
    __device__ __forceinline__ Barrier* k_full(u32 i) const { return q_empty(WGS) + i; }
    __device__ __forceinline__ Barrier* k_empty(u32 i) const { return k_full(STAGES) + i; }
    __device__ __forceinline__ Barrier* v_full(u32 i) const { return k_empty(STAGES) + i; }
    __device__ __forceinline__ Barrier* v_empty(u32 i) const { return v_full(S::V_STAGES) + i; }
    __device__ __forceinline__ Barrier* t_full(u32 i) const { return v_empty(S::V_STAGES) + i; }
    __device__ __forceinline__ Barrier* t_empty(u32 i) const { return t_full(STAGES) + i; }

    __device__ __forceinline__ Ticket ticket() const {
        Barrier* first = t_empty(STAGES);
        return {first, first + 1, reinterpret_cast<int4*>(first + 2)};
    }

    // By one thread, before anybody uses them.
    __device__ __forceinline__ void init() const {
        for (int wg = 0; wg < WGS; wg++) {
            mbarrier::init(q_full(wg), 1);
            mbarrier::init(q_empty(wg), 1);
        }
        for (int i = 0; i < STAGES; i++) {
            mbarrier::init(k_full(i), 1);
            mbarrier::init(k_empty(i), WGS);
            mbarrier::init(t_full(i), S::TRANSPOSERS);
            mbarrier::init(t_empty(i), WGS);
        }
        for (int i = 0; i < S::V_STAGES; i++) {
            mbarrier::init(v_full(i), 1);
            mbarrier::init(v_empty(i), S::TRANSPOSERS);
        }
        ticket().init(3 + 4 * WGS);
        mbarrier::fence_init();
    }
};

// S = Q K^T for a warpgroup's queries and N keys, and O += P V. Both only start the product.
template <class S>
__device__ __forceinline__ void start_scores8(typename S::Scores& s, const u8* q, const u8* k) {
    const u64 a = wgmma::descriptor(mbarrier::address(q), 16, 1024, wgmma::Swizzle::b128);
    const u64 b = wgmma::descriptor(mbarrier::address(k), 16, 1024, wgmma::Swizzle::b128);
#pragma unroll
    for (int kk = 0; kk < S::D / 32; kk++) {
        const u32 slab = kk / 4, bytes = kk % 4 * 32;
        wgmma::mma<e4m3, S::N>(s, wgmma::advance(a, slab * S::Q_SLAB + bytes),
                               wgmma::advance(b, slab * S::SLAB + bytes), kk != 0);
    }
    wgmma::commit();
}

template <class S>
__device__ __forceinline__ void start_values8(typename S::Sums& o, const typename S::Weights& p,
                                              const u8* t) {
    const u64 b = wgmma::descriptor(mbarrier::address(t), S::DV * 16, 128, wgmma::Swizzle::none);
#pragma unroll
    for (int kk = 0; kk < S::N / 32; kk++)
        wgmma::mma_registers8<S::DV>(o, p + 4 * kk, wgmma::advance(b, kk * 32 * S::DV));
    wgmma::commit();
}

}  // namespace attention
