// Decode kernel 6: split keys, FlashAttention-2 style. Queries of a group share the MMA.
//
// The form is a choice: Plain has the group's query rows on the MMA's M, padded to 16; Transposed
// has keys there and the rows on N, 8 at a time (attention/decode/forms.cuh). mma.sync either way:
// this kernel is bound by memory, and registers that a wgmma would not need are to spare.
#include "attention/decode/split.cuh"

using decode::Cut;
using decode::Extra;
using decode::Pages;

namespace form {
template <class T, int DIM> using plain = decode::Plain<T, DIM>;
template <class T, int DIM> using transposed_8 = decode::Transposed<T, DIM, 8>;
template <class T, int DIM> using transposed_16 = decode::Transposed<T, DIM, 16>;
}  // namespace form

template <class T, int DIM, template <class, int> class FORM, int WARPS, int STAGES, int CLUSTER,
          Pages PAGES, Extra EXTRA, Cut CUT, int BLOCKS>
__global__ void __cluster_dims__(1, CLUSTER, 1) __launch_bounds__(WARPS * 32, BLOCKS)
d6_split(const T* q, const T* k, const T* v, T* out, f32* lse, const u32* lengths, const u32* table,
         const f32* sinks, const f32* slopes, const T* extra, float4* values, float2* statistics,
         u32* arrived, i64 q_batch, i64 q_token, i64 q_head, i64 k_batch, i64 k_row, i64 k_head,
         i64 v_batch, i64 v_row, i64 v_head, i64 out_batch, i64 out_token, i64 out_head,
         i64 table_row, i64 extra_batch, i64 extra_token, i64 extra_head, i32 extent, i32 shift,
         i32 sequences, i32 keys, i32 tokens, i32 group, i32 heads, i32 left, i32 right, i32 chunk,
         f32 scale, f32 cap_in, f32 cap) {
    using S = decode::Split<FORM<T, DIM>, DIM, WARPS, STAGES, CLUSTER, PAGES, EXTRA, CUT>;
    const bool paged = PAGES != Pages::none;  // the batch stride is then that of pages
    decode::decode_split<S>(decode::Arguments<T, T, T>{
        q, {q_batch, q_token, q_head}, {k, k_row, k_batch}, {v, v_row, v_batch},
        paged ? 0 : k_batch, k_head, paged ? 0 : v_batch, v_head, out,
        {out_batch, out_token, out_head}, lse, lengths, table, table_row, shift, values, statistics,
        arrived, sequences, keys, tokens, group, heads,
        {scale, cap_in, cap, left, right, chunk, slopes, sinks, extra, extent},
        {extra_batch, extra_token, extra_head}, {}, {}, {}, 1.0f});
}
