// One uniform number in [0, 1) per seed: Philox4x32-10 keyed by the seed, counted by the position.
//
// The same (seed, position) gives the same number on every GPU, in every batch and on the emulator: what
// the samplers draw with, for those who draw themselves. A thread per seed; position is one number for
// all where no array is given.
#include "sampling/philox.cuh"

__global__ void keyed_uniform(const u64* seed, const i64* position, f32* out, i64 n,
                              i64 position0) {
    const i64 i = i64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const i64 at = position ? position[i] : position0;
    out[i] = philox::uniform(philox::words(seed[i], at, 0, philox::Domain::uniform).x);
}
