// How fast the tensor cores are by themselves: wgmma after wgmma on operands that never change.
//
// Idea: nothing is loaded and nothing is stored while it counts. Each warpgroup keeps one tile of A
// (64 rows x 128 bytes) and one of B (N rows x 128 bytes), 128-byte swizzled, in shared memory, or A
// in registers, and issues four MMAs of 32 bytes of K per turn into the same accumulator. They queue
// up, one group stays in flight, so what is measured is the rate at which the tensor cores take them.
//
// What to look for:
//  - small N: an MMA takes no less than a fixed time, and one that reads A from shared memory takes
//    longer, as A is read anew for every N columns; from N = 64 on the time is that of the products;
//  - the number of warpgroups: one keeps all four tensor cores of an SM busy, more add nothing;
//  - the data: zeros toggle no wires. Power, and with it the clock, differs; clocks per MMA do not.
//
// It cannot be optimised away: D is checked. The four steps of a turn multiply A1, -A1, A1, -A1 by B1,
// B1, B2, B2 (the caller arranges the tiles so) and the sums are exact: after any number of turns D is
// what it was before them, one extra product A1 B1, and the host knows that.
//
// `a_bytes` and `b_bytes` are the tiles as they lie in shared memory; `fragments` are words of A1 and
// -A1, [2][128 threads][4]. `out` gets the words of D, [CTA][warpgroup][word][thread], `laps` the
// clocks and nanoseconds that each CTA's turns took (clock.cuh). Grid: one CTA per SM; WARPGROUPS *
// 128 threads; dynamic shared memory for the tiles.
//
// Needs sm_90a.
#include "common/clock.cuh"
#include "common/mbarrier.cuh"
#include "common/tma.cuh"
#include "common/warp.cuh"
#include "common/wgmma_bits.cuh"

constexpr int ROW = 128, STEPS = 4;  // bytes of a row, MMAs of 32 bytes each

__device__ __forceinline__ void copy(uint4* to, const uint4* from, int chunks) {
    for (int i = threadIdx.x; i < chunks; i += blockDim.x) to[i] = from[i];
}

// One MMA of a turn; the operands of step s are 32 s bytes into the rows, or one of two fragments.
template <class T, class D, int N, bool REGISTERS>
__device__ __forceinline__ void step(u32 (&d)[wgmma::WORDS<D, N>], u32 (&words)[2][4], u64 a, u64 b,
                                     int s) {
    if constexpr (REGISTERS) wgmma::mma_bits<T, D, N>(d, words[s % 2], wgmma::advance(b, 32 * s), 1);
    else wgmma::mma_bits<T, D, N>(d, wgmma::advance(a, 32 * s), wgmma::advance(b, 32 * s), 1);
}

template <class T, class D, int N, bool REGISTERS, int WARPGROUPS>
__global__ void __launch_bounds__(128 * WARPGROUPS, 1)
wgmma_rate(const uint4* a_bytes, const uint4* fragments, const uint4* b_bytes, i32 turns, i64* laps,
           u32* out) {
    extern __shared__ __align__(1024) uint4 shared[];
    constexpr int A_CHUNKS = 64 * ROW / 16, B_CHUNKS = N * ROW / 16;
    uint4* b_tile = shared + A_CHUNKS;
    copy(shared, a_bytes, A_CHUNKS);
    copy(b_tile, b_bytes, B_CHUNKS);
    tma::fence_shared();
    __syncthreads();

    const u64 a = wgmma::descriptor(mbarrier::address(shared), 16, 1024, wgmma::Swizzle::b128);
    const u64 b = wgmma::descriptor(mbarrier::address(b_tile), 16, 1024, wgmma::Swizzle::b128);
    u32 words[2][4];
    if constexpr (REGISTERS) {
#pragma unroll
        for (int s = 0; s < 2; s++) {
            const uint4 word = fragments[s * 128 + threadIdx.x % 128];
            words[s][0] = word.x, words[s][1] = word.y, words[s][2] = word.z, words[s][3] = word.w;
            wgmma::hold_bits(words[s]);
        }
    }
    u32 d[wgmma::WORDS<D, N>] = {};
    wgmma::hold_bits(d);
    wgmma::fence();
    step<T, D, N, REGISTERS>(d, words, a, b, 0);
    wgmma::commit();
    wgmma::wait<0>();
    __syncthreads();

    const Lap start = begin_lap();
    for (int turn = 0; turn < turns; turn++) {
#pragma unroll
        for (int s = 0; s < STEPS; s++) step<T, D, N, REGISTERS>(d, words, a, b, s);
        wgmma::commit();
        wgmma::wait<1>();
    }
    wgmma::wait<0>();
    wgmma::hold_bits(d);
    __syncthreads();
    if (threadIdx.x == 0) end_lap(start, laps);
    constexpr int WORDS = wgmma::WORDS<D, N>;
    const i64 group = i64(blockIdx.x) * WARPGROUPS + threadIdx.x / 128;
    u32* mine = out + group * WORDS * 128 + threadIdx.x % 128;
#pragma unroll
    for (int i = 0; i < WORDS; i++) mine[i * 128] = d[i];
}
