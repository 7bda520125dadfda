// wgmma with A in registers: a product's result goes on as the left operand of the next.
//
// D[64, N] += A[64, 16] B[16, N] for 16-bit types, B in shared memory. Register i of A on thread t of
// warp w holds row 16 w + t / 4 + 8 (i % 2), columns 8 (i / 2) + 2 (t % 4) and the next: what eight
// registers of a 64 x 16 piece of an accumulator are once pairs are rounded and packed. A must be left
// alone until the group is done, like D.
//
// Needs -arch=sm_90a.
#pragma once

#include "common/wgmma.cuh"

namespace wgmma {

// The compiler knows nothing of what runs on behind its back: values that an asynchronous MMA writes or
// reads are tied to this place, and nothing that uses them moves across.
template <int REGS> __device__ __forceinline__ void hold(f32 (&d)[REGS]) {
#pragma unroll
    for (int i = 0; i < REGS; i++) asm volatile("" : "+f"(d[i]) :: "memory");
}
template <int REGS> __device__ __forceinline__ void hold(u32 (&a)[REGS]) {
#pragma unroll
    for (int i = 0; i < REGS; i++) asm volatile("" : "+r"(a[i]) :: "memory");
}

// What follows is not started before `value`, which is not negative, is known. The assembler would move
// a wait for an MMA up, in front of all the arithmetic that was to run meanwhile: a branch, around
// something that it cannot leave out, keeps it in its place.
__device__ __forceinline__ void after(f32 value) {
    asm volatile(
        "{ .reg .pred fine;\n"
        "setp.geu.f32 fine, %0, 0f00000000;\n"
        "@fine bra done;\n"
        "nanosleep.u32 20;\n"
        "done: }"
        :: "f"(value) : "memory");
}

template <class T> constexpr bool TAKES_BF16 = false;
template <> constexpr bool TAKES_BF16<bf16> = true;

template <class T, int N, Major B> struct MmaRegisters;

// Operand 2 is not used: it is there so that the accumulator starts at operand 3, as in wgmma.cuh.
#define GPUKIT_WGMMA_RS(TYPES, N, A0, A1, A2, A3, TB)                                              \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPES " {"                      \
                 GPUKIT_REGISTERS_##N "}, {%" #A0 ", %" #A1 ", %" #A2 ", %" #A3 "}, %0, 1, 1, 1, " \
                 "%" #TB ";"                                                                       \
                 : "+l"(b), "+r"(unused), "+r"(unused), GPUKIT_OPERANDS_##N                        \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "n"(B == Major::mn))

// One instance per N; the numbers are those of the operands after the accumulator.
#define GPUKIT_WGMMA_RS_N(N, A0, A1, A2, A3, TB)                                                   \
    template <class T, Major B> struct MmaRegisters<T, N, B> {                                     \
        static __device__ __forceinline__ void run(f32 (&d)[N / 2], const u32* a, u64 b) {         \
            u32 unused = 0;                                                                        \
            if constexpr (TAKES_BF16<T>)                                                           \
                GPUKIT_WGMMA_RS("bf16.bf16", N, A0, A1, A2, A3, TB);                               \
            else                                                                                   \
                GPUKIT_WGMMA_RS("f16.f16", N, A0, A1, A2, A3, TB);                                \
        }                                                                                          \
    };

GPUKIT_WGMMA_RS_N(8, 7, 8, 9, 10, 11)
GPUKIT_WGMMA_RS_N(16, 11, 12, 13, 14, 15)
GPUKIT_WGMMA_RS_N(24, 15, 16, 17, 18, 19)
GPUKIT_WGMMA_RS_N(32, 19, 20, 21, 22, 23)
GPUKIT_WGMMA_RS_N(40, 23, 24, 25, 26, 27)
GPUKIT_WGMMA_RS_N(48, 27, 28, 29, 30, 31)
GPUKIT_WGMMA_RS_N(56, 31, 32, 33, 34, 35)
GPUKIT_WGMMA_RS_N(64, 35, 36, 37, 38, 39)
GPUKIT_WGMMA_RS_N(72, 39, 40, 41, 42, 43)
GPUKIT_WGMMA_RS_N(80, 43, 44, 45, 46, 47)
GPUKIT_WGMMA_RS_N(88, 47, 48, 49, 50, 51)
GPUKIT_WGMMA_RS_N(96, 51, 52, 53, 54, 55)
GPUKIT_WGMMA_RS_N(104, 55, 56, 57, 58, 59)
GPUKIT_WGMMA_RS_N(112, 59, 60, 61, 62, 63)
GPUKIT_WGMMA_RS_N(120, 63, 64, 65, 66, 67)
GPUKIT_WGMMA_RS_N(128, 67, 68, 69, 70, 71)
GPUKIT_WGMMA_RS_N(136, 71, 72, 73, 74, 75)
GPUKIT_WGMMA_RS_N(144, 75, 76, 77, 78, 79)
GPUKIT_WGMMA_RS_N(152, 79, 80, 81, 82, 83)
GPUKIT_WGMMA_RS_N(160, 83, 84, 85, 86, 87)
GPUKIT_WGMMA_RS_N(168, 87, 88, 89, 90, 91)
GPUKIT_WGMMA_RS_N(176, 91, 92, 93, 94, 95)
GPUKIT_WGMMA_RS_N(184, 95, 96, 97, 98, 99)
GPUKIT_WGMMA_RS_N(192, 99, 100, 101, 102, 103)
GPUKIT_WGMMA_RS_N(200, 103, 104, 105, 106, 107)
GPUKIT_WGMMA_RS_N(208, 107, 108, 109, 110, 111)
GPUKIT_WGMMA_RS_N(216, 111, 112, 113, 114, 115)
GPUKIT_WGMMA_RS_N(224, 115, 116, 117, 118, 119)
GPUKIT_WGMMA_RS_N(232, 119, 120, 121, 122, 123)
GPUKIT_WGMMA_RS_N(240, 123, 124, 125, 126, 127)
GPUKIT_WGMMA_RS_N(248, 127, 128, 129, 130, 131)
GPUKIT_WGMMA_RS_N(256, 131, 132, 133, 134, 135)

// D += A B for 64 rows, N columns and 16 of k; `a` is four registers.
template <class T, int N, Major B>
__device__ __forceinline__ void mma_registers(f32 (&d)[N / 2], const u32* a, u64 b) {
    MmaRegisters<T, N, B>::run(d, a, b);
}

}  // namespace wgmma
