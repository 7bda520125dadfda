// movmatrix: a warp transposes an 8x8 matrix of 16-bit elements that lies in its registers.
//
// Lane t holds row t / 4, columns 2 (t % 4) and the next, packed: what an accumulator fragment gives
// after packing pairs. The result is the same of the transposed matrix: what an MMA takes as its B.
#pragma once

#include "common/types.cuh"

namespace movmatrix {

__device__ __forceinline__ u32 transpose(u32 row) {
    u32 column;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(column) : "r"(row));
    return column;
}

}  // namespace movmatrix
