// Shared memory of a CTA of k4_roles.cu, and who says what to whom by which barrier.
//
//   barrier          arrivals              says
//   q_full   [tile]  loader, bytes         queries are there
//   q_empty  [tile]  commit                the last product with them is over
//   full     [stage] loader, bytes         a block of keys, or of values, is there
//   empty    [stage] commit                products with it are over
//   scored   [tile]  commit                S is complete (and so is the O of the block before)
//   risen    [tile]  softmax, 4 warps      the factor for O is written
//   ready    [tile]  softmax, correction   P is written, O rescaled: 8 warps
//   summed   [tile]  softmax, 4 warps      the tile's maxima and sums are written
//   heard    [tile]  correction, 4 warps   and have been read
//   done     [tile]  commit                O is complete
//   told             CLC, bytes            the answer of cluster launch control is there
//   ticket           loader; 13 warps      the next job is written; and has been read (sm90/schedule.cuh)
// No barrier says that S has been read: P is written after that, and `ready` follows. None that a factor
// has been read: the scores that the next one is made of are asked for after `ready`.
#pragma once

#include "attention/sm100/shape.cuh"
#include "common/clc.cuh"

namespace attention {

constexpr int PIECE_COLUMNS = 32;  // of output on its way through shared memory
constexpr int PIECE_PITCH = PIECE_COLUMNS * 2, PIECE_BYTES = warp::SIZE * PIECE_PITCH;
constexpr int ROLE_READERS = 13;   // warps that are told of each job: softmax, correction, multiplier

// What softmax threads tell those that rescale and finish their rows.
template <class S> struct Statistics {
    f32 factor[S::TILES][S::ROWS], max[S::TILES][S::ROWS], sum[S::TILES][S::ROWS];
};

template <class S> struct Roles {
    u8* base;

    __device__ __forceinline__ u8* q(int tile) const { return base + tile * S::Q_BYTES; }
    __device__ __forceinline__ u8* stage(u32 i) const { return q(S::TILES) + i * S::STAGE_BYTES; }
    // Two buffers of each of four warps.
    __device__ __forceinline__ u8* piece(u32 warp, u32 turn) const {
        return stage(S::STAGES) + (warp * 2 + turn) * PIECE_BYTES;
    }
    __device__ __forceinline__ Statistics<S>& statistics() const {
        return *reinterpret_cast<Statistics<S>*>(piece(4, 0));
    }
    __device__ __forceinline__ clc::Answer* answer() const {
        return reinterpret_cast<clc::Answer*>(&statistics() + 1);
    }
    __device__ __forceinline__ int4* tile_words() const {
        return reinterpret_cast<int4*>(answer() + 1);
    }
    __device__ __forceinline__ Barrier* barriers() const {
        return reinterpret_cast<Barrier*>(tile_words() + 1);
    }
    __device__ __forceinline__ Barrier* full(u32 i) const { return barriers() + i; }
    __device__ __forceinline__ Barrier* empty(u32 i) const { return full(S::STAGES) + i; }
    __device__ __forceinline__ Barrier* of_tile(int kind, int tile) const {
        return empty(S::STAGES) + kind * S::TILES + tile;
    }
    __device__ __forceinline__ Barrier* q_full(int tile) const { return of_tile(0, tile); }
    __device__ __forceinline__ Barrier* q_empty(int tile) const { return of_tile(1, tile); }
    __device__ __forceinline__ Barrier* scored(int tile) const { return of_tile(2, tile); }
    __device__ __forceinline__ Barrier* risen(int tile) const { return of_tile(3, tile); }
    __device__ __forceinline__ Barrier* ready(int tile) const { return of_tile(4, tile); }
    __device__ __forceinline__ Barrier* summed(int tile) const { return of_tile(5, tile); }
    __device__ __forceinline__ Barrier* heard(int tile) const { return of_tile(6, tile); }
    __device__ __forceinline__ Barrier* done(int tile) const { return of_tile(7, tile); }
    __device__ __forceinline__ Ticket ticket() const {
        Barrier* first = of_tile(8, 0);
        return {first, first + 1, tile_words()};
    }
    __device__ __forceinline__ Barrier* told() const { return of_tile(8, 0) + 2; }
    __device__ __forceinline__ u32* tmem() const { return reinterpret_cast<u32*>(told() + 1); }

    // By one thread, before anybody uses them.
    __device__ __forceinline__ void init() const {
        for (int i = 0; i < S::STAGES; i++) {
            mbarrier::init(full(i), 1);
            mbarrier::init(empty(i), 1);
        }
        constexpr int ARRIVALS[8] = {1, 1, 1, 4, 8, 4, 4, 1};
        for (int tile = 0; tile < S::TILES; tile++)
#pragma unroll
            for (int kind = 0; kind < 8; kind++)
                mbarrier::init(of_tile(kind, tile), ARRIVALS[kind]);
        ticket().init(ROLE_READERS);
        mbarrier::init(told(), 1);
        mbarrier::fence_init();
    }
};

// A warp arrives as one, after all its lanes have come.
__device__ __forceinline__ void arrive_warp(Barrier* barrier) {
    __syncwarp();
    if (warp::lane() == 0) mbarrier::arrive(barrier);
}

}  // namespace attention
