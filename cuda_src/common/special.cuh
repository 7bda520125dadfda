// Special registers that CUDA C++ has no name for.
#pragma once

#include "common/types.cuh"

namespace special {

// The SM that this CTA runs on, below the number of SM identifiers, which can exceed that of SMs.
__device__ __forceinline__ u32 smid() {
    u32 r;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(r));
    return r;
}

}  // namespace special
