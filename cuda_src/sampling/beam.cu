// A step of beam search: of all beams' likeliest continuations the best, in descending order.
//
// Each beam comes with its `width` largest logits, their tokens and the logarithm of its sum of
// exponentials (top_k.cu). A continuation's score is the beam's own plus the token's log-probability;
// the best of all have the highest, and among equals the lower beam, then the lower token. -1 pads where
// there are fewer.
//
// One CTA per batch entry; everyone counts who is better, which is the place. Limits: beams * width
// is at most SCORES.
#include "sampling/key.cuh"

template <int THREADS, int SCORES>
__global__ void __launch_bounds__(THREADS)
beam(const f32* values, const i32* tokens, const f32* log_sum, const f32* scores, i32* next_beam,
     i32* next_token, f32* next_score, i32 beams, i32 width, i32 best) {
    extern __shared__ __align__(16) u8 memory[];
    u32* key = reinterpret_cast<u32*>(memory);
    const i64 entry = blockIdx.x;
    const int n = beams * width;
    for (int i = threadIdx.x; i < n; i += THREADS) {
        const i64 from = entry * beams + i / width;
        const f32 score = scores[from] + (values[entry * n + i] - log_sum[from]);
        key[i] = tokens[entry * n + i] < 0 ? key::NOTHING : key::of(key::clean(score));
    }
    for (int i = threadIdx.x; i < best; i += THREADS) {
        next_beam[entry * best + i] = next_token[entry * best + i] = -1;
        next_score[entry * best + i] = -INF;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += THREADS) {
        const u32 mine = key[i];
        if (mine <= key::NOTHING) continue;
        int place = 0;  // a beam's tokens come in order of their logits, lower ones first among equals
        for (int j = 0; j < n; ++j) place += key[j] > mine || (key[j] == mine && j < i);
        if (place >= best) continue;
        next_beam[entry * best + place] = i / width;
        next_token[entry * best + place] = tokens[entry * n + i];
        next_score[entry * best + place] = key::value(mine);
    }
}
