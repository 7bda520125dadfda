// One uniform number in [0, 1) per seed: Philox4x32-10 keyed by the seed, counted by the position.
#include "sampling/philox.cuh"

__global__ void keyed_uniform(const u64* seed, const i64* position, f32* out, i64 n,
                              i64 position0) {
    const i64 i = i64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const i64 at = position ? position[i] : position0;
    out[i] = philox::uniform(philox::words(seed[i], at, 0, philox::Domain::uniform).x);
}
