// Where the keys and values of one KV head of one sequence lie, and how a warp fetches a tile of
// them: 16 rows, 16 bytes per lane, by cp.async, to the place in shared memory that its MMA wants
// them.
//
// Rows outside the span are neither read nor looked up, they become zeros: a page table may hold
// anything beyond the last page, and memory past the end of a sequence may hold NaN.
#pragma once

#include "attention/decode/rules.cuh"
#include "common/cp_async.cuh"
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
};

// For wgmma: slabs of 64 dims and ROWS rows, 128-byte swizzle.
template <int ROWS> struct Swizzled {
    static constexpr int SLAB = ROWS * 128;

    static __device__ __forceinline__ int at(int row, int piece) {
        return piece / 8 * SLAB + row * 128 + (piece % 8 ^ row % 8) * 16;
    }
};

template <class T, int DIM, Pages PAGES, class PLACE> struct Cache {
    static constexpr int ELEMENTS = 16 / sizeof(T), PIECES = DIM / ELEMENTS;  // of 16 bytes
    static constexpr int COPIES = TILE * PIECES / warp::SIZE;
    static_assert(DIM % 16 == 0 && TILE * PIECES % warp::SIZE == 0);
    // Where copies differ in row and column their addresses are kept in registers: too many.
    static constexpr int UNROLL = DIM > 128 && PIECES % warp::SIZE ? 3 : COPIES;

    const u32* table;  // the sequence's pages
    i32 shift;         // log2 of the rows of a page
    Span span;

    // What the table says of the tile that starts at this key: its page, or that of this lane's
    // key.
    __device__ __forceinline__ u32 look_up(i32 tile) const {
        if constexpr (PAGES == Pages::none) return 0;
        const i32 lane = PAGES == Pages::any ? warp::lane() % TILE : max(span.first - tile, 0);
        return span.has(tile + lane) ? table[(tile + lane) >> shift] : 0;
    }

    __device__ __forceinline__ void fetch(u8* slot, const Rows<T>& rows, i32 tile, u32 page) const {
        const i32 in_page = (1 << shift) - 1;
        const T* from = rows.base;
        if constexpr (PAGES == Pages::none) from += i64(tile) * rows.row;
        if constexpr (PAGES == Pages::whole)
            from += page * rows.page + i64(tile & in_page) * rows.row;
#pragma unroll UNROLL
        for (int i = 0; i < COPIES; i++) {
            const int piece = i * warp::SIZE + warp::lane();
            const int r = piece / PIECES, column = piece % PIECES;
            const T* row = from + r * rows.row;
            if constexpr (PAGES == Pages::any)
                row = from + __shfl_sync(0xffffffff, page, r) * rows.page +
                      ((tile + r) & in_page) * rows.row;
            cp_async::copy<16, false>(slot + PLACE::at(r, column), row + column * ELEMENTS,
                                      span.has(tile + r) ? 16 : 0);
        }
    }
};

}  // namespace decode
