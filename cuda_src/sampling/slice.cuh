// A CTA's part of a row of logits, read once into shared memory as f32.
#pragma once

#include "common/vec.cuh"
#include "sampling/key.cuh"

// Where a CTA's part of a row begins and how long it is. Parts are multiples of 32 tokens, the tokens
// of one word of a bitmask.
struct Part {
    i32 first, count;

    __device__ __forceinline__ Part(i32 V, int rank, int parts) {
        const i32 share = (V / parts + (V % parts != 0) + 31) / 32 * 32;
        first = i32(min(i64(rank) * share, i64(V)));
        count = min(share, V - first);
    }
    __device__ __forceinline__ int quads() const { return (count + 3) / 4; }
};

// Which tokens a bitmask allows: bit t % 32 of word t / 32. No words: all.
struct Allowed {
    const u32* words;

    __device__ __forceinline__ bool operator()(i32 token) const {
        return !words || words[token / 32] >> token % 32 & 1;
    }
};

// Stores in pieces of at most 16 bytes.
template <int N> __device__ __forceinline__ void put(f32* to, const Vec<f32, N>& x) {
    constexpr int PIECE = N < 4 ? N : 4;
#pragma unroll
    for (int i = 0; i < N; i += PIECE)
        *reinterpret_cast<Vec<f32, PIECE>*>(to + i) = *reinterpret_cast<const Vec<f32, PIECE>*>(
            &x.lane[i]);
}

// What a thread saw of its tokens: the largest, and whether one was a NaN.
struct Loaded {
    f32 best = -INF;
    bool nan = false;
};

// Copies a part into `to`, NaNs and forbidden tokens as -infinity, and fills the last quad with
// -infinity.
template <class T, int VEC, int THREADS>
__device__ __forceinline__ Loaded load_part(f32* to, const T* row, Part part, Allowed allowed) {
    // Half the registers that a thread has where CTAs of 256 threads share an SM in threes.
    constexpr int UNROLL = THREADS > 256 || sizeof(T) < 4 ? 4 : 8;
    using V = Vec<T, VEC>;
    const V* from = reinterpret_cast<const V*>(row + part.first);
    const int vectors = part.count / VEC;
    Loaded seen;
    for (int base = threadIdx.x; base < vectors; base += THREADS * UNROLL) {
        V v[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; ++u)
            if (base + u * THREADS < vectors) v[u] = load<Cache::stream>(from + base + u * THREADS);
#pragma unroll
        for (int u = 0; u < UNROLL; ++u)
            if (const int i = base + u * THREADS; i < vectors) {
                Vec<f32, VEC> x;
#pragma unroll
                for (int j = 0; j < VEC; ++j) {
                    const f32 logit = to_f32(v[u].lane[j]);
                    const bool may = allowed(part.first + i * VEC + j);
                    seen.nan |= may && logit != logit;
                    x.lane[j] = may ? key::clean(logit) : -INF;
                    seen.best = fmaxf(seen.best, x.lane[j]);
                }
                put(to + i * VEC, x);
            }
    }
    for (int i = vectors * VEC + threadIdx.x; i < part.quads() * 4; i += THREADS) {
        const f32 logit = i < part.count ? to_f32(row[part.first + i]) : -INF;
        const bool may = i < part.count && allowed(part.first + i);
        seen.nan |= may && logit != logit;
        to[i] = may ? key::clean(logit) : -INF;
        seen.best = fmaxf(seen.best, to[i]);
    }
    return seen;
}
