// A draw in two steps, by a CTA: the block from the blocks' masses, the token from the block.
#pragma once

#include "sampling/blocks.cuh"
#include "sampling/team.cuh"

template <int THREADS, int MOST> struct BlockDraw {
    static constexpr int WARPS = THREADS / 32, RUN = ROUND / THREADS > 4 ? ROUND / THREADS : 4;

    u64 block[MOST];  // masses
    u64 warps[WARPS];
    u64 left;
    u32 at, token;

    // The block where the running sum passes `rest`, of which what came before is taken. `token` is
    // free until the walk.
    __device__ __forceinline__ int which_block(u64& rest, int count) {
        if (threadIdx.x < 32) find_block(rest, count);
        __syncthreads();
        rest = left;
        return int(at);
    }

    __device__ __forceinline__ void find_block(u64 rest, int count) {
        constexpr int EACH = MOST / 32;
        const int first = warp::lane() * EACH;
        u64 sum = 0;
        for (int i = 0; i < EACH; ++i) sum += first + i < count ? block[first + i] : 0;
        const u64 upto = team::warp_scan(sum);
        if (warp::lane() != __ffs(__ballot_sync(0xffffffff, upto > rest)) - 1) return;
        rest -= upto - sum;
        int i = 0;
        for (; i + 1 < EACH && rest >= block[first + i]; ++i) rest -= block[first + i];
        left = rest, at = u32(first + i);
    }

    // The sum of a round's masses, `mass(mass.read(token))` each.
    template <class Mass> __device__ __forceinline__ u64 sum_of(u32 base, Mass mass) {
        u64 upto[RUN];
        const u64 sum = team::cta_sum<WARPS>(run_of(base, mass, upto), warps);
        __syncthreads();
        return sum;
    }

    // Leaves the token of the round at which the running sum passes `rest`, or that share of the
    // round's sum if it is not 0; the round's sum.
    template <class Mass>
    __device__ __forceinline__ u64 walk(u32 base, u64 rest, double share, Mass mass) {
        u64 upto[RUN];
        const u64 sum = run_of(base, mass, upto), scan = team::warp_scan(sum);
        if (warp::lane() == 31) warps[threadIdx.x / 32] = scan;
        __syncthreads();
        u64 all = 0, before = scan - sum;
        for (int w = 0; w < WARPS; ++w) {
            before += w < threadIdx.x / 32 ? warps[w] : 0;
            all += warps[w];
        }
        if (share > 0.0) rest = min(all - 1, u64(share * double(all)));
        if (before <= rest && rest < before + sum) {
            int j = 0;
#pragma unroll
            for (int i = 0; i + 1 < RUN; ++i) j += before + upto[i] <= rest;
            token = base + threadIdx.x * RUN + j;
        }
        __syncthreads();
        return all;
    }

    // Of this thread's run of the round's tokens, one run after the other, the running sums. All are read
    // before any is weighed.
    template <class Mass>
    __device__ __forceinline__ static u64 run_of(u32 base, Mass mass, u64 (&upto)[RUN]) {
        const bool mine = threadIdx.x < ROUND / RUN;
        decltype(mass.read(0)) raw[RUN];
#pragma unroll
        for (int j = 0; j < RUN; ++j)
            if (mine) raw[j] = mass.read(base + threadIdx.x * RUN + j);
        u64 sum = 0;
#pragma unroll
        for (int j = 0; j < RUN; ++j) {
            if (mine) sum += mass(raw[j]);
            upto[j] = sum;
        }
        return sum;
    }
};
