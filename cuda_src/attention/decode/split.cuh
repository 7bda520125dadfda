// Decoding: a few query rows against all keys of a sequence, bound by the time it takes to read
// them.
//
// A CTA has one KV head of one sequence, up to ROWS of its query rows (tokens x heads of the
// group), and a slice of the keys. Its warps work alone: each walks tiles of 16 keys, every
// WARPS-th of the slice, through a ring of its own that cp.async fills; no barrier of the CTA until
// the end. Keys and values are waited for one by one, so that copies of 2 STAGES - 1 half tiles are
// always on their way. What the warps of all CTAs have is put together by combine.cuh, in the same
// launch.
//
// Slices are cut on the device from the sequence's length (cut.cuh), so that a captured launch
// serves all lengths.
#pragma once

#include "attention/decode/finish.cuh"
#include "attention/decode/narrow.cuh"
#include "attention/decode/walk.cuh"

namespace decode {

// FORM: Plain or Transposed; ROWS of it are the query rows of a CTA.
template <class FORM, int DIM_, int WARPS_, int STAGES_, int CLUSTER_, Pages PAGES_, Extra EXTRA_,
          Cut CUT_>
struct Split {
    using Form = FORM;
    using T = typename FORM::T;
    using KV = typename FORM::KV;
    static constexpr int DIM = DIM_, WARPS = WARPS_, STAGES = STAGES_, CLUSTER = CLUSTER_;
    static constexpr Pages PAGES = PAGES_;
    static constexpr Extra EXTRA = EXTRA_;
    static constexpr Cut CUT = CUT_;
    static constexpr bool SCALED = sizeof(KV) == 1;
    using Queries = Padded<DIM * 2>;
    using Tile = Padded<DIM * int(sizeof(KV))>;
    using Keys = Cache<KV, DIM, PAGES, Tile>;
    using States = Board<FORM::ROWS, DIM, WARPS, false>;

    static constexpr int SLOT = TILE * Tile::PITCH, WARP_OFFSET = 2 * STAGES * SLOT;
    // Shared memory, in bytes: queries, a factor of each row, pieces that are parts, table entries,
    // rings.
    static constexpr int FACTORS = FORM::ROWS * Queries::PITCH;
    static constexpr int OPEN = FACTORS + (SCALED ? FORM::ROWS * 4 : 0);
    static constexpr int TABLE = OPEN + (CUT == Cut::even ? OPEN_BYTES : 0);
    static constexpr int RING = TABLE + table_bytes(PAGES, WARPS, STAGES);
    static constexpr int ITEMS = DIM / 4;  // of a query row

    // Every WARPS-th of a CTA's is this warp's.
    static __device__ __forceinline__ i32 own(i32 tiles) {
        return max(0, (tiles - warp::index() + WARPS - 1) / WARPS);
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
            softmax.template weigh<false, S::EXTRA>(form, rules, queries, key);
        else
            softmax.template weigh<true, S::EXTRA>(form, rules, queries, key);
        walk.wait();
        form.add_values(static_cast<u32>(__cvta_generic_to_shared(walk.v_slot(stage))));
        __syncwarp();
        walk.fetch_v(i + S::STAGES, stage);
        stage = stage + 1 == S::STAGES ? 0 : stage + 1;
    }
}

template <class S, class A>
__device__ __forceinline__ void decode_piece(const A& x, const Work<S>& work, u8* memory,
                                             Open<S>& open) {
    using Form = typename S::Form;
    Walk<S> walk(x, work, memory);
    walk.fill(memory, x, work);
    if constexpr (S::SCALED) widen_queries<S>(memory, x, work);
    Form form;
    Softmax<Form> softmax;
    softmax.clear(form);
    Query queries[Form::ENTRIES];
#pragma unroll
    for (int i = 0; i < Form::ENTRIES; i++) queries[i] = work.query(x, Form::row(i));
    cp_async::wait<2 * S::STAGES - 1>();
    __syncthreads();  // everybody's part of the queries, and this warp's first keys
    form.load_queries(memory);
    attend<S>(form, softmax, walk, x.rules, work.common, queries);
    softmax.close();
    cp_async::wait_all();
    __syncthreads();  // rings become the board
    const typename S::States board(memory + S::RING);
    board.put(form, softmax, warp::index(), work.rows);
    __syncthreads();
    if constexpr (S::CUT == Cut::grid) combine<S>(x, work, board, memory + S::RING);
    else open.deliver(x, work, board);
}

template <class S, class A> __device__ __forceinline__ void decode_split(const A& x) {
    extern __shared__ __align__(16) u8 memory[];
    Pieces<S, S::CUT> pieces(x);
    if (!pieces.any()) return;
    Open<S> open(memory + S::OPEN);
    decode_piece<S>(x, Work<S>(x, pieces.take(x)), memory, open);
    while (pieces.more()) {
        __syncthreads();  // the board becomes rings
        decode_piece<S>(x, Work<S>(x, pieces.take(x)), memory, open);
    }
    open.close(x);
}

}  // namespace decode
