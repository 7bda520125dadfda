// How a tile of A or B lies in shared memory, and how to keep its rows out of each other's banks.
//
// A tile keeps the order of global memory: rows run along whichever dimension is contiguous there,
// so that a 16-byte chunk of a row is copied whole. `Major::k`: a row holds consecutive k of one m
// (or n). `Major::mn`: a row holds consecutive m (or n) of one k, and ldmatrix transposes.
//
// Shared memory serves 128 bytes (32 banks) a clock. ldmatrix reads the same chunk of 8 consecutive
// rows: if rows start 128 bytes apart these are the same banks, eight clocks instead of one. The
// swizzle XORs the chunk's place with the row's number, so that the same chunk of 8 consecutive
// rows takes 8 different places. Copies still fill whole lines, only in another order.
#pragma once

#include "common/types.cuh"

namespace sm80 {

enum class Major { k, mn };
enum class Order { plain, swizzled };

constexpr u32 LINE_BYTES = 128, CHUNK_BYTES = 16;

// Where unit `unit` of row `row` lies within the row, in units, if a row holds ROW units (a power of
// two) and one line LINE. Rows shorter than a line share it and the place in the XOR.
template <u32 ROW, u32 LINE> __device__ __forceinline__ u32 swizzle(u32 row, u32 unit) {
    constexpr u32 sharing = ROW < LINE ? LINE / ROW : 1;
    constexpr u32 places = ROW < LINE ? ROW : LINE;
    return unit ^ (row / sharing % places);
}

// The BM x BN tile of C of a CTA, its step along k, and the part of it that one warp computes.
template <int BM_, int BN_, int BK_, int WM_, int WN_> struct Shape {
    static constexpr int BM = BM_, BN = BN_, BK = BK_, WM = WM_, WN = WN_;
    static constexpr int THREADS = BM / WM * (BN / WN) * 32;
    static_assert(BM % WM == 0 && BN % WN == 0 && WM % 16 == 0 && WN % 16 == 0 && BK % 32 == 0);
};

// OUTER rows of A (or columns of B) by BK, 16-bit elements.
template <class T_, int OUTER_, int BK_, Major MAJOR_, Order ORDER> struct Tile {
    using T = T_;
    static constexpr Major MAJOR = MAJOR_;
    static constexpr u32 OUTER = OUTER_, BK = BK_;
    static constexpr u32 ROWS = MAJOR == Major::k ? OUTER : BK;
    static constexpr u32 COLUMNS = MAJOR == Major::k ? BK : OUTER;
    static constexpr u32 ROW_BYTES = COLUMNS * sizeof(T);
    static constexpr u32 BYTES = ROWS * ROW_BYTES;

    // Byte offset of the 16-byte chunk `chunk` of row `row`.
    static __device__ __forceinline__ u32 offset(u32 row, u32 chunk) {
        constexpr u32 per_row = ROW_BYTES / CHUNK_BYTES, per_line = LINE_BYTES / CHUNK_BYTES;
        const u32 place = ORDER == Order::plain ? chunk : swizzle<per_row, per_line>(row, chunk);
        return row * ROW_BYTES + place * CHUNK_BYTES;
    }
};

}  // namespace sm80
