// A value whose origin the compiler forgets: what is computed from it is computed anew each time, and not
// kept in registers from one step of a loop to the next.
#pragma once

#include "common/types.cuh"

__device__ __forceinline__ u32 opaque(u32 value) {
    asm volatile("" : "+r"(value));
    return value;
}
