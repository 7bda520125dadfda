// TMA loads of boxes of tensors with four and five dimensions, to one CTA or to several of a cluster.
#pragma once

#include "common/tma.cuh"

namespace tma {

// Where a box starts: elements, innermost first.
struct At {
    i32 x, y, z, w, v;
};

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

}  // namespace tma
