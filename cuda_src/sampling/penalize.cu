// Penalties in place, on the logits of the tokens of each row's CSR list (penalties.cuh).
//
// A CTA per row, a thread per entry of the list: tokens of a row differ, so no two threads meet. What
// is not on the list is neither read nor written. The fused sampler applies the same function while it
// reads the row; this is for those who want the logits.
#include "sampling/penalties.cuh"

template <class T, int THREADS>
__global__ void __launch_bounds__(THREADS)
apply_penalties(T* logits, const i32* offsets, const i32* tokens, const i32* counts,
                const f32* frequency, const f32* presence, const f32* repetition, i64 pitch, i32 V,
                f32 frequency0, f32 presence0, f32 repetition0) {
    const i64 row = blockIdx.x;
    const f32 f = setting(frequency, row, frequency0), p = setting(presence, row, presence0),
              r = setting(repetition, row, repetition0);
    for (i32 i = offsets[row] + threadIdx.x; i < offsets[row + 1]; i += THREADS) {
        const i32 token = tokens[i];
        if (token < 0 || token >= V) continue;
        T& logit = logits[row * pitch + token];
        const f32 x = to_f32(logit);
        if (x > -INF && x < INF) logit = from_f32<T>(penalized(x, counts[i], f, p, r));
    }
}
