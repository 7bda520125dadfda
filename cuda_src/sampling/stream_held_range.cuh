// About where a nucleus ends, told by samples of its row.
#pragma once

#include "common/math.cuh"
#include "common/warp.cuh"

// By one warp, of samples counted by parts of equal width up to the row's maximum, eight parts a lane. Places
// are in parts; a negative one is beyond all samples.
struct SampledRange {
    static constexpr int PARTS = 256;
    static constexpr f32 MOST_AROUND = 128.0f;

    f32 low, high;

    // Around the place where the samples' mass from below passes `dropped`, as many samples on either side as
    // chance may have moved it. `width` of a part, in powers of e between weights.
    __device__ __forceinline__ static SampledRange of(const f32 (&n)[8], f32 dropped, f32 width) {
        const f32 step = width * 1.44269504f;
        const f32 lowest = (f32(warp::lane() * 8 - PARTS) + 0.5f) * step;
        f32 mass = 0.0f, count = 0.0f;
#pragma unroll
        for (int i = 0; i < 8; ++i) mass += n[i] * ptx::ex2(lowest + i * step), count += n[i];
        f32 left = dropped - (scan(mass) - mass), below = 0.0f, square = 0.0f, last = 0.0f;
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            const f32 weight = ptx::ex2(lowest + i * step);
            const f32 part = fmaxf(0.0f, fminf(n[i], left * ptx::ex2(-lowest - i * step)));
            below += part, square += part * weight * weight;
            if (part > 0.0f) last = weight;
            left -= n[i] * weight;
        }
        below = added(below), square = added(square), last = most(last);
        const f32 around = fminf(MOST_AROUND, 8.0f + 4.5f * sqrtf(square) / last);
        const f32 before = scan(count) - count;
        return {place(n, before, below - around), place(n, before, below + around)};
    }

    // Where the sample of this order lies. `before`: samples in the lanes before this one.
    __device__ __forceinline__ static f32 place(const f32 (&n)[8], f32 before, f32 order) {
        f32 part = -1.0f, left = 0.0f, of = 1.0f;
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            if (before <= order && order < before + n[i])
                part = f32(warp::lane() * 8 + i), left = order - before, of = n[i];
            before += n[i];
        }
        return most(part + __fdividef(left, of));
    }

    __device__ __forceinline__ static f32 scan(f32 x) {
#pragma unroll
        for (int i = 1; i < 32; i *= 2) {
            const f32 below = __shfl_up_sync(0xffffffff, x, i);
            if (warp::lane() >= i) x += below;
        }
        return x;
    }
    __device__ __forceinline__ static f32 added(f32 x) {
#pragma unroll
        for (int i = 16; i; i /= 2) x += __shfl_xor_sync(0xffffffff, x, i);
        return x;
    }
    __device__ __forceinline__ static f32 most(f32 x) {
#pragma unroll
        for (int i = 16; i; i /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffff, x, i));
        return x;
    }
};
