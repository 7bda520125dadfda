// Where the keys and values of one KV head of one sequence lie, and how a warp fetches a tile of
// them: 16 rows, 16 bytes per lane, by cp.async, to the place in shared memory that its MMA wants
// them.
//
// Rows outside the span are neither read nor looked up, they become zeros: a page table may hold
// anything beyond the last page, and memory past the end of a sequence may hold NaN.
#pragma once

#include "attention/decode/rules.cuh"
#include "common/cp_async.cuh"
#include "common/opaque.cuh"
#include "common/warp.cuh"

namespace decode {

constexpr int TILE = 16;  // keys per step of a warp

// none: rows at a fixed stride. whole: pages of a multiple of TILE rows, so that a tile has one
// page. any: pages of any power of two, looked up row by row.
enum class Pages { none, whole, any };

// Rows of K, or of V: base is row 0 of the sequence, or of page 0.
template <class T> struct Rows {
    const T* base;
    i64 row, page;  // elements from row to row, from page to page
};

// For ldmatrix: rows one after another, 16 bytes apart, so that eight of them start in eight banks.
template <int BYTES> struct Padded {
    static constexpr int PITCH = BYTES + 16;

    static __device__ __forceinline__ int at(int row, int piece) {
        return row * PITCH + piece * 16;
    }
    static __device__ __forceinline__ int below(int at, int rows) { return at + rows * PITCH; }
};

// For wgmma: slabs of 64 dims and ROWS rows, 128-byte swizzle.
template <int ROWS> struct Swizzled {
    static constexpr int SLAB = ROWS * 128;

    static __device__ __forceinline__ int at(int row, int piece) {
        return piece / 8 * SLAB + row * 128 + (piece % 8 ^ row % 8) * 16;
    }
    // So many rows below a place, a multiple of a power of two that the place's row is below.
    static __device__ __forceinline__ int below(int at, int rows) {
        return (at ^ rows % 8 * 16) + rows * 128;
    }
};

// The largest power of two that divides both this and a warp's size.
__device__ constexpr int common_power(int pieces) {
    return pieces % warp::SIZE ? pieces & -pieces : warp::SIZE;
}

template <class T, int DIM, Pages PAGES, class PLACE> struct Cache {
    static constexpr int ELEMENTS = 16 / sizeof(T), PIECES = DIM / ELEMENTS;  // of 16 bytes
    static constexpr int COPIES = TILE * PIECES / warp::SIZE;
    static_assert(DIM % 16 == 0 && TILE * PIECES % warp::SIZE == 0);
    // After PERIOD copies a lane is in the same column again, DOWN rows further.
    static constexpr int PERIOD = PIECES / common_power(PIECES);
    static constexpr int DOWN = PERIOD * warp::SIZE / PIECES;
    static constexpr int UNROLL = sizeof(T) == 1 && DIM == 256 ? 2 : COPIES;  // or registers spill
    static constexpr int ENTRIES = PAGES == Pages::any ? TILE : 1;  // of the table, for a tile

    const u32* table;  // the sequence's pages
    i32 shift;         // log2 of the rows of a page
    Span span;
    i32 row[PERIOD], place[PERIOD];  // of this lane's first copies in a tile, and where they go

    __device__ __forceinline__ Cache(const u32* table, i32 shift, Span span)
        : table(table), shift(shift), span(span) {
#pragma unroll
        for (int i = 0; i < PERIOD; i++) {
            const int piece = i * warp::SIZE + warp::lane();
            row[i] = piece / PIECES, place[i] = PLACE::at(row[i], piece % PIECES);
            if (PERIOD == 1) place[i] = opaque(place[i]);  // not to be worked out every time
        }
    }

    // What this lane is to look up for the tile that starts at this key: the tile's page, or that
    // of one of its keys.
    __device__ __forceinline__ i32 asked(i32 tile) const {
        return PAGES == Pages::any ? tile + warp::lane() % TILE : max(span.first, tile);
    }
    __device__ __forceinline__ u32 look_up(i32 tile) const {
        if constexpr (PAGES == Pages::none) return 0;
        const i32 key = asked(tile);
        return span.has(key) ? table[key >> shift] : 0;
    }
    // The same, on its way to shared memory, an entry per lane.
    __device__ __forceinline__ void fetch_entries(u32* to, i32 tile) const {
        const i32 key = asked(tile), lane = warp::lane();
        if (lane < ENTRIES)
            cp_async::copy<4>(to + lane, table + (key >> shift), span.has(key) ? 4 : 0);
    }
    // Bytes from the base to the row of the tile that this lane has the page of; to its first one,
    // where that tells of all.
    __device__ __forceinline__ i64 offset(const Rows<T>& rows, i32 tile, u32 page) const {
        const i32 in_page = (1 << shift) - 1, row = PAGES == Pages::any ? asked(tile) : tile;
        if constexpr (PAGES == Pages::none) return tile * rows.row * sizeof(T);
        return (page * rows.page + (row & in_page) * rows.row) * sizeof(T);
    }
    __device__ __forceinline__ void fetch(u8* slot, const Rows<T>& rows, i32 tile, u32 page) const {
        const i64 own = offset(rows, tile, page), step = rows.row * sizeof(T);
        const u32 before = span.first - tile, seen = max(0, span.last - span.first);
        const u8* base = reinterpret_cast<const u8*>(rows.base);
        const u8* from[PERIOD];
#pragma unroll UNROLL
        for (int i = 0; i < COPIES; i++) {
            const int n = i % PERIOD, down = i / PERIOD * DOWN, r = row[n] + down;
            const int column = (n * warp::SIZE + warp::lane()) % PIECES;
            if (PAGES == Pages::any) from[n] = base + __shfl_sync(0xffffffff, own, r) + column * 16;
            else if (i < PERIOD) from[n] = base + own + r * step + column * 16;
            else from[n] += DOWN * step;
            cp_async::copy<16, false>(slot + PLACE::below(place[n], down), from[n],
                                      r - before < seen ? 16 : 0);
        }
    }
};

}  // namespace decode
