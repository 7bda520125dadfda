// A tile of queries as all roles of a CTA see it: which sequence, which rows, which keys.
#pragma once

#include "attention/mask.cuh"
#include "attention/rows.cuh"
#include "attention/sm90/keys.cuh"
#include "attention/sm90/schedule.cuh"
#include "attention/sm90/shape.cuh"
#include "attention/terms.cuh"
#include "common/cluster.cuh"

namespace attention {

// What a call is, apart from its arrays.
struct Call {
    Lengths lengths;
    Schedule schedule;   // in units of what a cluster works on
    i32 group_bits;      // 2^this heads share a tile: row r is query r >> bits of one of them
    i32 share;           // tiles' heads per KV head
    i32 top_left, left, right, chunk;
    Pages pages;
    i32 table_batch;     // entries from sequence to sequence of the table

    // Sequences of equal lengths, one head per tile; CTAs know their tiles.
    static __device__ __forceinline__ Call dense(i32 queries, i32 keys, i32 share, i32 top_left,
                                                 i32 left, i32 right, i32 chunk) {
        return {{queries, keys, nullptr, nullptr, nullptr, nullptr}, {}, 0, share, top_left,
                left, right, chunk, {}, 0};
    }
};

template <class S, Mask MASK, Keys KEYS, int CTAS> struct Job {
    Sequence sequence;
    Visible<MASK> visible;
    i32 head, batch;  // of the tile; `head` counts groups of heads
    i32 row, rows;    // first row of this CTA, and how many the sequence has
    i32 first, end;   // blocks of N keys that some row sees

    static constexpr int ROWS = S::WGS * S::ROWS;

    Job() = default;
    __device__ __forceinline__ Job(const Call& call, const Tile& tile, u32 rank) {
        batch = tile.batch;
        head = tile.head;
        sequence = Sequence::of<KEYS != Keys::dense>(call.lengths, batch);
        rows = sequence.queries << call.group_bits;
        visible = {sequence.keys, call.top_left ? 0 : sequence.keys - sequence.queries, call.left,
                   call.right, call.chunk};
        // CTAs of a cluster walk the same keys: those that any of their rows sees.
        const i32 span = CTAS * ROWS, start = tile.m * span;
        row = start + rank * ROWS;
        first = end = 0;
        if (start < rows) {
            const i32 last = min(start + span, rows) - 1;
            first = visible.of(start >> call.group_bits).first / S::N;
            end = (visible.of(last >> call.group_bits).end + S::N - 1) / S::N;
        }
    }
    __device__ __forceinline__ bool empty() const { return first >= end; }
};

}  // namespace attention
