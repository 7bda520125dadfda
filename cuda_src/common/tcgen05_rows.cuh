// tcgen05 with a thread for each row: what attention does with scores, weights and sums.
//
// Lane l of warp w of a warpgroup reaches lane 32 w + l of Tensor Memory, and register i is column i: a
// thread has a whole row, whose maximum and sum it finds without asking anybody. Weights go back as
// operand A of the next product: 16-bit elements, two to a cell, 16 of K in 8 columns.
//
// Needs -arch=sm_100a.
#pragma once

#include "common/tcgen05_kinds.cuh"

namespace tcgen05 {

// D (+)= A B for 16 columns of K, A in Tensor Memory; `add` false overwrites D. One thread.
__device__ __forceinline__ void multiply_rows(u32 d, u32 a, u64 b, u32 shape, bool add) {
    asm volatile("{ .reg .pred add;\nsetp.ne.b32 add, %4, 0;\n"
                 "tcgen05.mma.cta_group::1.kind::f16 [%0], [%1], %2, %3, add; }"
                 :: "r"(d), "r"(a), "l"(b), "r"(shape), "r"(u32(add)) : "memory");
}

// This warp's 32 lanes x 32 columns.
__device__ __forceinline__ void load_row(f32* d, u32 tmem) {
    asm volatile("tcgen05.ld.sync.aligned.32x32b.x32.b32 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, "
                 "%10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, "
                 "%26, %27, %28, %29, %30, %31}, [%32];"
                 : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3]), "=f"(d[4]), "=f"(d[5]),
                   "=f"(d[6]), "=f"(d[7]), "=f"(d[8]), "=f"(d[9]), "=f"(d[10]), "=f"(d[11]),
                   "=f"(d[12]), "=f"(d[13]), "=f"(d[14]), "=f"(d[15]), "=f"(d[16]), "=f"(d[17]),
                   "=f"(d[18]), "=f"(d[19]), "=f"(d[20]), "=f"(d[21]), "=f"(d[22]), "=f"(d[23]),
                   "=f"(d[24]), "=f"(d[25]), "=f"(d[26]), "=f"(d[27]), "=f"(d[28]), "=f"(d[29]),
                   "=f"(d[30]), "=f"(d[31])
                 : "r"(tmem) : "memory");
}
constexpr int ROW_COLUMNS = 32;

// The same back.
__device__ __forceinline__ void store_row(u32 tmem, const f32* d) {
    asm volatile("tcgen05.st.sync.aligned.32x32b.x32.b32 [%32], {%0, %1, %2, %3, %4, %5, %6, %7, %8, "
                 "%9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, "
                 "%25, %26, %27, %28, %29, %30, %31};"
                 :: "f"(d[0]), "f"(d[1]), "f"(d[2]), "f"(d[3]), "f"(d[4]), "f"(d[5]), "f"(d[6]),
                    "f"(d[7]), "f"(d[8]), "f"(d[9]), "f"(d[10]), "f"(d[11]), "f"(d[12]),
                    "f"(d[13]), "f"(d[14]), "f"(d[15]), "f"(d[16]), "f"(d[17]), "f"(d[18]),
                    "f"(d[19]), "f"(d[20]), "f"(d[21]), "f"(d[22]), "f"(d[23]), "f"(d[24]),
                    "f"(d[25]), "f"(d[26]), "f"(d[27]), "f"(d[28]), "f"(d[29]), "f"(d[30]),
                    "f"(d[31]), "r"(tmem) : "memory");
}

// 32 elements of 16 bits of each row: 16 columns.
__device__ __forceinline__ void store_row(u32 tmem, const u32 (&w)[16]) {
    asm volatile("tcgen05.st.sync.aligned.32x32b.x16.b32 [%16], {%0, %1, %2, %3, %4, %5, %6, %7, %8, "
                 "%9, %10, %11, %12, %13, %14, %15};"
                 :: "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]), "r"(w[4]), "r"(w[5]), "r"(w[6]),
                    "r"(w[7]), "r"(w[8]), "r"(w[9]), "r"(w[10]), "r"(w[11]), "r"(w[12]),
                    "r"(w[13]), "r"(w[14]), "r"(w[15]), "r"(tmem) : "memory");
}

// This thread's stores are over: MMAs may read what they wrote.
__device__ __forceinline__ void wait_store() {
    asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory");
}

}  // namespace tcgen05
