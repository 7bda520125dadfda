// Bulk copies: one thread moves contiguous bytes from global to shared memory, no tensor map.
//
// Addresses and sizes are multiples of 16 bytes.
#pragma once

#include "common/mbarrier.cuh"

namespace bulk {

__device__ __forceinline__ void load(void* to, const void* from, u32 bytes,
                                     mbarrier::Barrier* full) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
                 " [%0], [%1], %2, [%3];"
                 :: "r"(mbarrier::address(to)), "l"(from), "r"(bytes),
                    "r"(mbarrier::address(full)) : "memory");
}

// The same for bytes that are read once: they are the first to leave L2.
__device__ __forceinline__ void load_once(void* to, const void* from, u32 bytes,
                                          mbarrier::Barrier* full) {
    asm volatile("{ .reg .b64 first;\n"
                 "createpolicy.fractional.L2::evict_first.b64 first, 1.0;\n"
                 "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
                 " [%0], [%1], %2, [%3], first; }"
                 :: "r"(mbarrier::address(to)), "l"(from), "r"(bytes),
                    "r"(mbarrier::address(full)) : "memory");
}

}  // namespace bulk
