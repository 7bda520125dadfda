// Forbids tokens in place: where a bit of the packed mask is 0, the logit becomes `fill`.
//
// Bit t % 32 of word t / 32 is token t's. Where `rows` is given, row i of the mask is for row rows[i];
// a mask for a row that does not exist is for none.
//
// A warp looks at 32 words, 1024 tokens. Words of ones, most of a grammar's or nearly none of them, cost
// nothing beyond their own 4 bytes; only what changes is written.
#include "common/types.cuh"
#include "common/warp.cuh"

template <class T, int THREADS>
__global__ void __launch_bounds__(THREADS)
apply_bitmask(T* logits, const u32* mask, const i32* rows, i64 pitch, i64 mask_pitch, i32 V,
              i32 B, f32 fill) {
    const i32 words = (V - 1) / 32 + 1, parts = (words - 1) / THREADS + 1;
    const i64 at = blockIdx.x / parts, row = rows ? rows[at] : at;
    if (row < 0 || row >= B) return;
    T* to = logits + row * pitch;
    const i32 mine = blockIdx.x % parts * THREADS + threadIdx.x, first = mine - warp::lane();
    const u32 word = mine < words ? mask[at * mask_pitch + mine] : 0xffffffff;
    u32 changed = __ballot_sync(0xffffffff, word != 0xffffffff);
    while (changed) {
        const int w = __ffs(changed) - 1;
        changed &= changed - 1;
        const u32 bits = __shfl_sync(0xffffffff, word, w);
        const i64 token = i64(first + w) * 32 + warp::lane();
        if (token < V && !(bits >> warp::lane() & 1)) to[token] = from_f32<T>(fill);
    }
}
