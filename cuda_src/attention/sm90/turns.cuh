// Warpgroups take turns at starting products, so that one's softmax falls under the others' products.
#pragma once

#include "common/types.cuh"
#include "common/warp.cuh"

namespace attention {

// Warpgroup `wg` of WGS. Uses named barriers 1 to WGS, or does nothing unless ON.
template <int WGS, bool ON> struct Turns {
    int wg;

    // By all: the last one gives the first its turn.
    __device__ __forceinline__ void begin() const {
        if (wg == WGS - 1) pass();
    }
    __device__ __forceinline__ void await() const {
        if constexpr (ON) warp::sync(1 + wg, 2 * warp::GROUP);
    }
    __device__ __forceinline__ void pass() const {
        if constexpr (ON) warp::arrive(wg + 1 == WGS ? 1 : 2 + wg, 2 * warp::GROUP);
    }
    // Once all have had as many: the first one takes the turn that nobody needs.
    __device__ __forceinline__ void settle() const {
        if (wg == 0) await();
    }
};

}  // namespace attention
