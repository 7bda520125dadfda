// TMA loads of boxes of three dimensions for CTAs that multiply alone or in pairs, and alone in their
// cluster or together with others.
#pragma once

#include "common/cluster.cuh"
#include "common/tma.cuh"

namespace tma {

__device__ __forceinline__ void load_pair(void* to, const TensorMap& map, u32 full, int x, int y,
                                          int z) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.cta_group::2"
        " [%0], [%1, {%3, %4, %5}], [%2];"
        :: "r"(address(to)), "l"(&map), "r"(full), "r"(x), "r"(y), "r"(z) : "memory");
}

__device__ __forceinline__ void load_pair_multicast(void* to, const TensorMap& map, u32 full,
                                                    u16 mask, int x, int y, int z) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
        ".multicast::cluster.cta_group::2 [%0], [%1, {%4, %5, %6}], [%2], %3;"
        :: "r"(address(to)), "l"(&map), "r"(full), "h"(mask), "r"(x), "r"(y), "r"(z) : "memory");
}

// A box for this CTA (SHARED false), or for all whose bit is set in `mask`. Its bytes are counted at
// `full` there, with CTAS 2 at that of the even CTA of each pair.
template <int CTAS, bool SHARED>
__device__ __forceinline__ void load_group(void* to, const TensorMap& map, Barrier* full, u16 mask,
                                           int x, int y, int z) {
    if constexpr (CTAS == 1) {
        if constexpr (SHARED) load_multicast(to, map, full, mask, x, y, z);
        else load(to, map, full, x, y, z);
    } else {
        const u32 leaders = cluster::map(address(full), cluster::rank() & ~1u);
        if constexpr (SHARED) load_pair_multicast(to, map, leaders, mask, x, y, z);
        else load_pair(to, map, leaders, x, y, z);
    }
}

}  // namespace tma
