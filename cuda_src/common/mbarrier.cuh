// mbarrier: a counter in shared memory that threads and asynchronous copies complete together.
//
// A phase ends when all arrivals are in and all expected bytes have landed. Waiting is by the parity
// of the phase: a fresh barrier answers parity 1 at once ("the phase before is over") and parity 0
// when its first phase ends. So producers of a ring start with parity 1, consumers with 0.
#pragma once

#include "common/types.cuh"

namespace mbarrier {

// 8 bytes of shared memory; everything that touches it goes through the functions below.
using Barrier = u64;

__device__ __forceinline__ u32 address(const void* shared) {
    return static_cast<u32>(__cvta_generic_to_shared(shared));
}

__device__ __forceinline__ void init(Barrier* barrier, u32 arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;"
                 :: "r"(address(barrier)), "r"(arrivals) : "memory");
}

// Makes initialised barriers visible to the async proxy and, with a cluster barrier after it, to the
// other CTAs of the cluster.
__device__ __forceinline__ void fence_init() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void arrive(Barrier* barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(address(barrier)) : "memory");
}

// Arrives at the barrier of the same shared-memory offset in CTA `rank` of this cluster. It orders
// nothing beyond this CTA: enough to hand back a buffer that only asynchronous copies write and only
// MMAs read. A `.release.cluster` here costs a MEMBAR.ALL.GPU: with one per k step, a
// matmul in clusters was slower than without.
__device__ __forceinline__ void arrive_remote(Barrier* barrier, u32 rank) {
    asm volatile(
        "{ .reg .b32 remote;\n"
        "mapa.shared::cluster.u32 remote, %0, %1;\n"
        "mbarrier.arrive.shared::cluster.b64 _, [remote]; }"
        :: "r"(address(barrier)), "r"(rank) : "memory");
}

__device__ __forceinline__ void arrive_and_expect(Barrier* barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                 :: "r"(address(barrier)), "r"(bytes) : "memory");
}

// The same at the barrier of that offset in CTA `rank` of this cluster.
__device__ __forceinline__ void arrive_and_expect_remote(Barrier* barrier, u32 rank, u32 bytes) {
    asm volatile(
        "{ .reg .b32 remote;\n"
        "mapa.shared::cluster.u32 remote, %0, %1;\n"
        "mbarrier.arrive.expect_tx.relaxed.cluster.shared::cluster.b64 _, [remote], %2; }"
        :: "r"(address(barrier)), "r"(rank), "r"(bytes) : "memory");
}

// Sleeps in hardware until the phase of this parity is over; try_wait may give up early, hence the
// loop.
__device__ __forceinline__ void wait(Barrier* barrier, u32 parity) {
    asm volatile(
        "{ .reg .pred over;\n"
        "again: mbarrier.try_wait.parity.shared::cta.b64 over, [%0], %1;\n"
        "@!over bra again; }"
        :: "r"(address(barrier)), "r"(parity) : "memory");
}

// Whether that phase is over, without waiting for it.
__device__ __forceinline__ bool over(Barrier* barrier, u32 parity) {
    u32 yes;
    asm volatile(
        "{ .reg .pred over;\n"
        "mbarrier.test_wait.parity.shared::cta.b64 over, [%1], %2;\n"
        "selp.u32 %0, 1, 0, over; }"
        : "=r"(yes) : "r"(address(barrier)), "r"(parity) : "memory");
    return yes;
}

}  // namespace mbarrier
