// mma.sync and ldmatrix: the tensor core as one warp uses it, with both operands in registers.
//
// Fragments of m16n8k16, lane t of the warp (g = t / 4, c = 2 (t % 4)), two elements a register:
//   A: (g, c), (g + 8, c), (g, c + 8), (g + 8, c + 8)    B: (k = c, n = g), (k = c + 8, n = g)
//   D, f32: (g, c), (g, c + 1), (g + 8, c), (g + 8, c + 1)
// Each register pair is a row of an 8x8 matrix, which is what ldmatrix loads.
#pragma once

#include "common/types.cuh"

namespace mma {

// Four 8x8 matrices of 16-bit elements; lanes 8i to 8i+7 give the shared addresses of the 16-byte
// rows of matrix i. TRANS transposes each on the way into the registers.
template <bool TRANS> __device__ __forceinline__ void load_matrices(u32 (&tile)[4], u32 row) {
    if constexpr (TRANS) {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(tile[0]), "=r"(tile[1]), "=r"(tile[2]), "=r"(tile[3])
                     : "r"(row) : "memory");
    } else {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(tile[0]), "=r"(tile[1]), "=r"(tile[2]), "=r"(tile[3])
                     : "r"(row) : "memory");
    }
}

// D += A B for one 16 x 8 tile and 16 steps of k.
template <class T>
__device__ __forceinline__ void m16n8k16(f32 (&d)[4], const u32 (&a)[4], u32 b0, u32 b1);

template <>
__device__ __forceinline__ void m16n8k16<bf16>(f32 (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

template <>
__device__ __forceinline__ void m16n8k16<f16>(f32 (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

}  // namespace mma
