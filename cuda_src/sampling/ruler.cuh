// A range of keys in 1024 parts: of equal width between the values of its ends, or of keys where those
// are few or their values too close or too far apart to tell.
#pragma once

#include "sampling/key.cuh"

// The least key from `low` to `high` that passes, where all above one that does pass too; high + 1 if
// none does.
template <class Passes> __device__ __forceinline__ u32 first_key(u32 low, u32 high, Passes passes) {
    u64 least = low, most = u64(high) + 1;
    while (least < most) {
        const u32 half = u32((least + most) / 2);
        if (passes(half)) most = half;
        else least = u64(half) + 1;
    }
    return u32(least);
}

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
        return first_key(low, high, [&](u32 k) { return this->part(key::value(k), k) >= part; });
    }
};

// Before a row's maximum is known: parts of equal width around that of a few samples, 64 for each
// factor of e between weights, twelve of which lie below it and four above. One token of eight is counted:
// counters in shared memory take about one token a clock.
struct Sketch {
    static constexpr u32 PARTS = Ruler::PARTS, OF = 8;

    f32 scale = 0.0f, origin = 0.0f;  // 0: none

    __device__ __forceinline__ static Sketch around(f32 sample, f32 temperature) {
        const f32 scale = 64.0f / temperature;
        return {scale, (sample > -INF ? sample * scale : 0.0f) - 768.0f};
    }
    // Never falls as x grows; negative below all parts, and the last for all above.
    __device__ __forceinline__ i32 part(f32 x) const {
        const f32 place = fmaf(x, scale, -origin);
        return place >= 0.0f ? i32(fminf(place, PARTS - 1.0f)) : -1;
    }
    __device__ __forceinline__ f32 from(u32 part) const { return (origin + f32(part)) / scale; }
    __device__ __forceinline__ f32 middle(u32 part) const {
        return (origin + (f32(part) + 0.5f)) / scale;
    }
};
