// Decoding with wgmma the usual way round: S = Q K^T and O = P V, query rows on the 64 rows of M,
// however few there are. It is there to be compared with transposed.cuh, whose steps and barriers
// it has.
//
// A warp has 16 of the rows, so maxima concern nobody else, and P stays in registers. With a group
// of up to 16 heads three of the four warps, and more of the MMAs, work for nothing.
#pragma once

#include "attention/decode/softmax.cuh"
#include "common/tma.cuh"
#include "common/wgmma_registers.cuh"

namespace decode {

template <class T_, int DIM, int ROWS_, int KEYS> struct Upright {
    using T = T_;
    using Keys = Swizzled<KEYS>;
    using Queries = Swizzled<ROWS_>;
    static constexpr int ROWS = ROWS_, ENTRIES = 2, SHARERS = 1;
    static constexpr int SCORES = KEYS / 8, SLABS = (DIM + 63) / 64, SUMS = DIM / 8;
    static constexpr int WEIGHTS = 0;  // bytes of shared memory
    static constexpr u32 LANES = 3;
    static_assert(ROWS == 64);

    f32 s[KEYS / 2], o[DIM / 2];
    u32 p[KEYS / 16][4];

    __device__ __forceinline__ f32& score(int n, int e) { return s[n * 4 + e]; }
    __device__ __forceinline__ f32& value(int n, int e) { return o[n * 4 + e]; }
    __device__ __forceinline__ f32 value(int n, int e) const { return o[n * 4 + e]; }
    __device__ __forceinline__ void clear() { memset(o, 0, sizeof(o)), memset(p, 0, sizeof(p)); }
    __device__ __forceinline__ void share(u8*) {}

    static __device__ __forceinline__ int entry(int, int e) { return e / 2; }
    static __device__ __forceinline__ int row(int entry) {
        return threadIdx.x / warp::SIZE * 16 + warp::lane() / 4 + entry * 8;
    }
    static __device__ __forceinline__ int key(int n, int e) {
        return n * 8 + warp::lane() % 4 * 2 + e % 2;
    }
    static __device__ __forceinline__ int dim(int n, int e) { return key(n, e); }

    // Also the barrier after which all warps are done with keys and values that they multiplied.
    __device__ __forceinline__ bool any(bool mine) const {
        return warp::sync_any(1, warp::GROUP, mine);
    }
    __device__ __forceinline__ void meet(f32 (&)[ENTRIES]) const {}

    static __device__ __forceinline__ u64 operand(const u8* slab, u32 leading) {
        return wgmma::descriptor(mbarrier::address(slab), leading, 1024, wgmma::Swizzle::b128);
    }
    __device__ __forceinline__ void multiply_keys(const u8* keys, const u8* queries) {
        wgmma::fence();
#pragma unroll
        for (int k = 0; k < DIM / 16; k++) {
            const u64 a = operand(queries + k / 4 * Queries::SLAB, 16);
            const u64 b = operand(keys + k / 4 * Keys::SLAB, 16);
            wgmma::mma<T, KEYS>(s, wgmma::advance(a, k % 4 * 32), wgmma::advance(b, k % 4 * 32),
                                k > 0);
        }
        wgmma::commit();
        wgmma::wait<0>();  // for the values of the step before too
#pragma unroll
        for (int k = 0; k < KEYS / 16; k++) wgmma::hold(p[k]);
    }
    __device__ __forceinline__ void store_weights(u8*) {
#pragma unroll
        for (int k = 0; k < KEYS / 16; k++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                p[k][i] = pack_pair(T{}, s[k * 8 + i * 2], s[k * 8 + i * 2 + 1]);
    }
    __device__ __forceinline__ void add_values(const u8* values, const u8*) {
        const u64 b = operand(values, Keys::SLAB);
        wgmma::fence();
#pragma unroll
        for (int k = 0; k < KEYS / 16; k++)
            wgmma::mma_registers<T, DIM, Major::mn>(o, p[k], wgmma::advance(b, k * 16 * 128));
        wgmma::commit();
    }
};

}  // namespace decode
