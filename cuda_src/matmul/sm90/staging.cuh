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
        // Eight-byte stores go half a warp at a time, four rows. Two neighbouring ones would meet in the
        // same banks; the odd one writes eight other columns first, which are at none of the four's.
        constexpr int GROUPS = COLS / 8, OTHER = GROUPS % 4 == 0 ? 2 : 1;
        const bool odd = GROUPS > 1 && lane / 4 % 2;
#pragma unroll
        for (int j = 0; j < GROUPS; j++) {
            const int mine = first / 2 + 4 * j, other = first / 2 + 4 * (GROUPS > 1 ? j ^ OTHER : j);
#pragma unroll
            for (int half = 0; half < 4; half += 2) {
                const u32 row = warp * 16 + lane / 4 + 4 * half;
                const u32 chunk = 2 * (odd ? j ^ OTHER : j) + lane % 4 / 2;
                const u32 at = swizzled<COLS * 4>(row, chunk) + lane % 2 * 8;
                *reinterpret_cast<float2*>(static_cast<u8*>(piece) + at) =
                    odd ? make_float2(d[other + half], d[other + half + 1])
                        : make_float2(d[mine + half], d[mine + half + 1]);
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

// Elements n and n + 1 of a row, as whole words of C: where the row is shifted by half a word, the
// word is n - 1 and n, and the last lane of a row is left with one element more.
__device__ __forceinline__ void put_pair(u16* row, int n, i32 cols, u32 before, u32 value,
                                         bool last) {
    const bool shifted = reinterpret_cast<u64>(row) & 2;
    if (!shifted) {
        if (n + 1 < cols) *reinterpret_cast<u32*>(row + n) = value;
        else if (n < cols) row[n] = value;
    } else {
        if (n == 0 && cols > 0) row[0] = value;
        if (n > 0 && n < cols) *reinterpret_cast<u32*>(row + n - 1) = __byte_perm(before, value, 0x5432);
        if ((last || n + 2 >= cols) && n + 1 < cols) row[n + 1] = value >> 16;
    }
}

// A warp's 16 rows of a row-major piece to C by plain stores, for a C whose rows TMA cannot address.
// `c` is C at the piece's first element. A row of the piece is whole words; where a row of 16-bit
// elements starts in the middle of a word of C, words are put together from two neighbouring lanes.
template <class OUT, int COLS>
__device__ __forceinline__ void copy_rows(const void* piece, OUT* c, i64 pitch, i32 rows, i32 cols) {
    constexpr int WORDS = COLS * sizeof(OUT) / 4, AT_ONCE = 32 / WORDS;
    const int word = threadIdx.x % WORDS, warp = threadIdx.x / 32 % 4;
#pragma unroll 4
    for (int i = 0; i < 16; i += AT_ONCE) {
        const int row = warp * 16 + i + threadIdx.x % 32 / WORDS;
        const u32 at = swizzled<COLS * sizeof(OUT)>(row, word / 4) + word % 4 * 4;
        const u32 value = *reinterpret_cast<const u32*>(static_cast<const u8*>(piece) + at);
        const u32 before = __shfl_up_sync(0xffffffff, value, 1);
        if (row >= rows) continue;
        OUT* to = c + row * pitch;
        if constexpr (sizeof(OUT) == 4) {
            if (word < cols) to[word] = __uint_as_float(value);
        } else {
            put_pair(reinterpret_cast<u16*>(to), 2 * word, cols, before, value, word == WORDS - 1);
        }
    }
}

}  // namespace staging
