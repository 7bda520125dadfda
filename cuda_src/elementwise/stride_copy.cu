// y[i] = x[i] by a plain grid-stride loop: what its counter's width costs in instructions.
//
// The textbook form, kept as it is usually written: the start and the step are products of 32-bit
// special registers, whatever the counter, and the loop is not unrolled. It exists to be
// disassembled: `gpukit study elementwise --sass-only` counts the instructions of one turn beside
// those of unary.cu. 64-bit counters cost a carry and a second compare; each address costs another
// carry, because a 64-bit index cannot be scaled and added to a pointer in one instruction.
//
// Memory traffic: n reads + n writes. x and y are dense, aligned to the vector, n a multiple of VEC.
#include "common/vec.cuh"

template <class T, int VEC, class INDEX>
__global__ void stride_copy(const T* x, T* y, i64 n) {
    const Vec<T, VEC>* xv = reinterpret_cast<const Vec<T, VEC>*>(x);
    Vec<T, VEC>* yv = reinterpret_cast<Vec<T, VEC>*>(y);
    const INDEX vectors = INDEX(u64(n) / VEC);
#pragma unroll 1
    for (INDEX i = blockIdx.x * blockDim.x + threadIdx.x; i < vectors; i += blockDim.x * gridDim.x)
        store<Cache::normal>(yv + i, load<Cache::normal>(xv + i));
}
