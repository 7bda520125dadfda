// Time in nanoseconds, the same for all SMs: the GPU's own timer, which ticks every 32 ns or so.
#pragma once

#include "common/types.cuh"

__device__ __forceinline__ u64 nanoseconds() {
    u64 now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now) :: "memory");
    return now;
}
