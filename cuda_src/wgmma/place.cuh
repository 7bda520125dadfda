// Where wgmma looks for an element of a matrix in shared memory, as byte offsets from a tile's start.
//
// A matrix is ROWS (of M or N) by K. It runs along K or along M or N in memory, in lines of SPAN bytes,
// the row of the swizzle's pattern (16 bytes without a swizzle). Eight lines are a piece: a core matrix
// of 8 x 16 bytes, or a swizzle atom. A descriptor says how far apart pieces are, along the lines and
// across them.
#pragma once

#include "common/wgmma.cuh"

template <class T, int ROWS, int K, int SPAN, Major MAJOR> struct Tile {
    static constexpr int SIZE = sizeof(T), LINES = 8, PIECE = LINES * SPAN;
    static constexpr int ALONG = (MAJOR == Major::k ? K : ROWS) * SIZE;  // bytes
    static constexpr int ACROSS = MAJOR == Major::k ? ROWS : K;          // lines
    static constexpr int PIECES = (ALONG + SPAN - 1) / SPAN;
    // Pieces follow each other along M or N first.
    static constexpr int STEP_ALONG = MAJOR == Major::k ? ACROSS / LINES * PIECE : PIECE;
    static constexpr int STEP_ACROSS = MAJOR == Major::k ? PIECE : PIECES * PIECE;
    static constexpr int BYTES = PIECES * (ACROSS / LINES) * PIECE;
    // What the descriptor calls leading and stride; one case has the names the other way round. A
    // swizzled line of K is one piece wide, so there the leading offset means nothing.
    static constexpr bool SWAPPED = SPAN == 16 && MAJOR == Major::mn;
    static constexpr int LEADING = SWAPPED ? STEP_ACROSS : STEP_ALONG;
    static constexpr int STRIDE = SWAPPED ? STEP_ALONG : STEP_ACROSS;
    // From one MMA to the next, 32 bytes of K further on.
    static constexpr int STEP_K = MAJOR == Major::mn ? 32 / SIZE / LINES * STEP_ACROSS
                                  : SPAN == 16      ? 2 * STEP_ALONG
                                                    : 32;

    // The offset of an element. The swizzle exchanges 16-byte chunks within a line of 128 bytes,
    // differently in each of 8 lines; tiles start at multiples of 1024 bytes, so that the offset has
    // the low bits of the address.
    static __device__ __forceinline__ int offset(int row, int k) {
        const int along = (MAJOR == Major::k ? k : row) * SIZE, across = MAJOR == Major::k ? row : k;
        const int plain = along / SPAN * STEP_ALONG + across / LINES * STEP_ACROSS +
                          across % LINES * SPAN + along % SPAN;
        return plain ^ (plain >> 3 & (SPAN - 16));
    }

    static __device__ __forceinline__ u64 descriptor(u32 address) {
        constexpr wgmma::Swizzle SWIZZLE = SPAN == 128  ? wgmma::Swizzle::b128
                                           : SPAN == 64 ? wgmma::Swizzle::b64
                                           : SPAN == 32 ? wgmma::Swizzle::b32
                                                        : wgmma::Swizzle::none;
        return wgmma::descriptor(address, LEADING, STRIDE, SWIZZLE);
    }
};
