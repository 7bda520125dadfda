// Bringing keys and values into shared memory, however they lie in memory.
//
//   dense  [batch, keys, heads, dim] by any strides
//   spans  rows of a sequence lie one after the other, as many as its length says: ragged and padded
//   paged  a table names the page of every so many rows
//
// Rows past a sequence's end must arrive as zeros: weights there are zero, but zero times what happens
// to lie there may be NaN. TMA fills with zeros what is outside the tensor, so the tensor is made to
// end where the sequence does: rows are addressed by two coordinates that both step by one row. The
// first, of extent ROWS (those of a box), starts at ROWS - valid and leaves the tensor after `valid`
// rows; the second makes up for that.
#pragma once

#include "attention/sm90/shape.cuh"
#include "common/tma_tiles.cuh"

namespace attention {

enum class Keys { dense, spans, paged };

struct Pages {
    const u32* table;  // of a sequence
    i32 size;          // rows of a page
    i32 box;           // rows that one copy moves: a common divisor of a page and a tile
};

// A sequence's keys or values for one head.
template <class S, Keys KEYS, int CTAS> struct Source {
    const TensorMap* map;
    i32 head, batch, first, length;  // first: row where the sequence starts
    Pages pages;

    static constexpr int PART = S::N / CTAS;  // rows that this CTA fetches, for all of the cluster

    // The rows from `key` on, by the calling warp.
    template <int SLABS>
    __device__ __forceinline__ void fetch(u8* to, Barrier* full, i32 key, u32 rank) const {
        if (warp::lane() == 0) mbarrier::arrive_and_expect(full, SLABS * S::SLAB);
        __syncwarp();
        if constexpr (KEYS == Keys::paged) {
            for (i32 i = warp::lane() * pages.box; i < PART; i += warp::SIZE * pages.box)
                fetch_page<SLABS>(to, full, key, rank * PART + i);
        } else if (warp::lane() == 0) {
            const i32 row = rank * PART;
            copy<SLABS>(to + row * S::ROW, full, at(key + row));
        }
    }

private:
    __device__ __forceinline__ tma::At at(i32 key) const {
        if constexpr (KEYS == Keys::dense) return {0, key, head, batch, 0};
        const i32 valid = min(max(length - key, 0), PART);
        return {0, PART - valid, first + key + valid, head, batch};
    }

    template <int SLABS>
    __device__ __forceinline__ void fetch_page(u8* to, Barrier* full, i32 key, i32 row) const {
        const i32 mine = key + row, valid = min(max(length - mine, 0), pages.box);
        const u32 page = valid > 0 ? pages.table[mine / pages.size] : 0;
        copy<SLABS>(to + row * S::ROW, full,
                    {0, pages.box - valid, mine % pages.size + valid, head, i32(page)});
    }

    template <int SLABS>
    __device__ __forceinline__ void copy(u8* to, Barrier* full, tma::At from) const {
#pragma unroll
        for (int slab = 0; slab < SLABS; slab++, from.x += S::COLS, to += S::SLAB) {
            if constexpr (CTAS == 1) tma::load(to, *map, full, from);
            else tma::load_multicast(to, *map, full, (1 << CTAS) - 1, from);
        }
    }
};

}  // namespace attention
