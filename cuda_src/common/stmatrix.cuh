// stmatrix: a warp stores 8x8 tiles of 16-bit elements from the fragments that MMAs leave in
// registers; each lane names the shared address of one 16-byte row.
//
// Lanes 8i to 8i+7 give the rows of tile i. Without `.trans`, lane t holds of each tile the elements
// (t / 4, 2 (t % 4)) and the next column: exactly the order of an accumulator fragment after
// packing pairs. With `.trans` the tile is stored transposed.
#pragma once

#include "common/types.cuh"

namespace stmatrix {

__device__ __forceinline__ void x4(u32 row, u32 t0, u32 t1, u32 t2, u32 t3) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
                 :: "r"(row), "r"(t0), "r"(t1), "r"(t2), "r"(t3) : "memory");
}

__device__ __forceinline__ void x2(u32 row, u32 t0, u32 t1) {
    asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};"
                 :: "r"(row), "r"(t0), "r"(t1) : "memory");
}

__device__ __forceinline__ void x4_trans(u32 row, u32 t0, u32 t1, u32 t2, u32 t3) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};"
                 :: "r"(row), "r"(t0), "r"(t1), "r"(t2), "r"(t3) : "memory");
}

__device__ __forceinline__ void x2_trans(u32 row, u32 t0, u32 t1) {
    asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};"
                 :: "r"(row), "r"(t0), "r"(t1) : "memory");
}

}  // namespace stmatrix
