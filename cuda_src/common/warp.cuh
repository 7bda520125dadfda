// Warps and warpgroups: who they are, how they meet, how they share the register file.
#pragma once

#include "common/types.cuh"

namespace warp {

constexpr int SIZE = 32, GROUP = 128;  // a warpgroup is four consecutive warps, the unit of wgmma

__device__ __forceinline__ int lane() { return threadIdx.x % SIZE; }

// The same number in all lanes, and known to be: control flow that hangs on it stays uniform.
__device__ __forceinline__ int uniform(int value) { return __shfl_sync(0xffffffff, value, 0); }

__device__ __forceinline__ int index() { return uniform(threadIdx.x / SIZE); }
__device__ __forceinline__ int group() { return uniform(threadIdx.x / GROUP); }

// One lane of a converged warp, chosen by the hardware.
__device__ __forceinline__ bool elect() {
    u32 chosen;
    asm volatile("{ .reg .pred p;\n"
                 "elect.sync _|p, 0xffffffff;\n"
                 "selp.b32 %0, 1, 0, p; }" : "=r"(chosen));
    return chosen != 0;
}

// Moves registers between warpgroups of a CTA: a producer gives back what consumers take.
template <int N> __device__ __forceinline__ void give_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" :: "n"(N));
}
template <int N> __device__ __forceinline__ void take_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" :: "n"(N));
}

// Barrier `id` (1 to 15; 0 is __syncthreads) of exactly `threads` threads, not the whole CTA.
__device__ __forceinline__ void sync(int id, int threads) {
    asm volatile("bar.sync %0, %1;" :: "r"(id), "r"(threads) : "memory");
}
// The same, and whether `value` holds for any of them.
__device__ __forceinline__ bool sync_any(int id, int threads, bool value) {
    u32 any;
    asm volatile("{ .reg .pred p;\n"
                 "setp.ne.u32 p, %3, 0;\n"
                 "barrier.cta.red.or.pred p, %1, %2, p;\n"
                 "selp.u32 %0, 1, 0, p; }"
                 : "=r"(any) : "r"(id), "r"(threads), "r"(u32(value)) : "memory");
    return __any_sync(0xffffffff, any != 0);  // so that the assembler knows that a warp agrees
}
__device__ __forceinline__ void arrive(int id, int threads) {
    asm volatile("bar.arrive %0, %1;" :: "r"(id), "r"(threads) : "memory");
}

}  // namespace warp
