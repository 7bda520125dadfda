// Counters in global memory by which CTAs learn that they are the last one.
#pragma once

#include "common/types.cuh"

namespace counter {

// Counts up and from `last` back to 0; returns the count before. What this thread has done or, by a
// barrier, knows of, is seen by whom the counter tells of it. Cheaper than fences on either side,
// which order more.
__device__ __forceinline__ u32 increment(u32* at, u32 last) {
    u32 before;
    asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;"
                 : "=r"(before) : "l"(at), "r"(last) : "memory");
    return before;
}

}  // namespace counter
