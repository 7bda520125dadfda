// Thread block clusters: CTAs on neighbouring SMs that see each other's shared memory.
#pragma once

#include "common/types.cuh"

namespace cluster {

__device__ __forceinline__ u32 rank() {
    u32 r;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
    return r;
}

// All threads of all CTAs of the cluster meet; memory operations before are visible after. The last
// one of a kernel also keeps every CTA alive until nobody reaches into its shared memory any more.
__device__ __forceinline__ void sync() {
    asm volatile("barrier.cluster.arrive.release.aligned;\n"
                 "barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// The two halves of sync, for what can be done while others are on their way. What must be over
// when they pass comes before `arrive`, whose ordering waits for this thread's stores: put the slow
// ones after it.
__device__ __forceinline__ void arrive() {
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
__device__ __forceinline__ void wait() {
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// Arrives without the memory ordering: a barrier that only tells that a CTA has started.
__device__ __forceinline__ void arrive_only() {
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}

// The same meeting without the memory ordering, which costs a MEMBAR.ALL.GPU: for barriers that only
// keep CTAs from running ahead (after mbarrier::fence_init) or from leaving.
__device__ __forceinline__ void meet() {
    asm volatile("barrier.cluster.arrive.relaxed.aligned;\n"
                 "barrier.cluster.wait.aligned;" ::: "memory");
}

// The shared::cluster address of the same shared-memory offset in CTA `rank`.
__device__ __forceinline__ u32 map(u32 shared_address, u32 rank) {
    u32 remote;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(shared_address), "r"(rank));
    return remote;
}

__device__ __forceinline__ float4 load4(u32 remote) {
    float4 v;
    asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "r"(remote) : "memory");
    return v;
}

}  // namespace cluster
