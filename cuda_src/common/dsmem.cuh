// Distributed shared memory: words stored into, and counters kept in, another CTA of the cluster.
//
// Addresses are those of cluster::map. What is stored is seen after the next cluster::sync.
#pragma once

#include "common/cluster.cuh"

namespace dsmem {

// The address of the same variable in CTA `rank`.
template <class T> __device__ __forceinline__ u32 at(const T* shared, u32 rank) {
    return cluster::map(static_cast<u32>(__cvta_generic_to_shared(shared)), rank);
}

__device__ __forceinline__ void store(u32 remote, u32 value) {
    asm volatile("st.shared::cluster.u32 [%0], %1;" :: "r"(remote), "r"(value) : "memory");
}

__device__ __forceinline__ void store(u32 remote, u64 value) {
    asm volatile("st.shared::cluster.u64 [%0], %1;" :: "r"(remote), "l"(value) : "memory");
}

// The same, announced to an mbarrier of that CTA, which expects 8 bytes for it: no fence, so nobody
// waits for what else is on its way, as a barrier of the cluster does.
__device__ __forceinline__ void store_async(u32 remote, u64 value, u32 remote_barrier) {
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u64 [%0], %1, [%2];"
                 :: "r"(remote), "l"(value), "r"(remote_barrier) : "memory");
}

// The same of 4 bytes.
__device__ __forceinline__ void store_async(u32 remote, u32 value, u32 remote_barrier) {
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];"
                 :: "r"(remote), "r"(value), "r"(remote_barrier) : "memory");
}

__device__ __forceinline__ u32 load(u32 remote) {
    u32 value;
    asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(value) : "r"(remote) : "memory");
    return value;
}

// A word of this CTA that other threads may change meanwhile.
__device__ __forceinline__ u32 look(const u32* shared) {
    u32 value;
    asm volatile("ld.relaxed.cta.shared::cta.u32 %0, [%1];" : "=r"(value)
                 : "r"(u32(__cvta_generic_to_shared(shared))) : "memory");
    return value;
}

// The counter's value before.
__device__ __forceinline__ u32 add(u32 remote, u32 value) {
    u32 before;
    asm volatile("atom.shared::cluster.add.u32 %0, [%1], %2;"
                 : "=r"(before) : "r"(remote), "r"(value) : "memory");
    return before;
}

}  // namespace dsmem
