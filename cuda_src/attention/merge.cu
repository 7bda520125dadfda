// Attention over disjoint parts of the keys, put together.
//
// A part's state is its output (an average of values) and its LSE (the logarithm of the sum of
// exponentials that the average was divided by). The whole's LSE is that of the parts' LSEs, and its
// output the parts' averages weighted by 2^(LSE - whole): every part is read once, the sums are f32.
//
// A part in which a query saw no key (LSE -infinity) counts for nothing, whatever its output holds; if
// all are such, so is the result: output 0, LSE -infinity. An LSE of NaN or +infinity makes it NaN.
//
// Rows are [batch, tokens, heads], LSEs [batch, heads, tokens], both dense. A thread has VEC columns of a
// row; memory is the limit: 2 (parts + 1) bytes an element. Grid: enough CTAs of 256 threads.
#include "attention/softmax.cuh"
#include "common/types.cuh"
#include "common/vec.cuh"

constexpr int PARTS = 8;

template <class T, int VEC>
__global__ void __launch_bounds__(256)
merge(T* out, f32* lse, const T* out0, const T* out1, const T* out2, const T* out3, const T* out4,
      const T* out5, const T* out6, const T* out7, const f32* lse0, const f32* lse1, const f32* lse2,
      const f32* lse3, const f32* lse4, const f32* lse5, const f32* lse6, const f32* lse7, i32 parts,
      i64 rows, i32 tokens, i32 heads, i32 columns) {
    const T* const outs[PARTS] = {out0, out1, out2, out3, out4, out5, out6, out7};
    const f32* const lses[PARTS] = {lse0, lse1, lse2, lse3, lse4, lse5, lse6, lse7};
    const i32 vectors = columns / VEC;
    const i64 index = i64(blockIdx.x) * blockDim.x + threadIdx.x, row = index / vectors;
    if (row >= rows) return;
    const i32 head = row % heads, token = row / heads % tokens;
    const i64 at = (row / heads / tokens * heads + head) * tokens + token;

    f32 l[PARTS], top = attention::minus_infinity();
#pragma unroll
    for (int i = 0; i < PARTS; i++) {
        l[i] = i < parts ? lses[i][at] : attention::minus_infinity();
        top = fmaxf(top, l[i]);
    }
    f32 z = 0.0f, sum[VEC] = {};
#pragma unroll
    for (int i = 0; i < PARTS; i++) {
        if (l[i] == attention::minus_infinity()) continue;
        const f32 weight = ptx::ex2((l[i] - top) * attention::LOG2E);
        const Vec<T, VEC> part = reinterpret_cast<const Vec<T, VEC>*>(outs[i])[index];
        z += weight;
#pragma unroll
        for (int c = 0; c < VEC; c++) sum[c] = fmaf(weight, to_f32(part.lane[c]), sum[c]);
    }
    Vec<T, VEC> whole;
#pragma unroll
    for (int c = 0; c < VEC; c++) whole.lane[c] = from_f32<T>(z == 0.0f ? 0.0f : sum[c] / z);
    reinterpret_cast<Vec<T, VEC>*>(out)[index] = whole;
    if (lse != nullptr && index % vectors == 0)
        lse[at] = z == 0.0f ? top : top + ptx::lg2(z) * attention::LN2;
}
