// How long one access takes: a single thread follows pointers, each load waits for the one before.
//
// Idea: `next[p]` holds the place to read next, in an order that no prefetcher guesses, so time over
// hops is the latency. How far the places spread decides what answers: up to some 100 KB, first read
// by the whole CTA, L1; a few MB, L2; far more than the L2 holds, DRAM (and, beyond what the TLBs
// cover, the page walk). L2 comes in two halves: an SM reaches the lines of its own sooner, which the
// times of single hops show.
//
// EACH stores the clocks of every hop: the loaded value goes to shared memory before the clock is read
// again, so that the load is over by then; that costs a few clocks. Otherwise the sum is taken, in
// clocks and in nanoseconds.
//
// `warm`: words to read before, by all threads, one per 32 words; `times` one per hop, or the two
// sums, `last` where the chase ended, to be checked. Grid: 1; 1024 threads. Up to 4096 hops with EACH.
#include "common/clock.cuh"

enum class Level { l1, l2 };

constexpr int MOST = 4096;

template <Level LEVEL> __device__ __forceinline__ u32 load(const u32* p) {
    return LEVEL == Level::l1 ? __ldca(p) : __ldcg(p);
}

template <Level LEVEL>
__device__ __forceinline__ u32 each_hop(const u32* next, u32 p, int hops, u32* times) {
    __shared__ u32 seen[MOST], spent[MOST];
    for (int i = 0; i < hops; i++) {
        const u32 start = clock();
        p = load<LEVEL>(next + p);
        seen[i] = p;
        spent[i] = clock() - start;
    }
    for (int i = 0; i < hops; i++) times[i] = spent[i];
    return seen[hops - 1];
}

template <Level LEVEL>
__device__ __forceinline__ u32 all_hops(const u32* next, u32 p, int hops, u32* times) {
    const u64 began = nanoseconds();
    const u32 start = clock();
    for (int i = 0; i < hops; i++) p = load<LEVEL>(next + p);
    times[0] = p == ~0u ? 0 : clock() - start;
    times[1] = u32(nanoseconds() - began);
    return p;
}

template <Level LEVEL, bool EACH>
__global__ void __launch_bounds__(1024)
chase(const u32* next, i64 warm, i32 hops, u32* times, u32* last) {
    u32 found = 0;
    for (i64 i = i64(threadIdx.x) * 32; i < warm; i += 1024 * 32) found |= load<LEVEL>(next + i);
    __syncthreads();
    if (threadIdx.x == 0) {
        const u32 p = found == ~0u ? 1 : 0;  // never: what was read is only made use of
        last[0] = EACH ? each_hop<LEVEL>(next, p, hops, times) : all_hops<LEVEL>(next, p, hops, times);
    }
}
