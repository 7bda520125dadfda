// Cluster launch control: running clusters take over those that have not started.
//
// The grid is launched as if each cluster worked on one tile. A cluster that is done with its tile
// asks for another one's place: if some cluster has not started yet, it never will, and the asker
// gets its coordinates. So work goes to whoever is free, and nobody pays for a launch.
//
// The answer lands in 16 bytes of shared memory, written like a copy by TMA: an mbarrier counts its
// bytes, and whoever has read the old answer makes that known to the async proxy
// (tma::fence_shared) before the place is used again. After the first "no" nobody may ask again.
//
// Needs -arch=sm_100a.
#pragma once

#include "common/mbarrier.cuh"
#include "common/types.cuh"

namespace clc {

using mbarrier::address;
using mbarrier::Barrier;

struct alignas(16) Answer {
    u64 opaque[2];
};

// Asks for a cluster. The answer goes to the same offset of every CTA of this one, where 16 bytes
// are counted at `full`; they all must be alive.
__device__ __forceinline__ void ask(Answer* answer, Barrier* full) {
    asm volatile(
        "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes"
        ".multicast::cluster::all.b128 [%0], [%1];"
        :: "r"(address(answer)), "r"(address(full)) : "memory");
}

// Whether there was one, and then blockIdx.x of its first CTA.
__device__ __forceinline__ bool read(const Answer* answer, i32& block) {
    u32 taken;
    asm volatile(
        "{ .reg .b128 answer;\n.reg .pred taken;\n"
        "ld.shared.b128 answer, [%2];\n"
        "clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 taken, answer;\n"
        "selp.u32 %0, 1, 0, taken;\n"
        "mov.u32 %1, 0;\n"
        "@taken clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 %1, answer; }"
        : "=r"(taken), "=r"(block) : "r"(address(answer)) : "memory");
    return taken != 0;
}

}  // namespace clc
