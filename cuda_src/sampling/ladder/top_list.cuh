// The largest of many (key, token) pairs, by a CTA: a list in shared memory and a bar that rises.
//
// Tiles of pairs are offered; those below the bar cannot be among the largest and are passed over. When
// the list might overflow it is sorted and cut, and its last pair is the new bar. Of n random pairs
// about keep * ln(n / keep) are ever listed, so sorts are few.
#pragma once

#include "common/warp.cuh"
#include "sampling/key.cuh"

template <int THREADS, int SIZE> struct TopList {
    static constexpr int EACH = SIZE / 2 / THREADS, TILE = EACH * THREADS;  // offered at once
    static_assert(EACH > 0, "half the list holds a tile");

    u64 pair[SIZE];
    u64 bar;  // pairs below it are not wanted
    u32 count;

    __device__ __forceinline__ void start() {
        if (threadIdx.x == 0) bar = 1, count = 0;
        __syncthreads();
    }

    // Lists the `keep` <= SIZE / 2 largest of n pairs, in descending order. 0 is no pair.
    template <class Pair> __device__ __forceinline__ void collect(u32 n, u32 keep, Pair pair_at) {
        start();
        for (u32 base = 0; base < n; base += TILE) {
            const bool full = count + TILE > SIZE;
            __syncthreads();  // all have read the count
            if (full) cut(keep);
            u64 mine[EACH];
#pragma unroll
            for (int e = 0; e < EACH; ++e) {
                const u32 i = base + e * THREADS + threadIdx.x;
                mine[e] = i < n ? pair_at(i) : 0;
            }
            const u64 least = bar;
#pragma unroll
            for (int e = 0; e < EACH; ++e) put(mine[e], least);
            __syncthreads();
        }
        cut(keep);
    }

    __device__ __forceinline__ void put(u64 mine, u64 least) {
        const u32 wanted = __ballot_sync(0xffffffff, mine >= least);
        if (!wanted) return;
        u32 at = 0;
        if (warp::lane() == 0) at = atomicAdd(&count, u32(__popc(wanted)));
        at = __shfl_sync(0xffffffff, at, 0) + __popc(wanted & ((1u << warp::lane()) - 1));
        if (mine >= least) pair[at] = mine;
    }

    __device__ __forceinline__ void cut(u32 keep) {
        const u32 n = count;
        sort(n);
        if (threadIdx.x == 0) {
            count = min(n, keep);
            if (n >= keep) bar = pair[keep - 1];
        }
        __syncthreads();
    }

    // Descending: a bitonic network over a power of two.
    __device__ __noinline__ void sort(u32 n) {
        u32 size = 2;
        while (size < n) size *= 2;
        for (u32 i = n + threadIdx.x; i < size; i += THREADS) pair[i] = 0;
        for (u32 run = 2; run <= size; run *= 2)
            for (u32 step = run / 2; step; step /= 2) {
                __syncthreads();
                for (u32 i = threadIdx.x; i < size / 2; i += THREADS) {
                    const u32 low = i / step * step * 2 + i % step, high = low + step;
                    const u64 a = pair[low], b = pair[high];
                    if ((a < b) == ((low & run) == 0)) pair[low] = b, pair[high] = a;
                }
            }
        __syncthreads();
    }
};
