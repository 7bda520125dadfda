// How long a part of a kernel takes, in clocks of its SM and in nanoseconds: together they are the clock
// that the SM really ran at, which power decides from one millisecond to the next.
#pragma once

#include "common/types.cuh"

// The GPU's own timer, the same for all SMs; it ticks every 32 ns or so.
__device__ __forceinline__ u64 nanoseconds() {
    u64 now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now) :: "memory");
    return now;
}

struct Lap {
    i64 clocks;
    u64 nanoseconds;
};

__device__ __forceinline__ Lap begin_lap() { return {clock64(), nanoseconds()}; }

// Stores clocks [CTA], then nanoseconds [CTA].
__device__ __forceinline__ void end_lap(Lap start, i64* laps) {
    laps[blockIdx.x] = clock64() - start.clocks;
    laps[gridDim.x + blockIdx.x] = i64(nanoseconds() - start.nanoseconds);
}
