// wgmma of e4m3 with A in registers: D[64, N] += A[64, 32] B[32, N], B in shared memory along K.
//
// Register i of A on thread t of warp w holds row 16 w + t / 4 + 8 (i % 2), columns 16 (i / 2) + 4 (t % 4)
// to the fourth of them, lowest byte first. A must be left alone until the group is done, like D.
//
// Needs -arch=sm_90a.
#pragma once

#include "common/wgmma_registers.cuh"

namespace wgmma {

template <int N> struct MmaRegisters8;

// One instance per N; the numbers are those of the operands after the accumulator. Operand 2 is not used:
// it is there so that the accumulator starts at operand 3, as in wgmma.cuh.
#define GPUKIT_WGMMA_RS8_N(N, A0, A1, A2, A3)                                                      \
    template <> struct MmaRegisters8<N> {                                                          \
        static __device__ __forceinline__ void run(f32 (&d)[N / 2], const u32* a, u64 b) {         \
            u32 unused = 0;                                                                        \
            asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k32.f32.e4m3.e4m3 {"              \
                         GPUKIT_REGISTERS_##N "}, {%" #A0 ", %" #A1 ", %" #A2 ", %" #A3 "}, "      \
                         "%0, 1, 1, 1;"                                                            \
                         : "+l"(b), "+r"(unused), "+r"(unused), GPUKIT_OPERANDS_##N                \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]));                            \
        }                                                                                          \
    };

GPUKIT_WGMMA_RS8_N(32, 19, 20, 21, 22)
GPUKIT_WGMMA_RS8_N(64, 35, 36, 37, 38)
GPUKIT_WGMMA_RS8_N(96, 51, 52, 53, 54)
GPUKIT_WGMMA_RS8_N(128, 67, 68, 69, 70)
GPUKIT_WGMMA_RS8_N(160, 83, 84, 85, 86)
GPUKIT_WGMMA_RS8_N(192, 99, 100, 101, 102)
GPUKIT_WGMMA_RS8_N(224, 115, 116, 117, 118)
GPUKIT_WGMMA_RS8_N(256, 131, 132, 133, 134)

// D += A B for 64 rows, N columns and 32 of k; `a` is four registers.
template <int N> __device__ __forceinline__ void mma_registers8(f32 (&d)[N / 2], const u32* a, u64 b) {
    MmaRegisters8<N>::run(d, a, b);
}

}  // namespace wgmma
