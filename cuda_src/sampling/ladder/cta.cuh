// Sums over n elements by the threads of a CTA, and where a running sum passes a number.
//
// What an element adds is a function of its number, so that the same code runs over a row in global
// memory, a sorted copy of it or a list in shared memory.
#pragma once

#include "sampling/team.cuh"

template <int THREADS> struct Cta {
    static constexpr int WARPS = THREADS / 32, MOST = 8;

    u64 slots[MOST][WARPS];

    // COUNT sums at once. add(i, sums) adds what element i < n gives.
    template <int COUNT, class Add>
    __device__ __forceinline__ void sums(u32 n, u64 (&sums)[COUNT], Add add) {
        static_assert(COUNT <= MOST, "slots for MOST sums");
        for (u64& sum : sums) sum = 0;
#pragma unroll 8
        for (u32 i = threadIdx.x; i < n; i += THREADS) add(i, sums);
#pragma unroll
        for (int c = 0; c < COUNT; ++c) sums[c] = team::warp_sum(sums[c]);
        if (warp::lane() == 0)
            for (int c = 0; c < COUNT; ++c) slots[c][threadIdx.x / 32] = sums[c];
        __syncthreads();
#pragma unroll
        for (int c = 0; c < COUNT; ++c) sums[c] = total(slots[c]);
        __syncthreads();
    }

    template <class Measure> __device__ __forceinline__ u64 sum(u32 n, Measure measure) {
        u64 all[1];
        sums(n, all, [&](u32 i, u64 (&sum)[1]) { sum[0] += measure(i); });
        return all[0];
    }

    template <class Measure> __device__ __forceinline__ u64 largest(u32 n, Measure measure) {
        u64 best = 0;
#pragma unroll 8
        for (u32 i = threadIdx.x; i < n; i += THREADS) best = max(best, u64(measure(i)));
        best = team::warp_max(best);
        if (warp::lane() == 0) slots[0][threadIdx.x / 32] = best;
        __syncthreads();
        for (int w = 0; w < WARPS; ++w) best = max(best, slots[0][w]);
        __syncthreads();
        return best;
    }

    // The first i at which measure(0) + ... + measure(i) exceeds `rest`, which the sum of all does.
    // Every warp sums a run of the elements; the run where it happens is shared out again.
    template <class Measure>
    __device__ __forceinline__ u32 first_beyond(u32 n, u64 rest, Measure measure) {
        u32 first = 0;
        while (n > 32) {
            const u32 run = (n + WARPS - 1) / WARPS, mine = threadIdx.x / 32 * run;
            u64 sum = 0;
#pragma unroll 8
            for (u32 i = mine + warp::lane(); i < min(mine + run, n); i += 32)
                sum += measure(first + i);
            sum = team::warp_sum(sum);
            if (warp::lane() == 0) slots[0][threadIdx.x / 32] = sum;
            __syncthreads();
            int w = 0;
            for (; (w + 1) * run < n && rest >= slots[0][w]; ++w) rest -= slots[0][w];
            first += w * run, n = min(run, n - w * run);
            __syncthreads();
        }
        const u64 upto = team::warp_scan(warp::lane() < n ? measure(first + warp::lane()) : 0);
        const u32 beyond = __ballot_sync(0xffffffff, upto > rest);
        return first + (beyond ? __ffs(beyond) : n) - 1;
    }

    __device__ __forceinline__ static u64 total(const u64 (&slots)[WARPS]) {
        u64 sum = 0;
#pragma unroll
        for (int w = 0; w < WARPS; ++w) sum += slots[w];
        return sum;
    }
};
