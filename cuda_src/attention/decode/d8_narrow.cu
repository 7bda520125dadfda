// Decode kernel 8: a cache of 8-bit floats.
//
// Half the bytes, so nearly twice as fast if nothing else takes longer. Tiles pass through
// registers on their way to the tensor cores, to be widened; what a wgmma would save is then gone,
// and warps that wait for nobody are better: this is kernel 6 with other tiles (narrow.cuh).
#include "attention/decode/split.cuh"

using decode::Cut;
using decode::Extra;
using decode::Pages;

template <class Q, class T, int DIM, int ROWS, int WARPS, int STAGES, int CLUSTER, Pages PAGES,
          Extra EXTRA, Cut CUT, int BLOCKS>
__global__ void __cluster_dims__(1, CLUSTER, 1) __launch_bounds__(WARPS * 32, BLOCKS)
d8_narrow(const Q* q, const e4m3* k, const e4m3* v, T* out, f32* lse, const u32* lengths,
          const u32* table, const f32* sinks, const f32* slopes, const T* extra,
          const f32* q_scales, const f32* k_scales, const f32* v_scales, float4* values,
          float2* statistics, u32* arrived, i64 q_batch, i64 q_token, i64 q_head, i64 k_batch,
          i64 k_row, i64 k_head, i64 v_batch, i64 v_row, i64 v_head, i64 out_batch, i64 out_token,
          i64 out_head, i64 table_row, i64 extra_batch, i64 extra_token, i64 extra_head,
          i32 extent, i32 shift, i32 sequences, i32 keys, i32 tokens, i32 group, i32 heads,
          i32 left, i32 right, i32 chunk, f32 scale, f32 cap_in, f32 cap, f32 value_scale,
          i32 q_scale_batch, i32 q_scale_head, i32 k_scale_batch, i32 k_scale_head,
          i32 v_scale_batch, i32 v_scale_head) {
    using Form = decode::Narrow<T, DIM, ROWS>;
    using S = decode::Split<Form, DIM, WARPS, STAGES, CLUSTER, PAGES, EXTRA, CUT>;
    const bool paged = PAGES != Pages::none;  // the batch stride is then that of pages
    decode::decode_split<S>(decode::Arguments<Q, e4m3, T>{
        q, {q_batch, q_token, q_head}, {k, k_row, k_batch}, {v, v_row, v_batch},
        paged ? 0 : k_batch, k_head, paged ? 0 : v_batch, v_head, out,
        {out_batch, out_token, out_head}, lse, lengths, table, table_row, shift, values, statistics,
        arrived, sequences, keys, tokens, group, heads,
        {scale, cap_in, cap, left, right, chunk, slopes, sinks, extra, extent},
        {extra_batch, extra_token, extra_head}, {q_scales, q_scale_batch, q_scale_head},
        {k_scales, k_scale_batch, k_scale_head}, {v_scales, v_scale_batch, v_scale_head},
        value_scale});
}
