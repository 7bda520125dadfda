// What a decode kernel is given, and what of it one CTA works on.
#pragma once

#include "attention/decode/cache.cuh"
#include "attention/decode/softmax.cuh"

namespace decode {

// Elements between sequences, tokens and heads.
struct Strides {
    i64 batch, token, head;
};

// What 8-bit operands are multiplied by: f32 by sequence and KV head, or null for 1.
struct Scales {
    const f32* base;
    i32 batch, head;  // steps, 0 where all have the same

    template <class W> __device__ __forceinline__ f32 of(const W& work) const {
        return base ? base[i64(work.sequence) * batch + work.head * head] : 1.0f;
    }
};

// Q, KV, T: types of queries, of the cache, of the output.
template <class Q, class KV, class T> struct Arguments {
    const Q* q;
    Strides q_strides;
    Rows<KV> k, v;  // of KV head 0 of sequence 0
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
    i32 sequences, keys, tokens, group, heads;  // heads: of queries
    Rules rules;
    Strides extra;
    Scales q_scales, k_scales, v_scales;
    f32 value_scale;

    __device__ __forceinline__ i32 length(i32 sequence) const {
        return lengths ? i32(min(lengths[sequence], u32(keys))) : keys;
    }
    // Keys that any of these tokens sees.
    __device__ __forceinline__ Span seen(i32 length, i32 first, i32 last) const {
        return {rules.seen(length - tokens + first, length).first,
                rules.seen(length - tokens + last, length).last};
    }
};

// Tiles of a sequence's keys; one where no key is seen: zeros must be written.
struct Tiles {
    i32 begin, count;

    template <class A> static __device__ __forceinline__ Tiles of(const A& x, i32 length) {
        const Span span = x.seen(length, 0, x.tokens - 1);
        const i32 begin = span.first / TILE;
        return {begin, max(1, (span.last + TILE - 1) / TILE - begin)};
    }
};

// A CTA's share of a unit, which is a block of query rows of a KV head of a sequence. States of the
// unit's parts meet in the workspace.
struct Piece {
    i32 sequence, unit, length;
    i32 first, tiles;       // the first key, and tiles from there
    i32 part, parts;
    i64 origin, others;     // where the state of part 0 is, and where that of part p is, less p
    i64 counter;
};
constexpr int OPEN_PIECES = 2, OPEN_BYTES = 128;  // of a CTA of an even cut
static_assert(OPEN_PIECES * (sizeof(Piece) + sizeof(u32)) <= OPEN_BYTES);

// What a CTA works on.
template <class S> struct Work : Piece {
    i32 head, first_row, rows;  // head: of keys
    Span span;                  // keys that any of the rows sees
    Span common;                // keys that all of them see

    template <class A>
    __device__ __forceinline__ Work(const A& x, const Piece& piece) : Piece(piece) {
        const i32 all = x.tokens * x.group, blocks = (all + S::Form::ROWS - 1) / S::Form::ROWS;
        head = unit / blocks;
        first_row = unit % blocks * S::Form::ROWS;
        rows = min(S::Form::ROWS, all - first_row);
        const Span first = seen(x, position(x, 0)), last = seen(x, position(x, rows - 1));
        span = {first.first, last.last};
        common = {last.first, first.last};
    }
    // What of the share, which may end within a step of the warps, a query sees.
    template <class A> __device__ __forceinline__ Span seen(const A& x, i32 position) const {
        const Span span = x.rules.seen(position, length);
        return {span.first, min(span.last, first + tiles * TILE)};
    }
    template <class A> __device__ __forceinline__ i32 token(const A& x, i32 row) const {
        return (first_row + row) / x.group;
    }
    template <class A>
    __device__ __forceinline__ i32 query_head(const A& x, i32 row) const {
        return head * x.group + (first_row + row) % x.group;
    }
    template <class A>
    __device__ __forceinline__ i32 position(const A& x, i32 row) const {
        return length - x.tokens + token(x, row);
    }
    template <class A>
    __device__ __forceinline__ Query query(const A& x, i32 row) const {
        const i32 r = min(row, rows - 1), at = position(x, r);
        return {seen(x, at), at,
                x.rules.slopes ? x.rules.slopes[query_head(x, r)] * LOG2_E : 0.0f,
                sequence * x.extra.batch + token(x, r) * x.extra.token +
                    query_head(x, r) * x.extra.head};
    }
    template <class A>
    __device__ __forceinline__ auto query_row(const A& x, i32 row) const {
        return x.q + sequence * x.q_strides.batch + token(x, row) * x.q_strides.token +
               query_head(x, row) * x.q_strides.head;
    }
    // Of KV head and sequence.
    template <class T>
    __device__ __forceinline__ Rows<T> rows_of(const Rows<T>& rows, i64 batch, i64 step) const {
        return {rows.base + sequence * batch + head * step, rows.row, rows.page};
    }
};

// The query rows, into shared memory; zeros where there are none.
template <class S, class A>
__device__ __forceinline__ void fetch_queries(u8* to, const A& x, const Work<S>& work) {
    constexpr int PIECES = S::Keys::PIECES;
    for (int i = threadIdx.x; i < S::Form::ROWS * PIECES; i += S::WARPS * warp::SIZE) {
        const i32 row = i / PIECES, column = i % PIECES, r = min(row, work.rows - 1);
        cp_async::copy<16, false>(to + S::Queries::at(row, column),
                                  work.query_row(x, r) + column * 8,
                                  row < work.rows ? 16 : 0);
    }
}

}  // namespace decode
