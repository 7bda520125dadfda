// A range of keys in 1024 parts: of equal width between the values of its ends, or of keys where those
// are few or their values too close or too far apart to tell.
#pragma once

#include "sampling/key.cuh"

struct Ruler {
    static constexpr u32 PARTS = 1024;

    u32 low, high, shift;
    f32 from, scale;  // scale 0: parts of 2^shift keys

    __device__ __forceinline__ Ruler(u32 low, u32 high) : low(low), high(high) {
        from = key::value(low);
        const f32 width = key::value(high) - from;
        shift = max(0, 22 - __clz(high - low));
        scale = shift && width > 1e-30f && width < 1e37f ? (PARTS - 0.5f) / width : 0.0f;
    }

    // Never falls as x grows. For keys of the range.
    __device__ __forceinline__ u32 part(f32 x, u32 key) const {
        return scale > 0.0f ? min(PARTS - 1, u32((x - from) * scale)) : (key - low) >> shift;
    }

    // A value amid a part.
    __device__ __forceinline__ f32 middle(u32 part) const {
        if (scale > 0.0f) return from + (f32(part) + 0.5f) / scale;
        return key::value(min(high, low + (part << shift) + ((1u << shift) >> 1)));
    }

    // The least key of the range in this part or a later one; high + 1 if there is none.
    __device__ __forceinline__ u32 first(u32 part) const {
        u64 least = low, most = u64(high) + 1;
        while (least < most) {
            const u32 half = u32((least + most) / 2);
            if (this->part(key::value(half), half) >= part) most = half;
            else least = u64(half) + 1;
        }
        return u32(least);
    }
};
