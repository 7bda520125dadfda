// Writes values, or one value, to (row, column) pairs of a matrix; pairs outside of it are skipped.
//
// A thread per pair, 64-bit places throughout. Nothing is read of the matrix.
//
// Limits: of values for the same place one is written, whichever; indices are not sorted, so writes
// are as scattered as they are.
#include "common/types.cuh"

template <class T, class I, int THREADS>
__global__ void __launch_bounds__(THREADS)
scatter(T* matrix, const I* indices, const T* values, i64 pitch, i64 rows, i64 columns, i64 n,
        f32 value) {
    const i64 i = i64(blockIdx.x) * THREADS + threadIdx.x;
    if (i >= n) return;
    const i64 row = indices[2 * i], column = indices[2 * i + 1];
    if (row < 0 || row >= rows || column < 0 || column >= columns) return;
    matrix[row * pitch + column] = values ? values[i] : from_f32<T>(value);
}
