// Rows of the output, from accumulator fragments straight to global memory.
//
// The four threads of a quad hold a row's columns two by two. They trade until each has eight in a row:
// 16 bytes, and 64 bytes of a row in four neighbouring lanes. No shared memory, no barrier, and each row
// may lie anywhere.
#pragma once

#include "attention/softmax.cuh"
#include "common/types.cuh"

namespace attention {

// Thread q of a quad gives part j of its four words to thread j: a transposition in two exchanges.
__device__ __forceinline__ void transpose_quad(u32 (&w)[4]) {
    const u32 q = threadIdx.x % 4;
#pragma unroll
    for (int step = 1; step <= 2; step *= 2) {
        const bool upper = q & step;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (i & step) continue;
            u32 &low = w[i], &high = w[i + step];
            const u32 got = __shfl_xor_sync(0xffffffff, upper ? low : high, step);
            (upper ? low : high) = got;
        }
    }
}

// Row H of the fragment, of DV columns, times `factor`; `to` is null for a row that does not exist.
// All lanes of the warp must come.
template <class T, int H, int REGS>
__device__ __forceinline__ void store_row(T* to, const f32 (&o)[REGS], f32 factor) {
    constexpr int GROUPS = REGS / 4;  // of eight columns
    const int q = threadIdx.x % 4;
#pragma unroll
    for (int first = 0; first < GROUPS; first += 4) {
        u32 w[4] = {};
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int i = (first + j) * 4 + 2 * H;
            if (first + j < GROUPS) w[j] = pack<T>(o[i] * factor, o[i + 1] * factor);
        }
        transpose_quad(w);
        if (to != nullptr && first + q < GROUPS)
            reinterpret_cast<uint4*>(to)[first + q] = make_uint4(w[0], w[1], w[2], w[3]);
    }
}

}  // namespace attention
