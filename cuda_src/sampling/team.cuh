// Sums, maxima and threshold searches by the threads of a CTA and the CTAs of a cluster.
#pragma once

#include "common/dsmem.cuh"
#include "common/warp.cuh"
#include "sampling/key.cuh"

namespace team {

__device__ __forceinline__ u64 warp_sum(u64 x) {
#pragma unroll
    for (int i = 16; i; i /= 2) x += __shfl_xor_sync(0xffffffff, x, i);
    return x;
}

__device__ __forceinline__ u64 warp_max(u64 x) {
#pragma unroll
    for (int i = 16; i; i /= 2) x = max(x, u64(__shfl_xor_sync(0xffffffff, x, i)));
    return x;
}

// The sum over lanes up to this one.
__device__ __forceinline__ u64 warp_scan(u64 x) {
#pragma unroll
    for (int i = 1; i < 32; i *= 2) {
        const u64 below = __shfl_up_sync(0xffffffff, x, i);
        if (warp::lane() >= i) x += below;
    }
    return x;
}

// One value per warp, then one for all. `slots` is free again after the next barrier.
template <int WARPS> __device__ __forceinline__ u64 cta_sum(u64 x, u64* slots) {
    x = warp_sum(x);
    if (warp::lane() == 0) slots[threadIdx.x / 32] = x;
    __syncthreads();
    x = 0;
#pragma unroll
    for (int w = 0; w < WARPS; ++w) x += slots[w];
    return x;
}

// A value of every CTA, known to all of them: written into everyone's slots, two sets in turn, so that
// one barrier of the cluster is enough for each exchange.
template <int COUNT, int CLUSTER> struct Board {
    u64 slot[2][COUNT][CLUSTER];
};

// Thread i < COUNT * CLUSTER puts `value(i / CLUSTER)` on the board of CTA i % CLUSTER.
template <int COUNT, int CLUSTER, class Value>
__device__ __forceinline__ void post(Board<COUNT, CLUSTER>& board, int parity, Value value) {
    if (threadIdx.x < COUNT * CLUSTER) {
        const int what = threadIdx.x / CLUSTER, to = threadIdx.x % CLUSTER;
        dsmem::store(dsmem::at(&board.slot[parity][what][cluster::rank()], to), u64(value(what)));
    }
    cluster::sync();
}

template <int COUNT, int CLUSTER>
__device__ __forceinline__ u64 total(const Board<COUNT, CLUSTER>& board, int parity, int what) {
    u64 sum = 0;
#pragma unroll
    for (int rank = 0; rank < CLUSTER; ++rank) sum += board.slot[parity][what][rank];
    return sum;
}

// Where a search for a threshold stands: the largest K with measure(K) >= need, of a measure that
// falls as K grows, lies in [low, high].
struct Bracket {
    u32 low, high;
    u64 at_low;       // the measure of `low`, once known
    u64 at_high = 0;  // that of high + 1

    __device__ __forceinline__ u32 step(int pivots) const { return (high - low) / (pivots + 1) + 1; }
    __device__ __forceinline__ u32 pivot(int i, int pivots) const {
        return u32(min(u64(low) + u64(step(pivots)) * (i + 1), u64(high) + 1));
    }
    // Keeps the part above the first `passed` pivots, with the measures of the last of them and of the
    // first that did not pass.
    __device__ __forceinline__ void narrow(int passed, int pivots, u64 measured, u64 beyond) {
        if (passed < pivots && pivot(passed, pivots) - 1 < high) at_high = beyond;
        const u64 next = u64(low) + u64(step(pivots)) * (passed + 1) - 1;
        low = passed ? pivot(passed - 1, pivots) : low;
        high = u32(min(next, u64(high)));
        at_low = passed ? measured : at_low;
    }
};

// A CTA's search over a list in its shared memory, every warp with a pivot of its own. `measure(K)` is
// what this lane's elements of keys K and above add. Stops early once the measure of `low` is at most
// `enough`. `slots` has two sets of WARPS.
template <int WARPS, class Measure>
__device__ __forceinline__ u32 search(Bracket b, u64 need, u64 enough, u64 (*slots)[WARPS],
                                      Measure measure) {
    const int me = warp::index();
    for (int round = 0; b.low < b.high && b.at_low > enough; ++round) {
        const u32 mine = b.pivot(me, WARPS);
        const u64 sum = mine > b.low && mine <= b.high ? warp_sum(measure(mine)) : 0;
        u64* found = slots[round & 1];
        if (warp::lane() == 0) found[me] = sum;
        __syncthreads();
        const bool pass = warp::lane() < WARPS && found[warp::lane() % WARPS] >= need;
        const int passed = __popc(__ballot_sync(0xffffffff, pass));  // measures fall: the first ones
        b.narrow(passed, WARPS, passed ? found[passed - 1] : 0, 0);
    }
    __syncthreads();
    return b.low;
}

}  // namespace team
