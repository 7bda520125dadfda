// Transposing 8-bit values in shared memory, by warps that do nothing else: see fp8_shape.cuh.
//
// ldmatrix transposes pairs of bytes: a thread gets, of keys 2 q and 2 q + 1, the two columns of a pair.
// Byte permutations of two such registers, of keys 8 apart, take the columns apart, and stmatrix writes
// what they give as rows of 16 keys.
#pragma once

#include "attention/sm90/job.cuh"
#include "attention/sm90/fp8_shape.cuh"
#include "common/mma.cuh"
#include "common/stmatrix.cuh"
#include "common/tma.cuh"

namespace attention {

template <class S> struct Transposer {
    const Shared<S>& shared;
    int part;        // of TRANSPOSERS
    u32 blocks = 0;  // done, of all tiles

    // Units are 16 keys x 32 columns, four matrices; so many are under way at a time.
    static constexpr int UNITS = S::DV / 32, TOGETHER = UNITS <= 4 ? UNITS : 1;

    // The blocks of a tile, by one warp.
    template <class JOB> __device__ __forceinline__ void tile(const JOB& job) {
#pragma unroll 1
        for (i32 left = job.end - job.first; left > 0; left--, blocks++) {
            const u32 from = blocks % S::V_STAGES, to = blocks % S::STAGES;
            mbarrier::wait(shared.v_full(from), blocks / S::V_STAGES % 2);
            mbarrier::wait(shared.t_empty(to), blocks / S::STAGES % 2 ^ 1);
#pragma unroll 1
            for (int keys = part; keys < S::N / 16; keys += S::TRANSPOSERS)
                sixteen(mbarrier::address(shared.v(from)) + keys * 16 * S::ROW,
                        mbarrier::address(shared.t(to)) + keys * 16 * S::DV);
            tma::fence_shared();
            __syncwarp();
            if (warp::lane() == 0) {
                mbarrier::arrive(shared.v_empty(from));
                mbarrier::arrive(shared.t_full(to));
            }
        }
    }

private:
    static __device__ __forceinline__ void sixteen(u32 from, u32 to) {
        const u32 lane = warp::lane(), key = lane % 16, half = lane / 16;
        const u32 row = from + key * S::ROW + ((half ^ key % 8) << 4);
#pragma unroll
        for (int first = 0; first < UNITS; first += TOGETHER) several(first, row, to + lane * 16);
    }

    static __device__ __forceinline__ void several(int first, u32 from, u32 to) {
        u32 pairs[TOGETHER][4];
#pragma unroll
        for (int i = 0; i < TOGETHER; i++) {
            const int u = first + i;
            mma::load_matrices<true>(pairs[i], (from ^ (u % 4 << 5)) + u / 4 * S::SLAB);
        }
#pragma unroll
        for (int i = 0; i < TOGETHER; i++) {
            const u32(&x)[4] = pairs[i];
            stmatrix::x4(to + (first + i) * 512, __byte_perm(x[0], x[1], 0x6420),
                         __byte_perm(x[0], x[1], 0x7531), __byte_perm(x[2], x[3], 0x6420),
                         __byte_perm(x[2], x[3], 0x7531));
        }
    }
};

}  // namespace attention
