// Which tile of C a CTA computes.
//
// CTAs with neighbouring numbers run at the same time. In row-major order those of one wave span a
// row of tiles: they share one strip of A, and all of B passes through L2 for each row. In groups of
// GROUP tile rows, walked column by column, a wave covers a block that is about as high as wide and
// needs the fewest distinct strips.
#pragma once

#include "common/types.cuh"

namespace sm80 {

struct TileIndex { u32 m, n; };

template <u32 GROUP> __device__ __forceinline__ TileIndex raster(u32 cta, u32 tiles_m, u32 tiles_n) {
    const u32 first = cta / (GROUP * tiles_n) * GROUP, rows = min(GROUP, tiles_m - first);
    const u32 within = cta - first * tiles_n;
    return {first + within % rows, within / rows};
}

}  // namespace sm80
