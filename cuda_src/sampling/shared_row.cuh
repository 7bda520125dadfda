// What the CTAs of a cluster keep beside their parts of a row.
#pragma once

#include "sampling/team.cuh"

template <int THREADS, int CLUSTER, int CANDIDATES> struct alignas(16) SharedRow {
    static constexpr int WARPS = THREADS / 32, PIVOTS = 3;
    // Per CTA: lanes of a warp share a group where threads outnumber groups.
    static constexpr int GROUPS = THREADS * CLUSTER < CANDIDATES ? THREADS : CANDIDATES / CLUSTER;
    static_assert(GROUPS * 32 >= THREADS, "a group is at most a warp");

    u32 maxima[CLUSTER][GROUPS];  // of everyone's groups, as keys
    u32 key[CANDIDATES], token[CANDIDATES];  // the list, in CTA 0
    f32 weight[CANDIDATES];
    u64 slots[2][WARPS], warp_mass[WARPS], sums[PIVOTS][WARPS];
    team::Board<PIVOTS, CLUSTER> board;
    u32 nan[CLUSTER];
    u32 listed, drawn;
};
