// Copying tiles of an operand from global to shared memory, shared out among the threads of a CTA.
//
// ALIGN is what divides the operand's base, its row stride and the length of its rows, in bytes.
// No piece of that size straddles the end of a row, so a piece is copied whole or is zeros: tiles
// that reach past the matrix are filled up with zeros, and 0 x 0 adds nothing.
#pragma once

#include "common/cp_async.cuh"
#include "common/vec.cuh"
#include "matmul/sm80/tile.cuh"

namespace sm80 {

// A matrix, `stride` elements between stored rows, and the part of it that a CTA works on: rows of A
// (or columns of B) from `first_outer` of `outers` on, k from k_begin to k_end.
template <class T> struct Operand {
    const T* data;
    i64 stride;
    i64 first_outer, outers;
    i64 k_begin, k_end;
};

// Which pieces of each tile this thread copies. Consecutive threads take consecutive pieces: they
// read whole sectors and write whole lines of shared memory. From one of its pieces to the next a
// thread goes ROW_STEP rows down; `next` walks with it, which needs fewer registers than an
// address for each.
template <class TILE, int THREADS, int PIECE> struct Strip {
    using T = typename TILE::T;
    static constexpr bool BY_K = TILE::MAJOR == Major::k;
    static constexpr u32 PER_ROW = TILE::ROW_BYTES / PIECE;
    static constexpr u32 ROW_STEP = THREADS / PER_ROW;
    static constexpr int COUNT = TILE::ROWS / ROW_STEP;
    static_assert(THREADS % PER_ROW == 0 && TILE::ROWS % ROW_STEP == 0);

    const T* next;   // this thread's next piece
    i64 step;        // elements from there to the one after, in the same tile
    i64 next_tile;   // elements from past the tile's last piece to the next tile's first
    i32 k_left;      // k that are left, from the tile's first on
    i32 outer_left;  // rows of A or columns of B that are left
    u32 row, byte;   // of the first piece in a tile

    __device__ __forceinline__ explicit Strip(const Operand<T>& x)
        : step(ROW_STEP * x.stride), next_tile(BY_K ? TILE::BK - TILE::ROWS * x.stride : 0),
          k_left(i32(x.k_end - x.k_begin)),
          outer_left(i32(min(x.outers - x.first_outer, i64(TILE::OUTER)))),
          row(threadIdx.x / PER_ROW), byte(threadIdx.x % PER_ROW * PIECE) {
        const i64 first_row = (BY_K ? x.first_outer : x.k_begin) + row;
        const i64 first_column = (BY_K ? x.k_begin : x.first_outer) + byte / sizeof(T);
        next = x.data + first_row * x.stride + first_column;
    }

    __device__ __forceinline__ void advance_tile() {
        next += next_tile;
        k_left -= TILE::BK;
    }

    // Elements of piece i, and of all that follow it in its row, that exist. None if <= 0.
    __device__ __forceinline__ i32 elements(int i) const {
        const i32 rows = BY_K ? outer_left : k_left, columns = BY_K ? k_left : outer_left;
        return i32(row + i * ROW_STEP) < rows ? columns - i32(byte / sizeof(T)) : 0;
    }

    // Byte offset of piece i in the tile.
    __device__ __forceinline__ u32 place(int i) const {
        return TILE::offset(row + i * ROW_STEP, byte / CHUNK_BYTES) + byte % CHUNK_BYTES;
    }
};

// The first `count` (at most 8) elements of a 16-byte chunk, and zeros, by loads of ALIGN bytes.
template <int ALIGN, class T> __device__ __forceinline__ uint4 load_chunk(const T* from, i32 count) {
    using Piece = typename Word<ALIGN>::type;
    constexpr int pieces = CHUNK_BYTES / ALIGN, elements = ALIGN / sizeof(T);
    union { uint4 whole; Piece piece[pieces]; } chunk;
    chunk.whole = make_uint4(0, 0, 0, 0);
#pragma unroll
    for (int i = 0; i < pieces; ++i)
        if (i * elements < count)
            chunk.piece[i] = __ldg(reinterpret_cast<const Piece*>(from) + i);
    return chunk.whole;
}

// Copies through registers: global loads now, shared stores later. Any alignment.
template <class TILE, int THREADS, int ALIGN> struct RegisterCopy {
    Strip<TILE, THREADS, CHUNK_BYTES> strip;
    uint4 held[Strip<TILE, THREADS, CHUNK_BYTES>::COUNT];

    __device__ __forceinline__ explicit RegisterCopy(const Operand<typename TILE::T>& x)
        : strip(x) {}

    __device__ __forceinline__ void load() {
#pragma unroll
        for (int i = 0; i < strip.COUNT; ++i, strip.next += strip.step)
            held[i] = load_chunk<ALIGN>(strip.next, strip.elements(i));
        strip.advance_tile();
    }

    __device__ __forceinline__ void store(u8* tile) const {
#pragma unroll
        for (int i = 0; i < strip.COUNT; ++i)
            *reinterpret_cast<uint4*>(tile + strip.place(i)) = held[i];
    }
};

// Copies that the thread need not wait for. A tile is started in parts, to spread them over the
// arithmetic of another. Operands at odd addresses are beyond cp.async and pass through registers.
template <class TILE, int THREADS, int ALIGN> struct AsyncCopy {
    static constexpr int PIECE = ALIGN < 4 ? int(CHUNK_BYTES) : ALIGN;
    Strip<TILE, THREADS, PIECE> strip;

    __device__ __forceinline__ explicit AsyncCopy(const Operand<typename TILE::T>& x) : strip(x) {}

    // Part `part` of `parts` of the next tile, to shared memory at `tile`.
    __device__ __forceinline__ void start(u8* tile, int part, int parts) {
        constexpr int count = Strip<TILE, THREADS, PIECE>::COUNT;
#pragma unroll
        for (int i = part * count / parts; i < (part + 1) * count / parts; ++i) {
            u8* to = tile + strip.place(i);
            if constexpr (ALIGN < 4)
                *reinterpret_cast<uint4*>(to) = load_chunk<ALIGN>(strip.next, strip.elements(i));
            else
                cp_async::copy<PIECE, PIECE != 16>(to, strip.next,
                                                   strip.elements(i) > 0 ? PIECE : 0);
            strip.next += strip.step;
        }
    }

    __device__ __forceinline__ void advance_tile() { strip.advance_tile(); }
};

}  // namespace sm80
