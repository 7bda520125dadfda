// Where the nucleus of a whole row ends, as the sketch of its first reading tells.
#pragma once

#include "sampling/stream_row.cuh"

// Keys between which the nucleus of a whole row ends, if the sketch tells, and about how many tokens
// reach them. High 0: it does not tell.
struct Edge {
    u32 low = 0, high = 0, tokens = 0;
};

template <class Row> struct EdgeFinder {
    static constexpr int WARPS = Row::WARPS, THREADS = WARPS * 32;

    const Row& row;
    typename Row::Shared& s;
    const Weigh weigh;
    const f32 top_p;

    // From below, where weights are small and samples tell much: what is dropped is at most all - need,
    // give or take three standard deviations, or what fits the list.
    __device__ __forceinline__ Edge find(u64 all) {
        constexpr u32 LAST = Sketch::PARTS - 1, FITS = LIST / 8 * 7 / Sketch::OF;
        const Sketch sketch = s.shape;
        if (sketch.scale == 0.0f) return {};
        const u64 below = all - fraction(top_p, all);
        for (u32 i = threadIdx.x; i <= LAST; i += THREADS)
            s.bins.set(LAST - i, s.sketch[i] * Sketch::OF * mass_of(weigh(sketch.middle(i))));
        const u32 part = part_of(below);
        const f32 spread = fminf(0.5f, 3.0f * deviation(sketch, part, below));
        u32 first = part_of(u64(f32(below) * (1.0f - spread)));
        u32 last = part_of(u64(f32(below) * (1.0f + spread)));
        u64 both = 0;  // counts inside, and from the first part on
        for (u32 i = threadIdx.x; i <= LAST; i += THREADS)
            both += i < first ? 0 : i > last ? s.sketch[i] : s.sketch[i] * ((1ull << 32) + 1);
        both = team::cta_sum<WARPS>(both, s.sums[1]);
        __syncthreads();
        if (const u32 inside = u32(both >> 32); inside > FITS) {
            first = part - (part - first) * FITS / inside;
            last = part + (last - part) * FITS / inside;
        }
        if (first == 0 || last >= LAST) return {};
        const i32 end = i32(threadIdx.x & 1 ? last + 1 : first);
        const u32 edge = first_key(key::NOTHING + 1, row.top, [&](u32 k) {
            return sketch.part(key::value(k)) >= end;
        });
        const u32 low = __shfl_sync(0xffffffff, edge, 0), high = __shfl_sync(0xffffffff, edge, 1) - 1;
        return {low, high, u32(both) * Sketch::OF};
    }

    // The sketch's part up to which its mass passes `below`.
    __device__ __forceinline__ u32 part_of(u64 below) {
        s.bins.find(below + 1);
        return Sketch::PARTS - 1 - s.bins.found;
    }

    // Of the mass of the parts up to one, as the samples have it, relative to `below`.
    __device__ __forceinline__ f32 deviation(const Sketch& sketch, u32 part, u64 below) {
        const f32 scale = 65536.0f * MASS_UNIT / fmaxf(f32(below), 1.0f);
        u64 sum = 0;
        for (u32 i = threadIdx.x; i <= part; i += THREADS) {
            const f32 w = weigh(sketch.middle(i)) * scale;
            sum += u64(fminf(f32(s.sketch[i] * Sketch::OF * (Sketch::OF - 1)) * w * w, 1e15f));
        }
        sum = team::cta_sum<WARPS>(sum, s.sums[1]);
        __syncthreads();
        return sqrtf(f32(sum)) / 65536.0f;
    }
};
