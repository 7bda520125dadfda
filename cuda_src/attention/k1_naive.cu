// Attention kernel 1: as the formula says, one matrix after the other.
//
// Three launches. Scores: a thread per query and key multiplies two rows of q and k out. Softmax: a warp
// per query reads its row of scores three times, for the maximum, the sum and the weights. Values: a
// thread per query and column adds up weighted values.
//
// Everything goes through global memory: scores alone are 4 bytes per query, key and head, written once
// and read four times, where q, k and v would be read once. And no row is kept where it could be used
// again: caches are all there is.
//
// Napkin (16k tokens in one sequence, 16 heads): 17 GB of scores; 5 passes over them are 86 GB, 20 ms at
// 4.3 TB/s; but the products, an element at a time from L1, are what takes long: some 2 TFLOPS.
//
// Any lengths and strides, every mask. Grids: (keys / 16, queries / 16, batch x heads), (queries, batch x
// heads) and (columns / 16, queries / 16, batch x heads).
#include "attention/mask.cuh"
#include "attention/softmax.cuh"
#include "common/warp.cuh"

using namespace attention;

// q, k, v or out: [batch, rows, heads, columns] by steps in elements.
template <class T> struct Strided {
    T* data;
    i64 token, head, batch;

    __device__ __forceinline__ T* row(i32 b, i32 r, i32 h) const {
        return data + b * batch + r * token + h * head;
    }
};

// The scores of one head: f32 [queries, keys].
__device__ __forceinline__ f32* scores_of(f32* scores, i32 queries, i32 keys, i32 query) {
    return scores + (i64(blockIdx.z) * queries + query) * keys;
}

template <class T>
__global__ void k1_scores(const T* q, i64 q_token, i64 q_head, i64 q_batch, const T* k, i64 k_token,
                          i64 k_head, i64 k_batch, f32* scores, i32 queries, i32 keys, i32 heads,
                          i32 share, i32 columns, f32 scale, i32 top_left, i32 left, i32 right,
                          i32 chunk) {
    const i32 key = blockIdx.x * blockDim.x + threadIdx.x;
    const i32 query = blockIdx.y * blockDim.y + threadIdx.y;
    const i32 batch = blockIdx.z / heads, head = blockIdx.z % heads;
    if (query >= queries || key >= keys) return;
    const T* a = Strided<const T>{q, q_token, q_head, q_batch}.row(batch, query, head);
    const T* b = Strided<const T>{k, k_token, k_head, k_batch}.row(batch, key, head / share);
    f32 sum = 0.0f;
    for (i32 i = 0; i < columns; i++) sum = fmaf(to_f32(a[i]), to_f32(b[i]), sum);
    const Visible<Mask::window> visible{keys, top_left ? 0 : keys - queries, left, right, chunk};
    const Interval seen = visible.of(query);
    const bool hidden = key < seen.first || key >= seen.end;
    scores_of(scores, queries, keys, query)[key] = hidden ? minus_infinity() : sum * scale;
}

// Scores become weights. One warp per CTA.
__global__ void k1_softmax(f32* scores, f32* lse, i64 lse_token, i64 lse_head, i64 lse_batch,
                           i32 queries, i32 keys, i32 heads) {
    const i32 query = blockIdx.x;
    f32* row = scores_of(scores, queries, keys, query);
    f32 top = minus_infinity(), sum = 0.0f;
    for (i32 i = threadIdx.x; i < keys; i += warp::SIZE) top = fmaxf(top, row[i]);
    for (int step = 16; step > 0; step /= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffff, top, step));
    const f32 base = top == minus_infinity() ? 0.0f : top;
    for (i32 i = threadIdx.x; i < keys; i += warp::SIZE) sum += ptx::ex2((row[i] - base) * LOG2E);
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffff, sum, step);
    const f32 factor = sum > 0.0f ? 1.0f / sum : 0.0f;
    for (i32 i = threadIdx.x; i < keys; i += warp::SIZE)
        row[i] = ptx::ex2((row[i] - base) * LOG2E) * factor;
    if (lse != nullptr && threadIdx.x == 0)
        lse[blockIdx.z / heads * lse_batch + blockIdx.z % heads * lse_head + query * lse_token] =
            sum > 0.0f ? top + ptx::lg2(sum) * LN2 : minus_infinity();
}

template <class T>
__global__ void k1_values(f32* scores, const T* v, i64 v_token, i64 v_head, i64 v_batch, T* out,
                          i64 out_token, i64 out_head, i64 out_batch, i32 queries, i32 keys,
                          i32 heads, i32 share, i32 columns) {
    const i32 column = blockIdx.x * blockDim.x + threadIdx.x;
    const i32 query = blockIdx.y * blockDim.y + threadIdx.y;
    const i32 batch = blockIdx.z / heads, head = blockIdx.z % heads;
    if (query >= queries || column >= columns) return;
    const f32* weights = scores_of(scores, queries, keys, query);
    const Strided<const T> values{v, v_token, v_head, v_batch};
    f32 sum = 0.0f;
    for (i32 j = 0; j < keys; j++)
        if (weights[j] > 0.0f)  // nothing times what may be NaN
            sum = fmaf(weights[j], to_f32(values.row(batch, j, head / share)[column]), sum);
    const Strided<T> to{out, out_token, out_head, out_batch};
    to.row(batch, query, head)[column] = from_f32<T>(sum);
}
