// z[i] = op(x[i], y[i], a): the two-input twin of unary.cu (read its header first).
//
// Memory traffic: 2 n reads + n writes. Half as many CTAs' worth of bytes are needed to fill the
// memory system, because each thread has two loads in flight per vector instead of one.
//
// Limits: as unary.cu; z may be x or y itself.
#include "elementwise/ops.cuh"

template <class Op, class T, int VEC, int UNROLL, class INDEX, Cache CACHE>
__global__ void binary(const T* x, const T* y, T* z, i64 n, f32 a) {
    using V = Vec<T, VEC>;
    const V* xv = reinterpret_cast<const V*>(x);
    const V* yv = reinterpret_cast<const V*>(y);
    V* zv = reinterpret_cast<V*>(z);
    const INDEX vectors = INDEX(n / VEC);
    const INDEX step = INDEX(gridDim.x) * blockDim.x * UNROLL;

    for (INDEX base = INDEX(blockIdx.x) * blockDim.x * UNROLL + threadIdx.x; base < vectors;
         base += step) {
        V v[UNROLL], w[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; ++u)
            if (base + u * blockDim.x < vectors) {
                v[u] = load<CACHE>(xv + base + u * blockDim.x);
                w[u] = load<CACHE>(yv + base + u * blockDim.x);
            }
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
#pragma unroll
            for (int i = 0; i < VEC; ++i)
                v[u].lane[i] = Op::apply(v[u].lane[i], w[u].lane[i], a);
            if (base + u * blockDim.x < vectors) store<CACHE>(zv + base + u * blockDim.x, v[u]);
        }
    }

    const i64 tail = i64(vectors) * VEC + threadIdx.x;
    if (VEC > 1 && blockIdx.x == gridDim.x - 1 && tail < n)
        z[tail] = Op::apply(x[tail], y[tail], a);
}
