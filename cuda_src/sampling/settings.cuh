// What a row is sampled with: one value per row, or one for all where the array is null.
#pragma once

#include "common/types.cuh"

template <class T> __device__ __forceinline__ T setting(const T* per_row, i64 row, T all) {
    return per_row ? per_row[row] : all;
}

struct Settings {
    f32 temperature, top_p, min_p;
    i32 top_k;  // 0: off
    u64 seed;
    i64 position;

    // At or below this temperature (NaN included) the most probable token is taken.
    __device__ __forceinline__ bool greedy() const { return !(temperature > 1e-5f); }
};
