// Which tile of C comes next: an order kind to L2.
//
// Clusters take tiles in the order of their numbers. Numbered row by row, the hundred or so in flight
// would read one strip of A and all of B; in groups of `group` tile rows, walked column by column,
// they read a near-square patch: fewer distinct strips, so more of what TMA asks for is in L2.
#pragma once

#include "common/types.cuh"

namespace tiles {

struct Tile {
    i32 m, n, z;  // in units of cluster tiles; z is the batch
};

struct Schedule {
    i32 rows, cols, batch;  // cluster tiles
    i32 group;              // rows walked together

    __device__ __forceinline__ i32 count() const { return rows * cols * batch; }

    __device__ __forceinline__ Tile at(i32 index) const {
        const i32 z = index / (rows * cols), in_batch = index - z * rows * cols;
        const i32 strip = in_batch / (group * cols), first = strip * group;
        const i32 height = min(rows - first, group), in_strip = in_batch - strip * group * cols;
        return {first + in_strip % height, in_strip / height, z};
    }
};

}  // namespace tiles
