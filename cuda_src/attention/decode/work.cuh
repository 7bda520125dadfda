// What a decode kernel is given, and what of it one CTA works on.
#pragma once

#include "attention/decode/cache.cuh"
#include "attention/decode/softmax.cuh"

namespace decode {

// Elements between sequences, tokens and heads.
struct Strides {
    i64 batch, token, head;
};

template <class T> struct Arguments {
    const T* q;
    Strides q_strides;
    Rows<T> k, v;  // of KV head 0 of sequence 0
    i64 k_batch, k_head, v_batch, v_head;
    T* out;
    Strides out_strides;
    f32* lse;            // [sequences, query heads, tokens] or null
    const u32* lengths;  // by sequence, at most `keys`; or null: `keys` of each
    const u32* table;
    i64 table_row;
    i32 shift;
    float4* values;      // workspaces of the parts
    float2* statistics;
    u32* arrived;
    i32 keys, tokens, group, heads;  // heads: of queries
    Rules rules;
    Strides extra;
};

// What a CTA works on.
template <class S> struct Work {
    i32 sequence, head, first_row, rows, length;  // head: of keys
    Span span;                                    // keys that any of the rows sees
    Span common;                                  // keys that all of them see
    i32 first, steps;                             // of this CTA: S::STEP keys each

    template <class T> __device__ __forceinline__ explicit Work(const Arguments<T>& x) {
        const i32 all = x.tokens * x.group, blocks = (all + S::Form::ROWS - 1) / S::Form::ROWS;
        sequence = blockIdx.z, head = blockIdx.x / blocks;
        first_row = blockIdx.x % blocks * S::Form::ROWS;
        rows = min(S::Form::ROWS, all - first_row);
        length = x.lengths ? i32(min(x.lengths[sequence], u32(x.keys))) : x.keys;
        const Span first = x.rules.seen(position(x, 0), length);
        const Span last = x.rules.seen(position(x, rows - 1), length);
        span = {first.first, last.last};
        common = {last.first, first.last};
        slice();
    }
    // This CTA's share of the keys.
    __device__ __forceinline__ void slice() {
        const i32 begin = span.first / S::STEP;
        const i32 all = max(0, (span.last + S::STEP - 1) / S::STEP - begin);
        const i32 own = blockIdx.y;
        i32 share = all, rest = 0;
        if (gridDim.y > 1) share = all / i32(gridDim.y), rest = all % i32(gridDim.y);
        first = (begin + share * own + min(own, rest)) * S::STEP;
        steps = share + (own < rest);
    }
    template <class T> __device__ __forceinline__ i32 token(const Arguments<T>& x, i32 row) const {
        return (first_row + row) / x.group;
    }
    template <class T>
    __device__ __forceinline__ i32 query_head(const Arguments<T>& x, i32 row) const {
        return head * x.group + (first_row + row) % x.group;
    }
    template <class T>
    __device__ __forceinline__ i32 position(const Arguments<T>& x, i32 row) const {
        return length - x.tokens + token(x, row);
    }
    template <class T>
    __device__ __forceinline__ Query query(const Arguments<T>& x, i32 row) const {
        const i32 r = min(row, rows - 1), at = position(x, r);
        return {x.rules.seen(at, length), at,
                x.rules.slopes ? x.rules.slopes[query_head(x, r)] * LOG2_E : 0.0f,
                sequence * x.extra.batch + token(x, r) * x.extra.token +
                    query_head(x, r) * x.extra.head};
    }
    // Of KV head and sequence.
    template <class T>
    __device__ __forceinline__ Rows<T> rows_of(const Rows<T>& rows, i64 batch, i64 step) const {
        return {rows.base + sequence * batch + head * step, rows.row, rows.page};
    }
};

// The query rows, into shared memory; zeros where there are none.
template <class S, class T>
__device__ __forceinline__ void fetch_queries(u8* to, const Arguments<T>& x, const Work<S>& work) {
    constexpr int PIECES = S::Keys::PIECES;
    for (int i = threadIdx.x; i < S::Form::ROWS * PIECES; i += S::WARPS * warp::SIZE) {
        const i32 row = i / PIECES, column = i % PIECES, r = min(row, work.rows - 1);
        const T* from = x.q + work.sequence * x.q_strides.batch +
                        work.token(x, r) * x.q_strides.token +
                        work.query_head(x, r) * x.q_strides.head + column * 8;
        cp_async::copy<16, false>(to + S::Queries::at(row, column), from,
                                  row < work.rows ? 16 : 0);
    }
}

}  // namespace decode
