// How fast memory is: every SM reads, writes or copies 16 bytes per thread and access, over and over.
//
// Idea: bandwidth is bytes in flight over latency, so there must be enough of them: 1024 threads per
// SM with eight accesses each, 128 KB. What is measured depends on how much memory they go over: far
// more than the L2 holds gives DRAM, well below it, turn after turn, gives L2. Loads skip L1 (ld.cg).
//
// Thread t of n takes chunks t, t + n, t + 2n, ... of 16 bytes and begins again at the end: all
// threads together walk in step through memory. The sum of all that a thread read goes out and is
// checked.
//
// `steps`: accesses per thread, a multiple of 8. `laps` gets clocks and nanoseconds (clock.cuh).
// chunks: at least the number of threads, below 2^31. Grid: two CTAs per SM; 512 threads.
#include "common/clock.cuh"

enum class Op { read, write, copy };

constexpr int THREADS = 512, IN_FLIGHT = 8;

// The chunk `stride` further on, from the end on from the beginning.
__device__ __forceinline__ u32 further(u32 at, u32 stride, u32 chunks) {
    const u32 next = at + stride;
    return next < chunks ? next : next - chunks;
}

// What a write puts into a chunk.
__device__ __forceinline__ uint4 mark(u32 at) {
    return {at, at + 1, at + 2, at + 3};
}

template <Op OP>
__global__ void __launch_bounds__(THREADS, 2)
stream(const uint4* in, uint4* to, u32 chunks, i32 steps, i64* laps, uint4* out) {
    const u32 stride = gridDim.x * THREADS, thread = blockIdx.x * THREADS + threadIdx.x;
    u32 at = thread;
    uint4 sum = {};
    const Lap start = begin_lap();
    for (int step = 0; step < steps; step += IN_FLIGHT) {
        uint4 words[IN_FLIGHT];
        u32 places[IN_FLIGHT];
#pragma unroll
        for (int i = 0; i < IN_FLIGHT; i++) {
            places[i] = at;
            words[i] = OP == Op::write ? mark(at) : __ldcg(in + at);
            at = further(at, stride, chunks);
        }
#pragma unroll
        for (int i = 0; i < IN_FLIGHT; i++) {
            if constexpr (OP == Op::read)
                sum = {sum.x + words[i].x, sum.y + words[i].y, sum.z + words[i].z, sum.w + words[i].w};
            else
                to[places[i]] = words[i];
        }
    }
    __syncthreads();
    if (threadIdx.x == 0) end_lap(start, laps);
    if constexpr (OP == Op::read) out[thread] = sum;
}
