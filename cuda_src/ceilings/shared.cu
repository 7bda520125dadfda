// How fast shared memory is: loads of 4, 8 or 16 bytes per lane, without bank conflicts or with.
//
// Idea: shared memory has 32 banks of 4 bytes, so 128 bytes per clock and SM. A warp's load of 16
// bytes per lane is 512 bytes, served in four passes of 8 lanes; one of 4 bytes is a single pass.
// Lanes that hit one bank at different addresses within a pass wait for each other: with a distance of
// WAYS accesses between neighbouring lanes, WAYS lanes share a bank and a pass takes WAYS clocks.
//
// Every turn reads eight places, 128 bytes further on than the turn before, which leaves the banks as
// they are: nothing can be kept in registers from turn to turn. The sum of all that was read goes out
// and is checked.
//
// `laps` gets clocks and nanoseconds (clock.cuh). Grid: one CTA per SM; 1024 threads; dynamic shared
// memory for 8 accesses of a warp and 1 KB.
#include "common/clock.cuh"
#include "common/vec.cuh"
#include "common/warp.cuh"

constexpr int PLACES = 8, SHIFTS = 8, LINE = 128;

__device__ __forceinline__ u32 folded(u32 w) { return w; }
__device__ __forceinline__ u32 folded(uint2 w) { return w.x + w.y; }
__device__ __forceinline__ u32 folded(uint4 w) { return w.x + w.y + w.z + w.w; }

template <int BYTES, int WAYS>
__global__ void __launch_bounds__(1024, 1)
shared_rate(const u32* values, i32 turns, i64* laps, u32* out) {
    extern __shared__ __align__(1024) u8 shared[];
    using W = typename Word<BYTES>::type;
    constexpr int SPAN = 32 * BYTES * WAYS, SIZE = PLACES * SPAN + SHIFTS * LINE;
    for (int i = threadIdx.x; i < SIZE / 4; i += 1024)
        reinterpret_cast<u32*>(shared)[i] = values[i];
    __syncthreads();

    const u8* mine = shared + warp::lane() * BYTES * WAYS;
    u32 sum = 0;
    const Lap start = begin_lap();
    for (int turn = 0; turn < turns; turn++) {
        const u8* from = mine + turn % SHIFTS * LINE;
#pragma unroll
        for (int i = 0; i < PLACES; i++) sum += folded(*reinterpret_cast<const W*>(from + i * SPAN));
    }
    __syncthreads();
    if (threadIdx.x == 0) end_lap(start, laps);
    out[i64(blockIdx.x) * 1024 + threadIdx.x] = sum;
}
