// y[i] = op(x[i]): the whole story of elementwise bandwidth in one kernel.
//
// Decisions, all tunable: how wide an access is (VEC elements, at most 16 bytes, 32 from sm_100 on),
// how many independent vectors a thread has in flight (UNROLL), and how many CTAs there are. With
// enough CTAs for one pass (`gs1`) there is no loop at all; with a capped grid (`gs2`) LOOP makes
// each CTA walk on. INDEX is u32 where n allows: 64-bit counters cost a carry and a second compare.
// The loop's own condition is the first vector's, so that a turn of one vector takes as few
// instructions as the textbook's loop: `gpukit study elementwise --sass-only` counts both.
//
// Memory traffic: n reads + n writes, nothing else. In flight per SM at full occupancy:
// 2048 threads x 16 B x UNROLL = 32 KB x UNROLL; Little's law asks for about
// 4.8 TB/s x 0.7 us / 132 SMs = 25 KB on an H200. For a few MiB the kernel is over in 3 us, and
// fetching cold instructions counts: hence no loop where none is needed.
//
// Limits: x and y are dense and aligned to the vector (the caller narrows VEC until they are);
// y may be x itself, but must not overlap it shifted. The n % VEC last elements go one per thread.
#include "elementwise/ops.cuh"

template <class Op, class T, int VEC, int UNROLL, class INDEX, Cache CACHE, bool LOOP>
__global__ void unary(const T* x, T* y, i64 n, f32 a) {
    using V = Vec<T, VEC>;
    const V* xv = reinterpret_cast<const V*>(x);
    V* yv = reinterpret_cast<V*>(y);
    const INDEX vectors = INDEX(u64(n) / VEC);
    const INDEX step = INDEX(gridDim.x) * blockDim.x * UNROLL;

    INDEX base = INDEX(blockIdx.x) * blockDim.x * UNROLL + threadIdx.x;
    while (base < vectors) {
        V v[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; ++u)
            if (u == 0 || base + u * blockDim.x < vectors)
                v[u] = load<CACHE>(xv + base + u * blockDim.x);
#pragma unroll
        for (int u = 0; u < UNROLL; ++u)
            if (u == 0 || base + u * blockDim.x < vectors) {
                ops::map(Op{}, v[u], a);
                store<CACHE>(yv + base + u * blockDim.x, v[u]);
            }
        if (!LOOP) break;
        base += step;
    }

    if (VEC > 1 && blockIdx.x == 0 && threadIdx.x < u32(n) % VEC) {
        const i64 i = n - 1 - threadIdx.x;
        Vec<T, 1> v = {x[i]};
        ops::map(Op{}, v, a);
        y[i] = v.lane[0];
    }
}
