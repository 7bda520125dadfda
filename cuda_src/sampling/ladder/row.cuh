// A row of logits as the rungs of the ladder see it: left in global memory, read by one CTA as often as
// a rung needs.
//
// Whatever a rung does to find the lowest logit that is kept, it ends here: the draw is the first token,
// in the order of the vocabulary, at which the running sum of kept mass passes the row's Philox number.
// So rungs that keep the same tokens draw the same one.
#pragma once

#include "common/vec.cuh"
#include "sampling/ladder/cta.cuh"
#include "sampling/mass.cuh"
#include "sampling/philox.cuh"
#include "sampling/settings.cuh"

template <class T, int THREADS> struct Row {
    Cta<THREADS>& cta;
    const T* logits;
    u32 V;
    Settings settings;  // top_k 0: off
    u32 top;            // the largest key

    __device__ __forceinline__ Row(Cta<THREADS>& cta, const T* logits, u32 V, Settings settings)
        : Row(cta, logits, V, settings, 0) {
        top = u32(cta.largest(V, [&](u32 i) { return key(i); }));
    }

    __device__ __forceinline__ Row(Cta<THREADS>& cta, const T* logits, u32 V, Settings settings, u32 top)
        : cta(cta), logits(logits), V(V), settings(settings), top(top) {}

    __device__ __forceinline__ f32 value(u32 i) const { return key::clean(to_f32(logits[i])); }
    __device__ __forceinline__ u32 key(u32 i) const { return key::of(value(i)); }
    __device__ __forceinline__ bool empty() const { return top <= key::NOTHING; }
    __device__ __forceinline__ bool greedy() const {
        return settings.greedy() || top == key::of(LARGEST);
    }
    __device__ __forceinline__ u32 k() const { return greedy() ? 1 : settings.top_k; }
    __device__ __forceinline__ f32 p() const { return greedy() ? 1.0f : settings.top_p; }

    __device__ __forceinline__ Weigh weigher() const {
        return Weigh(key::value(top), greedy() ? 1.0f : settings.temperature, weight_unit(V));
    }

    // The mass of all tokens at or above a key.
    __device__ __forceinline__ u64 mass(u32 limit, const Weigh& weigh) {
        return cta.sum(V, [&](u32 i) {
            const f32 x = value(i);
            return key::of(x) >= limit ? mass_of(weigh(x)) : 0;
        });
    }

    // What the nucleus must reach, of the mass that top-k kept or of the whole row's.
    __device__ __forceinline__ u64 needed(u64 kept, bool joint, const Weigh& weigh) {
        return fraction(p(), joint ? mass(0, weigh) : kept);
    }

    // The row's number in [0, below), the same for all rungs.
    __device__ __forceinline__ u64 random(u64 below, u32 round = 0) const {
        if (greedy()) return 0;
        return __umul64hi(philox::wide(philox::words(settings.seed, settings.position, round,
                                                     philox::Domain::draw)), below);
    }

    __device__ __forceinline__ u32 draw(u32 limit, const Weigh& weigh, u64 rest) {
        return cta.first_beyond(V, rest, [&](u32 i) {
            const f32 x = value(i);
            return key::of(x) >= limit ? mass_of(weigh(x)) : 0;
        });
    }
};

// What a rung leaves of a row: its token, and where asked for the logit that all kept tokens reach.
struct Answer {
    i64* ids;
    f32* limits;  // or null

    __device__ __forceinline__ void write(i64 row, u32 token, u32 limit) const {
        if (threadIdx.x) return;
        ids[row] = token;
        if (limits) limits[row] = key::value(limit);
    }
    __device__ __forceinline__ void nothing(i64 row) const { write(row, 0, key::of(INF)); }
};
