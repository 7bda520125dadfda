// Accumulators on their way to C: rounded, written to a swizzled piece of shared memory by stmatrix,
// fetched from there by a TMA store.
//
// A piece is 64 rows of a warpgroup by COLS columns. Rows of a piece are COLS elements apart and
// TMA's swizzle of that width is undone by its store, so eight rows of an stmatrix tile fall in
// different banks.
#pragma once

#include "common/mbarrier.cuh"
#include "common/stmatrix.cuh"
#include "common/types.cuh"
#include "common/warp.cuh"

namespace staging {

// Byte offset of a 16-byte chunk in rows of PITCH (32, 64 or 128) bytes under TMA's swizzle.
template <int PITCH> __device__ __forceinline__ u32 swizzled(u32 row, u32 chunk) {
    const u32 offset = row * PITCH + chunk * 16;
    return offset ^ ((offset >> 3) & (PITCH - 16));
}

template <class OUT> __device__ __forceinline__ u32 pack(f32 low, f32 high);
template <> __device__ __forceinline__ u32 pack<bf16>(f32 low, f32 high) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return reinterpret_cast<const u32&>(pair);
}
template <> __device__ __forceinline__ u32 pack<f16>(f32 low, f32 high) {
    const __half2 pair = __floats2half2_rn(low, high);
    return reinterpret_cast<const u32&>(pair);
}

// Columns [first, first + COLS) of a 64 x N accumulator into `piece`, row-major.
template <class OUT, int COLS, int REGS>
__device__ __forceinline__ void write_rows(void* piece, const f32 (&d)[REGS], int first) {
    const u32 base = mbarrier::address(piece), lane = warp::lane();
    const u32 warp = threadIdx.x / 32 % 4;
    if constexpr (sizeof(OUT) == 2) {
        const u32 row = warp * 16 + lane % 16, half = lane / 16;
#pragma unroll
        for (int j = 0; j < COLS / 16; j++) {
            const int i = first / 2 + 8 * j;
            stmatrix::x4(base + swizzled<COLS * 2>(row, 2 * j + half), pack<OUT>(d[i], d[i + 1]),
                         pack<OUT>(d[i + 2], d[i + 3]), pack<OUT>(d[i + 4], d[i + 5]),
                         pack<OUT>(d[i + 6], d[i + 7]));
        }
    } else {  // f32: a thread's two columns are 8 bytes
#pragma unroll
        for (int j = 0; j < COLS / 8; j++) {
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const int i = first / 2 + 4 * j + 2 * half;
                const u32 row = warp * 16 + lane / 4 + 8 * half;
                const u32 at = base + swizzled<COLS * 4>(row, 2 * j + lane % 4 / 2) + lane % 2 * 8;
                asm volatile("st.shared.v2.f32 [%0], {%1, %2};"
                             :: "r"(at), "f"(d[i]), "f"(d[i + 1]) : "memory");
            }
        }
    }
}

// The same columns transposed: row n of the piece holds the 64 rows m, 128 bytes of 16-bit elements.
template <class OUT, int COLS, int REGS>
__device__ __forceinline__ void write_columns(void* piece, const f32 (&d)[REGS], int first) {
    static_assert(sizeof(OUT) == 2, "stmatrix moves 16-bit elements");
    const u32 base = mbarrier::address(piece), lane = warp::lane();
    const u32 row = lane / 16 * 8 + lane % 8, chunk = threadIdx.x / 32 % 4 * 2 + lane / 8 % 2;
#pragma unroll
    for (int j = 0; j < COLS / 16; j++) {
        const int i = first / 2 + 8 * j;
        stmatrix::x4_trans(base + swizzled<128>(16 * j + row, chunk), pack<OUT>(d[i], d[i + 1]),
                           pack<OUT>(d[i + 2], d[i + 3]), pack<OUT>(d[i + 4], d[i + 5]),
                           pack<OUT>(d[i + 6], d[i + 7]));
    }
    if constexpr (COLS % 16 == 8) {
        const int i = first / 2 + COLS / 16 * 8;
        stmatrix::x2_trans(base + swizzled<128>(COLS / 16 * 16 + lane % 8, chunk),
                           pack<OUT>(d[i], d[i + 1]), pack<OUT>(d[i + 2], d[i + 3]));
    }
}

}  // namespace staging
