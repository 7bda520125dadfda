// Decoding: a few query rows against all keys of a sequence, bound by the time it takes to read them.
//
// A CTA has one KV head of one sequence, up to ROWS of its query rows (tokens x heads of the group),
// and a slice of the keys. Its warps work alone: each walks tiles of 16 keys, every WARPS-th of the
// slice, through a ring of its own that cp.async fills; no barrier of the CTA until the end. Keys and
// values are waited for one by one, so that copies of 2 STAGES - 1 half tiles are always on their way.
// What the warps of all CTAs have is put together by combine.cuh, in the same launch.
//
// Grid: (KV heads x blocks of rows, parts x CLUSTER, sequences). Slices are cut on the device from the
// sequence's length, so that a captured launch serves all lengths.
#pragma once

#include "attention/decode/combine.cuh"

namespace decode {

// FORM: Plain or Transposed; ROWS of it are the query rows of a CTA.
template <class FORM, int DIM_, int WARPS_, int STAGES_, int CLUSTER_, Pages PAGES_> struct Split {
    using Form = FORM;
    using T = typename FORM::T;
    static constexpr int DIM = DIM_, WARPS = WARPS_, STAGES = STAGES_, CLUSTER = CLUSTER_;
    static constexpr Pages PAGES = PAGES_;
    using Keys = Cache<T, DIM, PAGES>;
    using States = Board<FORM::ROWS, DIM, WARPS>;

    static constexpr int SLOT = TILE * Keys::PITCH, RING = 2 * STAGES * SLOT;
    static constexpr int QUERIES = FORM::ROWS * Keys::PITCH;  // bytes in front of the rings
    static constexpr int ITEMS = DIM / 4;                     // of a query row
};

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
};

// What a CTA works on.
template <class S> struct Work {
    i32 sequence, head, first_row, rows, length;  // head: of keys
    Span span;                                    // keys that any of the rows sees
    Span common;                                  // keys that all of them see
    i32 first_tile, tiles;                        // of all warps

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
    // This CTA's share of the tiles.
    __device__ __forceinline__ void slice() {
        const i32 begin = span.first / TILE, all = max(0, (span.last + TILE - 1) / TILE - begin);
        const i32 from = i32(i64(all) * blockIdx.y / gridDim.y);
        first_tile = begin + from;
        tiles = i32(i64(all) * (blockIdx.y + 1) / gridDim.y) - from;
    }
    template <class T> __device__ __forceinline__ i32 token(const Arguments<T>& x, i32 row) const {
        return (first_row + row) / x.group;
    }
    template <class T> __device__ __forceinline__ i32 query_head(const Arguments<T>& x, i32 row) const {
        return head * x.group + (first_row + row) % x.group;
    }
    template <class T> __device__ __forceinline__ i32 position(const Arguments<T>& x, i32 row) const {
        return length - x.tokens + token(x, row);
    }
    template <class T> __device__ __forceinline__ Query query(const Arguments<T>& x, i32 row) const {
        const i32 r = min(row, rows - 1), at = position(x, r);
        return {x.rules.seen(at, length), at,
                x.rules.slopes ? x.rules.slopes[query_head(x, r)] * LOG2_E : 0.0f};
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
        cp_async::copy<16, false>(to + row * S::Keys::PITCH + column * 16, from,
                                  row < work.rows ? 16 : 0);
    }
}

// One warp's ring of tiles and the order in which it walks them.
template <class S> struct Walk {
    using T = typename S::T;
    const typename S::Keys& cache;
    const Rows<T>&k, &v;
    u8* ring;
    i32 first, tiles;  // of this warp
    u32 page, next;    // table entries of the tile to fetch next, and of the one after

    __device__ __forceinline__ Walk(const typename S::Keys& cache, const Rows<T>& k, const Rows<T>& v,
                                    u8* rings, i32 first_tile, i32 all)
        : cache(cache), k(k), v(v), ring(rings + warp::index() * S::RING),
          first((first_tile + warp::index()) * TILE),
          tiles(max(0, (all - warp::index() + S::WARPS - 1) / S::WARPS)) {}

    __device__ __forceinline__ i32 key(i32 i) const { return first + i * S::WARPS * TILE; }
    __device__ __forceinline__ u8* k_slot(i32 stage) const { return ring + stage * 2 * S::SLOT; }
    __device__ __forceinline__ u8* v_slot(i32 stage) const { return k_slot(stage) + S::SLOT; }
    __device__ __forceinline__ u32 look_up(i32 i) const {
        return i < tiles ? cache.look_up(key(i)) : 0;
    }

    // Without ending its group, to which the first one's queries also belong.
    __device__ __forceinline__ void fetch_k(i32 i, i32 stage) const {
        if (i < tiles) cache.fetch(k_slot(stage), k, key(i), page);
    }
    __device__ __forceinline__ void fetch_v(i32 i, i32 stage) {
        if (i < tiles) cache.fetch(v_slot(stage), v, key(i), page);
        cp_async::commit();
        page = next;
        next = look_up(i + 2);
    }
    template <class Arguments>
    __device__ __forceinline__ void fill(u8* queries, const Arguments& x, const Work<S>& work) {
        page = look_up(0), next = look_up(1);
#pragma unroll
        for (int i = 0; i < S::STAGES; i++) {
            fetch_k(i, i);
            if (i == 0) fetch_queries<S>(queries, x, work);
            cp_async::commit();
            fetch_v(i, i);
        }
    }
    // The oldest half tile is there, for all lanes.
    static __device__ __forceinline__ void wait() {
        cp_async::wait<2 * S::STAGES - 1>();
        __syncwarp();
    }
};

// A warp's tiles, one after another.
template <class S>
__device__ __forceinline__ void attend(typename S::Form& form, Softmax<typename S::Form>& softmax,
                                       Walk<S>& walk, const Rules& rules, Span common,
                                       const Query (&queries)[S::Form::ENTRIES]) {
    i32 stage = 0;
    for (i32 i = 0; i < walk.tiles; i++) {
        const i32 key = walk.key(i);
        if (i > 0) walk.wait();
        form.multiply_keys(static_cast<u32>(__cvta_generic_to_shared(walk.k_slot(stage))));
        __syncwarp();
        walk.fetch_k(i + S::STAGES, stage);
        cp_async::commit();
        if (key >= common.first && key + TILE <= common.last)
            softmax.template weigh<false>(form, rules, queries, key);
        else
            softmax.template weigh<true>(form, rules, queries, key);
        walk.wait();
        form.add_values(static_cast<u32>(__cvta_generic_to_shared(walk.v_slot(stage))));
        __syncwarp();
        walk.fetch_v(i + S::STAGES, stage);
        stage = stage + 1 == S::STAGES ? 0 : stage + 1;
    }
}

// The result of an item: sinks join the sum, and what was summed is divided by it.
template <class S, class T>
__device__ __forceinline__ void finish(const Arguments<T>& x, const Work<S>& work, i32 item,
                                       State state) {
    const i32 row = item / S::ITEMS, column = item % S::ITEMS * 4;
    const i32 token = work.token(x, row), head = work.query_head(x, row);
    if (x.rules.sinks) state.add({{}, x.rules.sinks[head] * LOG2_E, 1.0f});
    const f32 share = state.sum > 0.0f ? 1.0f / state.sum : 0.0f;
    const float4 v = state.values;
    uint2 packed = {pack_pair(T{}, v.x * share, v.y * share), pack_pair(T{}, v.z * share, v.w * share)};
    T* to = x.out + work.sequence * x.out_strides.batch + token * x.out_strides.token +
            head * x.out_strides.head + column;
    *reinterpret_cast<uint2*>(to) = packed;
    if (x.lse && column == 0)
        x.lse[(i64(work.sequence) * x.heads + head) * x.tokens + token] =
            LN_2 * (state.top + ptx::lg2(state.sum));
}

// From the states of this CTA's warps to the result.
template <class S, class T>
__device__ __forceinline__ void combine(const Arguments<T>& x, const Work<S>& work,
                                        const typename S::States& board, u8* memory) {
    constexpr int THREADS = S::WARPS * warp::SIZE;
    const i32 items = work.rows * S::ITEMS, parts = gridDim.y / S::CLUSTER;
    const i32 rank = blockIdx.y % S::CLUSTER, part = blockIdx.y / S::CLUSTER;
    const Exchange<S::CLUSTER> exchange{reinterpret_cast<float4*>(memory + S::States::BYTES)};
    if constexpr (S::CLUSTER > 1) {
        for (i32 i = threadIdx.x; i < items; i += THREADS) exchange.put(i, board.get(i));
        cluster::sync();
    }
    // This CTA's share of the items; they are numbered alike in all parts.
    const i32 from = items * rank / S::CLUSTER, to = items * (rank + 1) / S::CLUSTER;
    const i64 unit = i64(work.sequence) * gridDim.x + blockIdx.x;
    const i64 room = unit * parts * S::Form::ROWS * S::ITEMS;
    const Parts meeting{x.values + room, x.statistics + room, x.arrived + unit * S::CLUSTER + rank,
                        parts, items};
    for (i32 i = from + threadIdx.x; i < to; i += THREADS) {
        State state;
        if constexpr (S::CLUSTER > 1) state = exchange.get(i);
        else state = board.get(i);
        if (parts > 1) meeting.put(part, i, state);
        else finish<S>(x, work, i, state);
    }
    if constexpr (S::CLUSTER > 1) cluster::arrive();
    if (parts > 1 && meeting.last(reinterpret_cast<u32*>(memory)))
        for (i32 i = from + threadIdx.x; i < to; i += THREADS) finish<S>(x, work, i, meeting.get(i));
    if constexpr (S::CLUSTER > 1) cluster::wait();  // nobody leaves while a peer still reads here
}

template <class S, class T> __device__ __forceinline__ void decode_split(const Arguments<T>& x) {
    extern __shared__ __align__(16) u8 memory[];
    using Form = typename S::Form;
    const Work<S> work(x);
    const typename S::Keys cache{x.table + work.sequence * x.table_row, x.shift, work.span};
    const Rows<T> k = work.rows_of(x.k, x.k_batch, x.k_head);
    const Rows<T> v = work.rows_of(x.v, x.v_batch, x.v_head);
    Walk<S> walk(cache, k, v, memory + S::QUERIES, work.first_tile, work.tiles);
    walk.fill(memory, x, work);

    Form form;
    Softmax<Form> softmax;
    softmax.clear(form);
    Query queries[Form::ENTRIES];
#pragma unroll
    for (int i = 0; i < Form::ENTRIES; i++) queries[i] = work.query(x, Form::row(i));
    cp_async::wait<2 * S::STAGES - 1>();
    __syncthreads();  // everybody's part of the queries, and this warp's first keys
    form.load_queries(static_cast<u32>(__cvta_generic_to_shared(memory)));
    attend<S>(form, softmax, walk, x.rules, work.common, queries);
    softmax.close();
    cp_async::wait_all();
    __syncthreads();  // rings become the board
    const typename S::States board(memory + S::QUERIES);
    board.put(form, softmax, warp::index(), work.rows);
    __syncthreads();
    combine<S>(x, work, board, memory + S::QUERIES);
}

}  // namespace decode
