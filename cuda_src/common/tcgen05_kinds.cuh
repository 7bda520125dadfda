// tcgen05 for every type: MMAs of tf32, of 8 and of 4 bits, with and without scale factors of blocks.
//
// An MMA takes 32 bytes of K of each row, whatever the type. Block-scaled kinds multiply each product
// by a factor of its block of A's row and one of B's: 32 elements and ue8m0 (a power of two) in mxfp8,
// 16 and ue4m3 in nvfp4. Factors lie in TMEM, one byte each: row r in lane r % 32 of column r / 32,
// the same in all four quarters of the lanes, four blocks of K in the four bytes of a cell. `copy_scales`
// brings them there: 512 bytes of shared memory are 32 lanes x 4 columns, factors of 128 rows.
//
// Needs -arch=sm_100a.
#pragma once

#include "common/tcgen05.cuh"

namespace tcgen05 {

enum class Kind { f16, tf32, f8f6f4, mxf8f6f4, mxf4nvf4 };
enum class Major { k, mn };  // the contiguous dimension of an operand in memory

__device__ constexpr bool scaled(Kind kind) { return kind == Kind::mxf8f6f4 || kind == Kind::mxf4nvf4; }

// What A and B are.
enum class Format { f16, bf16, tf32, e4m3, e5m2, e4m3_e5m2, e5m2_e4m3,
                    mxe4m3, mxe5m2, mxe4m3_e5m2, mxe5m2_e4m3, nve2m1 };

__device__ constexpr Kind kind(Format f) {
    return f <= Format::bf16 ? Kind::f16 : f == Format::tf32 ? Kind::tf32
        : f < Format::mxe4m3 ? Kind::f8f6f4 : f < Format::nve2m1 ? Kind::mxf8f6f4 : Kind::mxf4nvf4;
}
// Bytes of what a tensor map and K count: an element, or two of 4 bits.
__device__ constexpr int unit_bytes(Format f) {
    return f <= Format::bf16 ? 2 : f == Format::tf32 ? 4 : 1;
}
// Type codes of the instruction descriptor.
__device__ constexpr u32 code_a(Format f) {
    return f == Format::f16 ? 0 : f == Format::tf32 ? 2
        : f == Format::e4m3 || f == Format::e4m3_e5m2 || f == Format::mxe4m3
            || f == Format::mxe4m3_e5m2 ? 0 : 1;
}
__device__ constexpr u32 code_b(Format f) {
    return f == Format::e4m3_e5m2 || f == Format::mxe4m3_e5m2 ? 1
        : f == Format::e5m2_e4m3 || f == Format::mxe5m2_e4m3 ? 0 : code_a(f);
}

// The instruction descriptor: sums in f32, M and N of the whole MMA.
__device__ constexpr u32 shape(Format f, int m, int n, Major a, Major b) {
    const u32 sums = scaled(kind(f)) ? 0 : 1 << 4;
    const u32 ue8m0 = kind(f) == Kind::mxf8f6f4 ? 1 << 23 : 0;
    return sums | code_a(f) << 7 | code_b(f) << 10 | u32(a) << 15 | u32(b) << 16 | n / 8 << 17 | ue8m0 |
           m / 16 << 24;
}
// The same with the byte of a cell at which the factors for this MMA begin.
__device__ constexpr u32 with_scales_at(u32 shape, u32 byte) { return shape | byte << 4 | byte << 29; }

#define GPUKIT_MMA(ctas, name)                                                                    \
    asm volatile("{ .reg .pred add;\nsetp.ne.b32 add, %4, 0;\n"                                   \
                 "tcgen05.mma.cta_group::" ctas ".kind::" name " [%0], %1, %2, %3, add; }"        \
                 :: "r"(d), "l"(a), "l"(b), "r"(shape), "r"(u32(add)) : "memory")
#define GPUKIT_SCALED_MMA(ctas, name)                                                             \
    asm volatile("{ .reg .pred add;\nsetp.ne.b32 add, %4, 0;\n"                                   \
                 "tcgen05.mma.cta_group::" ctas ".kind::" name                                    \
                 " [%0], %1, %2, %3, [%5], [%6], add; }"                                          \
                 :: "r"(d), "l"(a), "l"(b), "r"(shape), "r"(u32(add)), "r"(scale_a), "r"(scale_b) \
                 : "memory")

// D (+)= A B for 32 bytes of K; `add` false overwrites D. One thread.
template <Kind KIND, int CTAS>
__device__ __forceinline__ void multiply(u32 d, u64 a, u64 b, u32 shape, bool add) {
    if constexpr (KIND == Kind::f16) mma<CTAS>(d, a, b, shape, add);
    else if constexpr (KIND == Kind::tf32 && CTAS == 1) GPUKIT_MMA("1", "tf32");
    else if constexpr (KIND == Kind::tf32) GPUKIT_MMA("2", "tf32");
    else if constexpr (CTAS == 1) GPUKIT_MMA("1", "f8f6f4");
    else GPUKIT_MMA("2", "f8f6f4");
}

// The same with factors at two addresses of TMEM.
template <Kind KIND, int CTAS>
__device__ __forceinline__ void multiply_scaled(u32 d, u64 a, u64 b, u32 shape, u32 scale_a,
                                                u32 scale_b, bool add) {
    if constexpr (KIND == Kind::mxf8f6f4 && CTAS == 1)
        GPUKIT_SCALED_MMA("1", "mxf8f6f4.block_scale.scale_vec::1X");
    else if constexpr (KIND == Kind::mxf8f6f4)
        GPUKIT_SCALED_MMA("2", "mxf8f6f4.block_scale.scale_vec::1X");
    else if constexpr (CTAS == 1) GPUKIT_SCALED_MMA("1", "mxf4nvf4.block_scale.scale_vec::4X");
    else GPUKIT_SCALED_MMA("2", "mxf4nvf4.block_scale.scale_vec::4X");
}
#undef GPUKIT_MMA
#undef GPUKIT_SCALED_MMA

// 512 bytes of factors to four columns of TMEM, of both CTAs of a pair from their own shared memory.
// MMAs and copies that this thread issues later wait for it. One thread.
constexpr int SCALE_CHUNK = 512, SCALE_COLUMNS = 4;
template <int CTAS> __device__ __forceinline__ void copy_scales(u32 tmem, const void* chunk) {
    const u64 from = descriptor(address(chunk), 16, 128, Swizzle::none);
    if constexpr (CTAS == 1)
        asm volatile("tcgen05.cp.cta_group::1.32x128b.warpx4 [%0], %1;"
                     :: "r"(tmem), "l"(from) : "memory");
    else
        asm volatile("tcgen05.cp.cta_group::2.32x128b.warpx4 [%0], %1;"
                     :: "r"(tmem), "l"(from) : "memory");
}

// A warp loads its 32 lanes x 16 columns: thread t has lane t.
__device__ __forceinline__ void load_lanes(f32 (&d)[16], u32 tmem) {
    asm volatile("tcgen05.ld.sync.aligned.32x32b.x16.b32 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, "
                 "%10, %11, %12, %13, %14, %15}, [%16];"
                 : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3]), "=f"(d[4]), "=f"(d[5]),
                   "=f"(d[6]), "=f"(d[7]), "=f"(d[8]), "=f"(d[9]), "=f"(d[10]), "=f"(d[11]),
                   "=f"(d[12]), "=f"(d[13]), "=f"(d[14]), "=f"(d[15])
                 : "r"(tmem) : "memory");
}

}  // namespace tcgen05
