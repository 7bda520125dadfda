// z[i] = op(x[i], y[i], a): the two-input twin of unary.cu (read its header first).
//
// Memory traffic: 2 n reads + n writes. Half as many threads fill the memory system, because each
// has two loads in flight per vector instead of one.
//
// Limits: as unary.cu; z may be x or y itself.
#include "elementwise/ops.cuh"

template <class Op, class T, int VEC, int UNROLL, class INDEX, Cache CACHE, bool LOOP>
__global__ void binary(const T* x, const T* y, T* z, i64 n, f32 a) {
    using V = Vec<T, VEC>;
    const V* xv = reinterpret_cast<const V*>(x);
    const V* yv = reinterpret_cast<const V*>(y);
    V* zv = reinterpret_cast<V*>(z);
    const INDEX vectors = INDEX(u64(n) / VEC);
    const INDEX step = INDEX(gridDim.x) * blockDim.x * UNROLL;

    INDEX base = INDEX(blockIdx.x) * blockDim.x * UNROLL + threadIdx.x;
    while (base < vectors) {
        V v[UNROLL], w[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; ++u)
            if (u == 0 || base + u * blockDim.x < vectors) {
                v[u] = load<CACHE>(xv + base + u * blockDim.x);
                w[u] = load<CACHE>(yv + base + u * blockDim.x);
            }
#pragma unroll
        for (int u = 0; u < UNROLL; ++u)
            if (u == 0 || base + u * blockDim.x < vectors) {
                ops::map(Op{}, v[u], w[u], a);
                store<CACHE>(zv + base + u * blockDim.x, v[u]);
            }
        if (!LOOP) break;
        base += step;
    }

    if (VEC > 1 && blockIdx.x == 0 && threadIdx.x < u32(n) % VEC) {
        const i64 i = n - 1 - threadIdx.x;
        z[i] = Op::apply(x[i], y[i], a);
    }
}
