// y = a * x, warp-specialised: one warp loads tiles by TMA into a ring, four warps compute and
// store.
//
// The producer runs ahead of the consumers by up to STAGES tiles: `full[s]` says that stage s holds
// a tile, `empty[s]` that everybody has read it. Results go through shared memory so that TMA can
// store them. Two mistakes can be compiled in:
//
//   MISSING_FENCE   TMA reads the result tile without fence.proxy.async before it: it may see old
//                   bytes, on a GPU only now and then
//   TOO_MANY_BYTES  the barrier expects more bytes than the tile has: its phase never completes
#include "hopper.cuh"

constexpr int ROWS = 16, COLUMNS = 64, TILE = ROWS * COLUMNS, STAGES = 3;
constexpr int CONSUMERS = 128, THREADS = 32 + CONSUMERS;

#ifdef TOO_MANY_BYTES
constexpr u32 TILE_BYTES = TILE * sizeof(float) + 16;
#else
constexpr u32 TILE_BYTES = TILE * sizeof(float);
#endif

struct Shared {
  alignas(128) float stage[STAGES][TILE];
  alignas(128) float result[TILE];
  u64 full[STAGES], empty[STAGES];
};

__device__ void produce(Shared& s, const TensorMap& x, int tiles) {
  int stage = 0, parity = 1;  // the first pass through the ring finds every stage empty
  for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    wait(&s.empty[stage], parity);
    arrive_and_expect(&s.full[stage], TILE_BYTES);
    tma_load(s.stage[stage], x, 0, tile * ROWS, &s.full[stage]);
    if (++stage == STAGES) stage = 0, parity ^= 1;
  }
}

__device__ void consume(Shared& s, const TensorMap& y, float a, int tiles) {
  const int t = threadIdx.x - 32;
  int stage = 0, parity = 0;
  for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    wait(&s.full[stage], parity);
    float values[TILE / CONSUMERS];
    for (int i = 0; i < TILE / CONSUMERS; i++) values[i] = a * s.stage[stage][t + i * CONSUMERS];
    arrive(&s.empty[stage]);
    if (t == 0) wait_store_read();  // before the result tile is written again
    named_barrier(1, CONSUMERS);
    for (int i = 0; i < TILE / CONSUMERS; i++) s.result[t + i * CONSUMERS] = values[i];
#ifndef MISSING_FENCE
    fence_async_proxy();
#endif
    named_barrier(1, CONSUMERS);
    if (t == 0) {
      tma_store(y, 0, tile * ROWS, s.result);
      commit_store();
    }
    if (++stage == STAGES) stage = 0, parity ^= 1;
  }
  if (t == 0) wait_store();
}

extern "C" __global__ void __launch_bounds__(THREADS)
ring(const __grid_constant__ TensorMap x, const __grid_constant__ TensorMap y, float a, int tiles) {
  __shared__ Shared s;
  if (threadIdx.x == 0) {
    for (int i = 0; i < STAGES; i++) init(&s.full[i], 1), init(&s.empty[i], CONSUMERS);
    fence_init();
  }
  __syncthreads();
  if (threadIdx.x >= 32)
    consume(s, y, a, tiles);
  else if (threadIdx.x == 0)
    produce(s, x, tiles);
}
