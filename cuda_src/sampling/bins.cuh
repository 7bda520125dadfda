// Thresholds by histograms: counts or masses of 1024 ranges of keys, the range that holds the answer,
// then that range again.
#pragma once

#include "sampling/team.cuh"

template <int THREADS> struct Bins {
    static constexpr int COUNT = 1024, WARPS = THREADS / 32, EACH = COUNT / THREADS;
    static_assert(EACH * THREADS == COUNT, "up to 1024 threads");

    u32 low[COUNT], high[COUNT];  // the two halves of a bin's sum
    u64 warps[WARPS];
    u64 above, inside;  // of the bin found: the sum of those above it, and its own
    u32 found;

    __device__ __forceinline__ static u32 shift(u32 span) { return max(0, 22 - __clz(span)); }

    __device__ __forceinline__ void clear() {
        for (int i = threadIdx.x; i < COUNT; i += THREADS) low[i] = high[i] = 0;
        __syncthreads();
    }
    __device__ __forceinline__ void count(u32 bin) { atomicAdd(&low[bin], 1u); }
    __device__ __forceinline__ void add(u32 bin, u64 value) {
        const u32 before = atomicAdd(&low[bin], u32(value));
        const u32 carry = u32(value >> 32) + (before + u32(value) < before);
        if (carry) atomicAdd(&high[bin], carry);
    }
    __device__ __forceinline__ void set(u32 bin, u64 value) {
        low[bin] = u32(value), high[bin] = u32(value >> 32);
    }
    __device__ __forceinline__ u64 sum(int bin) const { return u64(high[bin]) << 32 | low[bin]; }

    // Finds the highest bin that, with those above it, reaches `need`; the lowest if none does.
    __device__ __forceinline__ void find(u64 need) {
        __syncthreads();
        __syncwarp();  // the lanes enter together
        find_bin(need);
    }

    // Out of line: it is used in many places, and code that runs once per row costs its fetching.
    __device__ __noinline__ void find_bin(u64 need) {
        const int top = COUNT - 1 - threadIdx.x * EACH;
        u64 mine = 0;
        for (int i = 0; i < EACH; ++i) mine += sum(top - i);
        u64 upto = team::warp_scan(mine);
        if (warp::lane() == 31) warps[threadIdx.x / 32] = upto;
        __syncthreads();
        for (int w = 0; w < WARPS; ++w)
            if (w < threadIdx.x / 32) upto += warps[w];
        const bool last = threadIdx.x == THREADS - 1;
        if (upto - mine < need && (need <= upto || last)) settle(top, upto - mine, need);
        __syncthreads();
    }

    __device__ __forceinline__ void settle(int bin, u64 before, u64 need) {
        int i = 0;
        for (; i + 1 < EACH && before + sum(bin - i) < need; ++i) before += sum(bin - i);
        found = bin - i, above = before, inside = sum(bin - i);
    }
};

// Where a threshold lies, what those above the bracket add, and what its own elements do.
struct Range {
    u32 low, high;
    u64 above = 0, inside = ~0ull;

    template <int THREADS> __device__ __forceinline__ void narrow(const Bins<THREADS>& bins) {
        const u32 shift = Bins<THREADS>::shift(high - low), first = low + (bins.found << shift);
        high = u32(min(u64(high), u64(first) + (1ull << shift) - 1));
        low = first, above += bins.above, inside = bins.inside;
    }
};

// The largest key K of [low, high] such that what `each` visits of keys K and above adds up to `need`.
// Stops early at a lower key once what reaches it is at most `enough`. `each(add)` calls
// add(key, value) for this thread's elements.
template <int THREADS, class Each>
__device__ __forceinline__ u32 select(Bins<THREADS>& bins, Range range, u64 need, u64 enough,
                                      Each each) {
    while (range.low < range.high && (range.inside == ~0ull || range.above + range.inside > enough)) {
        bins.clear();
        const u32 shift = Bins<THREADS>::shift(range.high - range.low);
        each([&](u32 key, u64 value) {
            if (key >= range.low && key <= range.high) bins.add((key - range.low) >> shift, value);
        });
        bins.find(need - range.above);
        range.narrow(bins);
        __syncthreads();
    }
    return range.low;
}
