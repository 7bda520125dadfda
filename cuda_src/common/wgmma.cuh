// wgmma: the Hopper tensor core instruction. Four warps multiply 64 rows of A by N columns of B.
//
// D[64, N] (+)= A[64, K] B[K, N], K being 32 bytes of elements: 16 of f16/bf16, 8 of tf32, 32 of fp8.
// A and B are read from shared memory through descriptors, D is N / 2 f32 registers per thread:
// register i of thread t of warp w holds row 16 w + t / 4 + 8 ((i / 2) % 2),
// column 8 (i / 4) + 2 (t % 4) + i % 2.
//
// Instructions are asynchronous: `fence` before the first one after ordinary code touched D,
// `commit` closes a group, `wait<N>` until at most N groups are in flight; D and the shared operands
// must be left alone until then.
//
// Needs -arch=sm_90a.
#pragma once

#include "common/types.cuh"

// f32 data multiplied as tf32: 8 exponent and 10 mantissa bits, the rest is ignored.
struct tf32 {
    u32 bits;
};
struct e4m3 {
    u8 bits;
};
struct e5m2 {
    u8 bits;
};
// Bytes of which A's and B's are of two formats.
struct e4m3_e5m2 {
    u8 bits;
};
struct e5m2_e4m3 {
    u8 bits;
};

// Which way an operand runs in memory: along K (rows of A, columns of B contiguous in K) or along
// M (A) or N (B). Only 16-bit types may run along M or N.
enum class Major { k, mn };

namespace wgmma {

__device__ __forceinline__ void fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

__device__ __forceinline__ void commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

template <int N> __device__ __forceinline__ void wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(N) : "memory");
}

// How a tile lies in shared memory, in the hardware's terms. `leading` and `stride` are byte
// distances between the 8 x 16-byte core matrices (or swizzle atoms); their meaning depends on the
// mode (PTX ISA, "matrix descriptor").
enum class Swizzle : u32 { none = 0, b128 = 1, b64 = 2, b32 = 3 };

__device__ __forceinline__ u64 descriptor(u32 shared_address, u32 leading, u32 stride,
                                          Swizzle swizzle) {
    return u64((shared_address & 0x3FFFF) >> 4) | u64(leading >> 4) << 16 | u64(stride >> 4) << 32 |
           u64(swizzle) << 62;
}

// Advances a descriptor by bytes of shared memory.
__device__ __forceinline__ u64 advance(u64 descriptor, u32 bytes) {
    return descriptor + (bytes >> 4);
}

template <class T, int N, Major A, Major B> struct Mma;

// Register lists by N: operands 3, 4, ... are the accumulator (0 to 2 are the descriptors and the
// accumulate flag; they are declared as read-write only to come first in the numbering).
#define GPUKIT_REGISTERS_8 "%3, %4, %5, %6"
#define GPUKIT_OPERANDS_8 "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
#define GPUKIT_REGISTERS_16 GPUKIT_REGISTERS_8 ", %7, %8, %9, %10"
#define GPUKIT_OPERANDS_16 GPUKIT_OPERANDS_8, "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])
#define GPUKIT_REGISTERS_24 GPUKIT_REGISTERS_16 ", %11, %12, %13, %14"
#define GPUKIT_OPERANDS_24 GPUKIT_OPERANDS_16, "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11])
#define GPUKIT_REGISTERS_32 GPUKIT_REGISTERS_24 ", %15, %16, %17, %18"
#define GPUKIT_OPERANDS_32 GPUKIT_OPERANDS_24, "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
#define GPUKIT_REGISTERS_40 GPUKIT_REGISTERS_32 ", %19, %20, %21, %22"
#define GPUKIT_OPERANDS_40 GPUKIT_OPERANDS_32, "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19])
#define GPUKIT_REGISTERS_48 GPUKIT_REGISTERS_40 ", %23, %24, %25, %26"
#define GPUKIT_OPERANDS_48 GPUKIT_OPERANDS_40, "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23])
#define GPUKIT_REGISTERS_56 GPUKIT_REGISTERS_48 ", %27, %28, %29, %30"
#define GPUKIT_OPERANDS_56 GPUKIT_OPERANDS_48, "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27])
#define GPUKIT_REGISTERS_64 GPUKIT_REGISTERS_56 ", %31, %32, %33, %34"
#define GPUKIT_OPERANDS_64 GPUKIT_OPERANDS_56, "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
#define GPUKIT_REGISTERS_72 GPUKIT_REGISTERS_64 ", %35, %36, %37, %38"
#define GPUKIT_OPERANDS_72 GPUKIT_OPERANDS_64, "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35])
#define GPUKIT_REGISTERS_80 GPUKIT_REGISTERS_72 ", %39, %40, %41, %42"
#define GPUKIT_OPERANDS_80 GPUKIT_OPERANDS_72, "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39])
#define GPUKIT_REGISTERS_88 GPUKIT_REGISTERS_80 ", %43, %44, %45, %46"
#define GPUKIT_OPERANDS_88 GPUKIT_OPERANDS_80, "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43])
#define GPUKIT_REGISTERS_96 GPUKIT_REGISTERS_88 ", %47, %48, %49, %50"
#define GPUKIT_OPERANDS_96 GPUKIT_OPERANDS_88, "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47])
#define GPUKIT_REGISTERS_104 GPUKIT_REGISTERS_96 ", %51, %52, %53, %54"
#define GPUKIT_OPERANDS_104 GPUKIT_OPERANDS_96, "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51])
#define GPUKIT_REGISTERS_112 GPUKIT_REGISTERS_104 ", %55, %56, %57, %58"
#define GPUKIT_OPERANDS_112 GPUKIT_OPERANDS_104, "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55])
#define GPUKIT_REGISTERS_120 GPUKIT_REGISTERS_112 ", %59, %60, %61, %62"
#define GPUKIT_OPERANDS_120 GPUKIT_OPERANDS_112, "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59])
#define GPUKIT_REGISTERS_128 GPUKIT_REGISTERS_120 ", %63, %64, %65, %66"
#define GPUKIT_OPERANDS_128 GPUKIT_OPERANDS_120, "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
#define GPUKIT_REGISTERS_136 GPUKIT_REGISTERS_128 ", %67, %68, %69, %70"
#define GPUKIT_OPERANDS_136 GPUKIT_OPERANDS_128, "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67])
#define GPUKIT_REGISTERS_144 GPUKIT_REGISTERS_136 ", %71, %72, %73, %74"
#define GPUKIT_OPERANDS_144 GPUKIT_OPERANDS_136, "+f"(d[68]), "+f"(d[69]), "+f"(d[70]), "+f"(d[71])
#define GPUKIT_REGISTERS_152 GPUKIT_REGISTERS_144 ", %75, %76, %77, %78"
#define GPUKIT_OPERANDS_152 GPUKIT_OPERANDS_144, "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75])
#define GPUKIT_REGISTERS_160 GPUKIT_REGISTERS_152 ", %79, %80, %81, %82"
#define GPUKIT_OPERANDS_160 GPUKIT_OPERANDS_152, "+f"(d[76]), "+f"(d[77]), "+f"(d[78]), "+f"(d[79])
#define GPUKIT_REGISTERS_168 GPUKIT_REGISTERS_160 ", %83, %84, %85, %86"
#define GPUKIT_OPERANDS_168 GPUKIT_OPERANDS_160, "+f"(d[80]), "+f"(d[81]), "+f"(d[82]), "+f"(d[83])
#define GPUKIT_REGISTERS_176 GPUKIT_REGISTERS_168 ", %87, %88, %89, %90"
#define GPUKIT_OPERANDS_176 GPUKIT_OPERANDS_168, "+f"(d[84]), "+f"(d[85]), "+f"(d[86]), "+f"(d[87])
#define GPUKIT_REGISTERS_184 GPUKIT_REGISTERS_176 ", %91, %92, %93, %94"
#define GPUKIT_OPERANDS_184 GPUKIT_OPERANDS_176, "+f"(d[88]), "+f"(d[89]), "+f"(d[90]), "+f"(d[91])
#define GPUKIT_REGISTERS_192 GPUKIT_REGISTERS_184 ", %95, %96, %97, %98"
#define GPUKIT_OPERANDS_192 GPUKIT_OPERANDS_184, "+f"(d[92]), "+f"(d[93]), "+f"(d[94]), "+f"(d[95])
#define GPUKIT_REGISTERS_200 GPUKIT_REGISTERS_192 ", %99, %100, %101, %102"
#define GPUKIT_OPERANDS_200 GPUKIT_OPERANDS_192, "+f"(d[96]), "+f"(d[97]), "+f"(d[98]), "+f"(d[99])
#define GPUKIT_REGISTERS_208 GPUKIT_REGISTERS_200 ", %103, %104, %105, %106"
#define GPUKIT_OPERANDS_208 GPUKIT_OPERANDS_200, "+f"(d[100]), "+f"(d[101]), "+f"(d[102]), "+f"(d[103])
#define GPUKIT_REGISTERS_216 GPUKIT_REGISTERS_208 ", %107, %108, %109, %110"
#define GPUKIT_OPERANDS_216 GPUKIT_OPERANDS_208, "+f"(d[104]), "+f"(d[105]), "+f"(d[106]), "+f"(d[107])
#define GPUKIT_REGISTERS_224 GPUKIT_REGISTERS_216 ", %111, %112, %113, %114"
#define GPUKIT_OPERANDS_224 GPUKIT_OPERANDS_216, "+f"(d[108]), "+f"(d[109]), "+f"(d[110]), "+f"(d[111])
#define GPUKIT_REGISTERS_232 GPUKIT_REGISTERS_224 ", %115, %116, %117, %118"
#define GPUKIT_OPERANDS_232 GPUKIT_OPERANDS_224, "+f"(d[112]), "+f"(d[113]), "+f"(d[114]), "+f"(d[115])
#define GPUKIT_REGISTERS_240 GPUKIT_REGISTERS_232 ", %119, %120, %121, %122"
#define GPUKIT_OPERANDS_240 GPUKIT_OPERANDS_232, "+f"(d[116]), "+f"(d[117]), "+f"(d[118]), "+f"(d[119])
#define GPUKIT_REGISTERS_248 GPUKIT_REGISTERS_240 ", %123, %124, %125, %126"
#define GPUKIT_OPERANDS_248 GPUKIT_OPERANDS_240, "+f"(d[120]), "+f"(d[121]), "+f"(d[122]), "+f"(d[123])
#define GPUKIT_REGISTERS_256 GPUKIT_REGISTERS_248 ", %127, %128, %129, %130"
#define GPUKIT_OPERANDS_256 GPUKIT_OPERANDS_248, "+f"(d[124]), "+f"(d[125]), "+f"(d[126]), "+f"(d[127])

#define GPUKIT_WGMMA(TYPE, SHAPE, TYPES, N, FLAGS, ...)                                            \
    asm volatile("{ .reg .pred add;\n"                                                             \
                 "setp.ne.b32 add, %2, 0;\n"                                                       \
                 "wgmma.mma_async.sync.aligned.m64n" #N SHAPE ".f32." TYPES " {"                   \
                 GPUKIT_REGISTERS_##N "}, %0, %1, add, 1, 1" FLAGS "; }"                           \
                 : "+l"(a), "+l"(b), "+r"(add), GPUKIT_OPERANDS_##N : __VA_ARGS__)

// One instance per N; X and Y are the operand numbers after the accumulator's, for the two majors.
#define GPUKIT_WGMMA_N(N, X, Y)                                                                    \
    template <class T, Major A, Major B> struct Mma<T, N, A, B> {                                  \
        static __device__ __forceinline__ void run(f32 (&d)[N / 2], u64 a, u64 b, u32 add) {       \
            if constexpr (sizeof(T) == 2) {                                                        \
                constexpr int TA = A == Major::mn, TB = B == Major::mn;                            \
                if constexpr (IS_BF16<T>)                                                          \
                    GPUKIT_WGMMA(T, "k16", "bf16.bf16", N, ", %" #X ", %" #Y, "n"(TA), "n"(TB));   \
                else                                                                               \
                    GPUKIT_WGMMA(T, "k16", "f16.f16", N, ", %" #X ", %" #Y, "n"(TA), "n"(TB));     \
            } else {                                                                               \
                static_assert(A == Major::k && B == Major::k, "only 16-bit types may be MN-major");\
                if constexpr (sizeof(T) == 4)                                                      \
                    GPUKIT_WGMMA(T, "k8", "tf32.tf32", N, "");                                     \
                else if constexpr (IS_SAME<T, e4m3>)                                               \
                    GPUKIT_WGMMA(T, "k32", "e4m3.e4m3", N, "");                                    \
                else if constexpr (IS_SAME<T, e4m3_e5m2>)                                          \
                    GPUKIT_WGMMA(T, "k32", "e4m3.e5m2", N, "");                                    \
                else if constexpr (IS_SAME<T, e5m2_e4m3>)                                          \
                    GPUKIT_WGMMA(T, "k32", "e5m2.e4m3", N, "");                                    \
                else                                                                               \
                    GPUKIT_WGMMA(T, "k32", "e5m2.e5m2", N, "");                                    \
            }                                                                                      \
        }                                                                                          \
    };

template <class T, class U> constexpr bool IS_SAME = false;
template <class T> constexpr bool IS_SAME<T, T> = true;
template <class T> constexpr bool IS_BF16 = IS_SAME<T, bf16>;

GPUKIT_WGMMA_N(8, 7, 8)
GPUKIT_WGMMA_N(16, 11, 12)
GPUKIT_WGMMA_N(24, 15, 16)
GPUKIT_WGMMA_N(32, 19, 20)
GPUKIT_WGMMA_N(40, 23, 24)
GPUKIT_WGMMA_N(48, 27, 28)
GPUKIT_WGMMA_N(56, 31, 32)
GPUKIT_WGMMA_N(64, 35, 36)
GPUKIT_WGMMA_N(72, 39, 40)
GPUKIT_WGMMA_N(80, 43, 44)
GPUKIT_WGMMA_N(88, 47, 48)
GPUKIT_WGMMA_N(96, 51, 52)
GPUKIT_WGMMA_N(104, 55, 56)
GPUKIT_WGMMA_N(112, 59, 60)
GPUKIT_WGMMA_N(120, 63, 64)
GPUKIT_WGMMA_N(128, 67, 68)
GPUKIT_WGMMA_N(136, 71, 72)
GPUKIT_WGMMA_N(144, 75, 76)
GPUKIT_WGMMA_N(152, 79, 80)
GPUKIT_WGMMA_N(160, 83, 84)
GPUKIT_WGMMA_N(168, 87, 88)
GPUKIT_WGMMA_N(176, 91, 92)
GPUKIT_WGMMA_N(184, 95, 96)
GPUKIT_WGMMA_N(192, 99, 100)
GPUKIT_WGMMA_N(200, 103, 104)
GPUKIT_WGMMA_N(208, 107, 108)
GPUKIT_WGMMA_N(216, 111, 112)
GPUKIT_WGMMA_N(224, 115, 116)
GPUKIT_WGMMA_N(232, 119, 120)
GPUKIT_WGMMA_N(240, 123, 124)
GPUKIT_WGMMA_N(248, 127, 128)
GPUKIT_WGMMA_N(256, 131, 132)

// D (+)= A B for 64 rows, N columns and 32 bytes of K; `add` 0 overwrites D.
template <class T, int N, Major A = Major::k, Major B = Major::k>
__device__ __forceinline__ void mma(f32 (&d)[N / 2], u64 a, u64 b, u32 add) {
    Mma<T, N, A, B>::run(d, a, b, add);
}

}  // namespace wgmma
