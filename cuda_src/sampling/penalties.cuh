// Frequency, presence and repetition penalties on the logits of a row in shared memory.
//
// Row r's tokens and how often they occurred are entries offsets[r] to offsets[r + 1] of a CSR list,
// every token at most once; tokens outside the vocabulary (padding of -1) are skipped. A token that
// occurred (count > 0) is first divided by `repetition` (multiplied, if negative), then loses
// frequency * count + presence. Count 0 marks a token of the prompt: repetition alone applies.
#pragma once

#include "sampling/settings.cuh"
#include "sampling/slice.cuh"

struct Penalties {
    const i32 *offsets, *tokens, *counts;
    const f32 *frequency, *presence, *repetition;
    f32 frequency0, presence0, repetition0;
};

__device__ __forceinline__ f32 penalized(f32 x, i32 count, f32 frequency, f32 presence,
                                         f32 repetition) {
    if (repetition != 1.0f) x = x > 0.0f ? x / repetition : x * repetition;
    return count > 0 ? x - frequency * f32(count) - presence : x;
}

template <int THREADS>
__device__ __forceinline__ void penalize(f32* logits, Part part, i64 row, const Penalties& p) {
    const f32 frequency = setting(p.frequency, row, p.frequency0);
    const f32 presence = setting(p.presence, row, p.presence0);
    const f32 repetition = setting(p.repetition, row, p.repetition0);
    for (i32 i = p.offsets[row] + threadIdx.x; i < p.offsets[row + 1]; i += THREADS) {
        const u32 at = u32(p.tokens[i] - part.first);
        if (p.tokens[i] < 0 || at >= u32(part.count) || logits[at] == -INF) continue;
        logits[at] = key::clean(penalized(logits[at], p.counts[i], frequency, presence, repetition));
    }
}
