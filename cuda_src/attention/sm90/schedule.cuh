// Which tile of queries comes next.
//
// Tiles are numbered so that the longest come first (with a causal mask, the last queries see the most
// keys) and so that those at work at the same time share keys in L2: `section` heads are finished
// before the next ones start. Persistent CTAs take them by turns, forwards and backwards: who got the
// longest of one round gets the shortest of the next.
#pragma once

#include "common/types.cuh"

namespace attention {

struct Tile {
    i32 m, head, batch;
};

struct Schedule {
    i32 m_tiles, heads, batch, section;

    __device__ __forceinline__ i32 count() const { return m_tiles * heads * batch; }

    // The tile of worker `worker` of `workers` in round `round`; too large if there is none.
    static __device__ __forceinline__ i32 turn(i32 round, i32 worker, i32 workers) {
        return round * workers + (round % 2 ? workers - 1 - worker : worker);
    }

    __device__ __forceinline__ Tile at(i32 index) const {
        const i32 pairs = heads * batch, first = index / (m_tiles * section) * section;
        const i32 width = min(section, pairs - first), within = index - first * m_tiles;
        const i32 pair = first + within % width;
        return {m_tiles - 1 - within / width, pair % heads, pair / heads};
    }
};

}  // namespace attention
