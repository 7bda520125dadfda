// TMA, the tensor memory accelerator: one thread moves a box of a tensor to or from shared memory.
//
// Coordinates are in elements, innermost first. Boxes may hang over the tensor's edge: loads fill
// with zeros (and still count the whole box's bytes), stores leave out what is outside. Shared
// memory that other threads wrote needs `fence_shared` before a store reads it.
#pragma once

#include "common/mbarrier.cuh"

// What the driver (or the emulator) encodes of a tensor; a `const __grid_constant__` parameter.
struct alignas(64) TensorMap {
    char opaque[128];
};

namespace tma {

using mbarrier::address;
using mbarrier::Barrier;

__device__ __forceinline__ void prefetch(const TensorMap& map) {
    asm volatile("prefetch.tensormap [%0];" :: "l"(&map) : "memory");
}

__device__ __forceinline__ void load(void* to, const TensorMap& map, Barrier* full, int x, int y) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
        " [%0], [%1, {%3, %4}], [%2];"
        :: "r"(address(to)), "l"(&map), "r"(address(full)), "r"(x), "r"(y) : "memory");
}

__device__ __forceinline__ void load(void* to, const TensorMap& map, Barrier* full, int x, int y,
                                     int z) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
        " [%0], [%1, {%3, %4, %5}], [%2];"
        :: "r"(address(to)), "l"(&map), "r"(address(full)), "r"(x), "r"(y), "r"(z) : "memory");
}

// The same box into the same offset of every CTA whose bit is set in `mask`; each gets the bytes
// counted at its own barrier.
__device__ __forceinline__ void load_multicast(void* to, const TensorMap& map, Barrier* full,
                                               u16 mask, int x, int y) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
        ".multicast::cluster [%0], [%1, {%4, %5}], [%2], %3;"
        :: "r"(address(to)), "l"(&map), "r"(address(full)), "h"(mask), "r"(x), "r"(y) : "memory");
}

__device__ __forceinline__ void load_multicast(void* to, const TensorMap& map, Barrier* full,
                                               u16 mask, int x, int y, int z) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
        ".multicast::cluster [%0], [%1, {%4, %5, %6}], [%2], %3;"
        :: "r"(address(to)), "l"(&map), "r"(address(full)), "h"(mask), "r"(x), "r"(y), "r"(z)
        : "memory");
}

// The same for a pair of CTAs that multiply together (tcgen05.cuh): `full` is the shared::cluster
// address of a barrier in the CTA where the box goes or in its partner (cluster::map). With a mask,
// each pair's bytes are counted at the barrier of that offset in its CTA of the same parity.
__device__ __forceinline__ void load_pair(void* to, const TensorMap& map, u32 full, int x, int y) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.cta_group::2"
        " [%0], [%1, {%3, %4}], [%2];"
        :: "r"(address(to)), "l"(&map), "r"(full), "r"(x), "r"(y) : "memory");
}

__device__ __forceinline__ void load_pair_multicast(void* to, const TensorMap& map, u32 full,
                                                    u16 mask, int x, int y) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
        ".multicast::cluster.cta_group::2 [%0], [%1, {%4, %5}], [%2], %3;"
        :: "r"(address(to)), "l"(&map), "r"(full), "h"(mask), "r"(x), "r"(y) : "memory");
}

__device__ __forceinline__ void store(const TensorMap& map, const void* from, int x, int y) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];"
                 :: "l"(&map), "r"(address(from)), "r"(x), "r"(y) : "memory");
}

__device__ __forceinline__ void store(const TensorMap& map, const void* from, int x, int y, int z) {
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];"
                 :: "l"(&map), "r"(address(from)), "r"(x), "r"(y), "r"(z) : "memory");
}

// Stores of this thread since the last commit form a group.
__device__ __forceinline__ void commit() {
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// At most N groups still read their shared memory: older sources may be written again.
template <int N> __device__ __forceinline__ void wait_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" :: "n"(N) : "memory");
}

// All groups are complete, their writes to global memory included.
__device__ __forceinline__ void wait_all() {
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

// What this thread wrote to shared memory becomes visible to TMA and to MMAs that read it there;
// what it has read there may be written over, after a barrier.
__device__ __forceinline__ void fence_shared() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

}  // namespace tma
