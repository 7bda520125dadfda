// y[i] = op(x[i]): the whole story of elementwise bandwidth in one loop.
//
// Three decisions, all tunable: how wide an access is (VEC elements, at most 16 bytes, 32 from
// sm_100 on), how many independent vectors a thread has in flight (UNROLL), and how many CTAs there
// are. The grid is the caller's: with enough CTAs for one pass (`gs1`) the grid-stride loop runs
// once; with a capped grid (`gs2`) each CTA walks on. INDEX is u32 where n allows: 64-bit counters
// cost a carry and a second compare per turn.
//
// Memory traffic: n reads + n writes, nothing else. In flight per SM at full occupancy:
// 2048 threads x 16 B x UNROLL = 32 KB x UNROLL; Little's law asks for about
// 4.8 TB/s x 0.7 us / 132 SMs = 25 KB on an H200.
//
// Limits: x and y are dense and aligned to the vector (the caller narrows VEC until they are);
// y may be x itself, but must not overlap it shifted. The n % VEC last elements go one per thread.
#include "elementwise/ops.cuh"

template <class Op, class T, int VEC, int UNROLL, class INDEX, Cache CACHE>
__global__ void unary(const T* x, T* y, i64 n, f32 a) {
    using V = Vec<T, VEC>;
    const V* xv = reinterpret_cast<const V*>(x);
    V* yv = reinterpret_cast<V*>(y);
    const INDEX vectors = INDEX(n / VEC);
    const INDEX step = INDEX(gridDim.x) * blockDim.x * UNROLL;

    for (INDEX base = INDEX(blockIdx.x) * blockDim.x * UNROLL + threadIdx.x; base < vectors;
         base += step) {
        V v[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; ++u)
            if (base + u * blockDim.x < vectors) v[u] = load<CACHE>(xv + base + u * blockDim.x);
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            ops::map(Op{}, v[u], a);
            if (base + u * blockDim.x < vectors) store<CACHE>(yv + base + u * blockDim.x, v[u]);
        }
    }

    const i64 tail = i64(vectors) * VEC + threadIdx.x;
    if (VEC > 1 && blockIdx.x == gridDim.x - 1 && tail < n) {
        Vec<T, 1> v = {x[tail]};
        ops::map(Op{}, v, a);
        y[tail] = v.lane[0];
    }
}
