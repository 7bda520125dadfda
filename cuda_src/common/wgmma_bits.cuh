// wgmma in every form that a demo or a microbenchmark asks for: any element type, sums in f32, f16 or
// s32, A from shared memory or from registers.
//
// Registers are plain words here. D is N / 2 of them per thread for f32 and s32, N / 4 of two halves
// each for f16; A is four. Matmuls use wgmma.cuh and wgmma_registers.cuh, whose registers have types.
// There are instances for N = 8, 16, 32, 48, 64, 96, 128, 192 and 256 (8, 48: not with f16 sums).
//
// Needs -arch=sm_90a.
#pragma once

#include "common/wgmma.cuh"

struct s8 {
    u8 bits;
};

namespace wgmma {

// Words of D per thread.
template <class D, int N> constexpr int WORDS = IS_SAME<D, f16> ? N / 4 : N / 2;

#define GPUKIT_WORDS_4(i) "+r"(d[i]), "+r"(d[i + 1]), "+r"(d[i + 2]), "+r"(d[i + 3])
#define GPUKIT_WORDS_8(i) GPUKIT_WORDS_4(i), GPUKIT_WORDS_4(i + 4)
#define GPUKIT_WORDS_16(i) GPUKIT_WORDS_8(i), GPUKIT_WORDS_8(i + 8)
#define GPUKIT_WORDS_24(i) GPUKIT_WORDS_16(i), GPUKIT_WORDS_8(i + 16)
#define GPUKIT_WORDS_32(i) GPUKIT_WORDS_16(i), GPUKIT_WORDS_16(i + 16)
#define GPUKIT_WORDS_48(i) GPUKIT_WORDS_32(i), GPUKIT_WORDS_16(i + 32)
#define GPUKIT_WORDS_64(i) GPUKIT_WORDS_32(i), GPUKIT_WORDS_32(i + 32)
#define GPUKIT_WORDS_96(i) GPUKIT_WORDS_64(i), GPUKIT_WORDS_32(i + 64)
#define GPUKIT_WORDS_128(i) GPUKIT_WORDS_64(i), GPUKIT_WORDS_64(i + 64)

// A from shared memory: operands 0 to 2 are the descriptors and `add`, then come the words of D.
#define GPUKIT_SS(COUNT, LIST, TYPES, FLAGS, ...)                                                  \
    asm volatile("{ .reg .pred add;\n"                                                             \
                 "setp.ne.b32 add, %2, 0;\n"                                                       \
                 "wgmma.mma_async.sync.aligned.m64" TYPES " {" LIST "}, %0, %1, add" FLAGS "; }"   \
                 : "+l"(a), "+l"(b), "+r"(add), GPUKIT_WORDS_##COUNT(0) : __VA_ARGS__)

// A from registers: operand 2 is not used, to count as above; A's words follow D.
#define GPUKIT_RS(COUNT, LIST, A_LIST, TYPES, FLAGS, ...)                                          \
    asm volatile("{ .reg .pred add;\n"                                                             \
                 "setp.ne.b32 add, %1, 0;\n"                                                       \
                 "wgmma.mma_async.sync.aligned.m64" TYPES " {" LIST "}, {" A_LIST "}, %0, add"     \
                 FLAGS "; }"                                                                       \
                 : "+l"(b), "+r"(add), "+r"(unused), GPUKIT_WORDS_##COUNT(0)                       \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]) __VA_ARGS__)

template <int COUNT> struct Bits;

// One instance per number of words: N columns of f32 or s32, M of f16. X0 and on are the numbers of
// the operands after D. Only 16-bit types may run along M or N; integers have no signs to flip.
#define GPUKIT_BITS(COUNT, N, M, LIST, X0, X1, X2, X3, X4)                                         \
    template <> struct Bits<COUNT> {                                                               \
        template <class T, class D, Major A, Major B>                                              \
        static __device__ __forceinline__ void run(u32 (&d)[COUNT], u64 a, u64 b, u32 add) {       \
            constexpr int TA = A == Major::mn, TB = B == Major::mn;                                \
            static_assert(sizeof(T) == 2 || (!TA && !TB), "only 16-bit types may be MN-major");    \
            if constexpr (IS_SAME<D, f16> && IS_SAME<T, f16>)                                      \
                GPUKIT_SS(COUNT, LIST, "n" #M "k16.f16.f16.f16", ", 1, 1, %" #X0 ", %" #X1,        \
                          "n"(TA), "n"(TB));                                                       \
            else if constexpr (IS_SAME<D, f16> && IS_SAME<T, e4m3>)                                \
                GPUKIT_SS(COUNT, LIST, "n" #M "k32.f16.e4m3.e4m3", ", 1, 1");                      \
            else if constexpr (IS_SAME<D, f16>)                                                    \
                GPUKIT_SS(COUNT, LIST, "n" #M "k32.f16.e5m2.e5m2", ", 1, 1");                      \
            else if constexpr (IS_SAME<T, bf16>)                                                   \
                GPUKIT_SS(COUNT, LIST, "n" #N "k16.f32.bf16.bf16", ", 1, 1, %" #X0 ", %" #X1,      \
                          "n"(TA), "n"(TB));                                                       \
            else if constexpr (IS_SAME<T, f16>)                                                    \
                GPUKIT_SS(COUNT, LIST, "n" #N "k16.f32.f16.f16", ", 1, 1, %" #X0 ", %" #X1,        \
                          "n"(TA), "n"(TB));                                                       \
            else if constexpr (IS_SAME<T, tf32>)                                                   \
                GPUKIT_SS(COUNT, LIST, "n" #N "k8.f32.tf32.tf32", ", 1, 1");                       \
            else if constexpr (IS_SAME<T, e4m3>)                                                   \
                GPUKIT_SS(COUNT, LIST, "n" #N "k32.f32.e4m3.e4m3", ", 1, 1");                      \
            else if constexpr (IS_SAME<T, e5m2>)                                                   \
                GPUKIT_SS(COUNT, LIST, "n" #N "k32.f32.e5m2.e5m2", ", 1, 1");                      \
            else                                                                                   \
                GPUKIT_SS(COUNT, LIST, "n" #N "k32.s32.s8.s8", "");                                \
        }                                                                                          \
        template <class T, class D, Major B>                                                       \
        static __device__ __forceinline__ void run(u32 (&d)[COUNT], const u32* a, u64 b,           \
                                                   u32 add) {                                      \
            u32 unused = 0;                                                                        \
            constexpr int TB = B == Major::mn;                                                     \
            static_assert(sizeof(T) == 2 || !TB, "only 16-bit types may be MN-major");             \
            if constexpr (IS_SAME<D, f16> && IS_SAME<T, f16>)                                      \
                GPUKIT_RS(COUNT, LIST, GPUKIT_FOUR(X0, X1, X2, X3), "n" #M "k16.f16.f16.f16",      \
                          ", 1, 1, %" #X4, , "n"(TB));                                             \
            else if constexpr (IS_SAME<D, f16> && IS_SAME<T, e4m3>)                                \
                GPUKIT_RS(COUNT, LIST, GPUKIT_FOUR(X0, X1, X2, X3), "n" #M "k32.f16.e4m3.e4m3",    \
                          ", 1, 1");                                                               \
            else if constexpr (IS_SAME<D, f16>)                                                    \
                GPUKIT_RS(COUNT, LIST, GPUKIT_FOUR(X0, X1, X2, X3), "n" #M "k32.f16.e5m2.e5m2",    \
                          ", 1, 1");                                                               \
            else if constexpr (IS_SAME<T, bf16>)                                                   \
                GPUKIT_RS(COUNT, LIST, GPUKIT_FOUR(X0, X1, X2, X3), "n" #N "k16.f32.bf16.bf16",    \
                          ", 1, 1, %" #X4, , "n"(TB));                                             \
            else if constexpr (IS_SAME<T, f16>)                                                    \
                GPUKIT_RS(COUNT, LIST, GPUKIT_FOUR(X0, X1, X2, X3), "n" #N "k16.f32.f16.f16",      \
                          ", 1, 1, %" #X4, , "n"(TB));                                             \
            else if constexpr (IS_SAME<T, tf32>)                                                   \
                GPUKIT_RS(COUNT, LIST, GPUKIT_FOUR(X0, X1, X2, X3), "n" #N "k8.f32.tf32.tf32",     \
                          ", 1, 1");                                                               \
            else if constexpr (IS_SAME<T, e4m3>)                                                   \
                GPUKIT_RS(COUNT, LIST, GPUKIT_FOUR(X0, X1, X2, X3), "n" #N "k32.f32.e4m3.e4m3",    \
                          ", 1, 1");                                                               \
            else if constexpr (IS_SAME<T, e5m2>)                                                   \
                GPUKIT_RS(COUNT, LIST, GPUKIT_FOUR(X0, X1, X2, X3), "n" #N "k32.f32.e5m2.e5m2",    \
                          ", 1, 1");                                                               \
            else                                                                                   \
                GPUKIT_RS(COUNT, LIST, GPUKIT_FOUR(X0, X1, X2, X3), "n" #N "k32.s32.s8.s8", "");   \
        }                                                                                          \
    };

#define GPUKIT_FOUR(X0, X1, X2, X3) "%" #X0 ", %" #X1 ", %" #X2 ", %" #X3

GPUKIT_BITS(4, 8, 16, GPUKIT_REGISTERS_8, 7, 8, 9, 10, 11)
GPUKIT_BITS(8, 16, 32, GPUKIT_REGISTERS_16, 11, 12, 13, 14, 15)
GPUKIT_BITS(16, 32, 64, GPUKIT_REGISTERS_32, 19, 20, 21, 22, 23)
GPUKIT_BITS(24, 48, 96, GPUKIT_REGISTERS_48, 27, 28, 29, 30, 31)
GPUKIT_BITS(32, 64, 128, GPUKIT_REGISTERS_64, 35, 36, 37, 38, 39)
GPUKIT_BITS(48, 96, 192, GPUKIT_REGISTERS_96, 51, 52, 53, 54, 55)
GPUKIT_BITS(64, 128, 256, GPUKIT_REGISTERS_128, 67, 68, 69, 70, 71)
GPUKIT_BITS(96, 192, 384, GPUKIT_REGISTERS_192, 99, 100, 101, 102, 103)
GPUKIT_BITS(128, 256, 512, GPUKIT_REGISTERS_256, 131, 132, 133, 134, 135)

// D (+)= A B for 64 rows, N columns and 32 bytes of K, sums of type D; `add` 0 overwrites D.
template <class T, class D, int N, Major A = Major::k, Major B = Major::k>
__device__ __forceinline__ void mma_bits(u32 (&d)[WORDS<D, N>], u64 a, u64 b, u32 add) {
    Bits<WORDS<D, N>>::template run<T, D, A, B>(d, a, b, add);
}

// The same with A in four registers.
template <class T, class D, int N, Major B = Major::k>
__device__ __forceinline__ void mma_bits(u32 (&d)[WORDS<D, N>], const u32* a, u64 b, u32 add) {
    Bits<WORDS<D, N>>::template run<T, D, B>(d, a, b, add);
}

// The compiler knows nothing of what runs on behind its back: words that an asynchronous MMA writes or
// reads are tied to this place.
template <int COUNT> __device__ __forceinline__ void hold_bits(u32 (&words)[COUNT]) {
#pragma unroll
    for (int i = 0; i < COUNT; i++) asm volatile("" : "+r"(words[i]) :: "memory");
}

}  // namespace wgmma
