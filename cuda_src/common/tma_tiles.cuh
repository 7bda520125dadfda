// TMA copies of boxes of tensors with five dimensions; loads to one CTA or to several of a cluster.
#pragma once

#include "common/tma.cuh"

namespace tma {

// Where a box starts: elements, innermost first.
struct At {
    i32 x, y, z, w, v;
};

// Brings a box into L2.
__device__ __forceinline__ void prefetch(const TensorMap& map, At at) {
    asm volatile("cp.async.bulk.prefetch.tensor.5d.L2.global.tile [%0, {%1, %2, %3, %4, %5}];"
                 :: "l"(&map), "r"(at.x), "r"(at.y), "r"(at.z), "r"(at.w), "r"(at.v) : "memory");
}

__device__ __forceinline__ void load(void* to, const TensorMap& map, Barrier* full, At at) {
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes"
        " [%0], [%1, {%3, %4, %5, %6, %7}], [%2];"
        :: "r"(address(to)), "l"(&map), "r"(address(full)), "r"(at.x), "r"(at.y), "r"(at.z),
           "r"(at.w), "r"(at.v) : "memory");
}

__device__ __forceinline__ void load_multicast(void* to, const TensorMap& map, Barrier* full,
                                               u16 mask, At at) {
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes"
        ".multicast::cluster [%0], [%1, {%4, %5, %6, %7, %8}], [%2], %3;"
        :: "r"(address(to)), "l"(&map), "r"(address(full)), "h"(mask), "r"(at.x), "r"(at.y),
           "r"(at.z), "r"(at.w), "r"(at.v) : "memory");
}

__device__ __forceinline__ void store(const TensorMap& map, const void* from, At at) {
    asm volatile("cp.async.bulk.tensor.5d.global.shared::cta.bulk_group"
                 " [%0, {%2, %3, %4, %5, %6}], [%1];"
                 :: "l"(&map), "r"(address(from)), "r"(at.x), "r"(at.y), "r"(at.z), "r"(at.w),
                    "r"(at.v) : "memory");
}

}  // namespace tma
