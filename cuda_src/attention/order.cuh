// In which order tiles of queries are worked on.
//
// Tiles are numbered so that the longest come first: with a causal mask, the last queries see the most
// keys. `section` heads are finished before the next ones start, so that those at work at the same time
// share keys in L2.
#pragma once

#include "common/types.cuh"

namespace attention {

struct Tile {
    i32 m, head, batch;
};

struct Order {
    i32 m_tiles, heads, batch, section;

    __device__ __forceinline__ i32 count() const { return m_tiles * heads * batch; }

    __device__ __forceinline__ Tile at(i32 index) const {
        const i32 pairs = heads * batch, first = index / (m_tiles * section) * section;
        const i32 width = min(section, pairs - first), within = index - first * m_tiles;
        const i32 pair = first + within % width;
        return {m_tiles - 1 - within / width, pair % heads, pair / heads};
    }
};

}  // namespace attention
