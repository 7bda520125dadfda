// The epilogue on its own, for sums that a kernel without one has left in memory:
//
//     C[z, m, n] = act(alpha scale_m[m] scale_n[n] sums[z, m, n] + bias[n]) + residual[z, m, n]
//
// `sums` has no gaps; null means all zeros, which is what a product without K is. Of a K in slices
// there are sums of each, [z, slice, m, n], added up in their order. Every other array may be null
// too. Launch: any block, one thread per element.
#include "matmul/sm90/extras.cuh"

template <class OUT, Act ACT>
__global__ void epilogue(const f32* sums, i32 slices, OUT* C, i64 c_row, i64 c_batch, i64 M, i64 N,
                         i64 batch, f32 alpha, const OUT* bias, const OUT* residual,
                         i64 residual_row, i64 residual_batch, const f32* scale_m,
                         const f32* scale_n, i32 scale_m_step, i32 scale_n_step) {
    const i64 index = i64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (index >= batch * M * N) return;
    const i64 n = index % N, m = index / N % M, z = index / N / M;
    const Extras<OUT> extras{bias, 0, 1, residual, residual_row, 1, residual_batch,
                             scale_m, scale_n, scale_m_step, scale_n_step};
    f32 sum = 0.0f;
    for (i32 s = 0; sums && s < slices; s++) sum += sums[index + (z * (slices - 1) + s) * M * N];
    const f32 x = extras.template apply<ACT>(sum, extras.row(m, z, alpha), extras.column(n), n);
    C[z * c_batch + m * c_row + n] = from_f32<OUT>(x);
}
