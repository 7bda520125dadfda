// The main loop of the pipelined rungs: a ring of tiles in shared memory, filled by cp.async.
//
// Two pipelines, one inside the other:
//   global -> shared: STAGES slots. While one is multiplied, up to STAGES - 1 are on their way.
//   shared -> registers: two slots of fragments. The next 16 k are loaded while mma works on these.
//
// One barrier per tile: it makes the next tile visible to all warps, and tells that all have read
// the last of the current one, whose slot is refilled in the next turn.
#pragma once

#include "matmul/sm80/copy.cuh"
#include "matmul/sm80/warp_tile.cuh"

namespace sm80 {

// warp.sum += A B over `steps` >= 1 tiles. On return nothing reads or writes the ring any more.
template <int STAGES, class TILE_A, class TILE_B, class WARP, class COPY_A, class COPY_B>
__device__ __forceinline__ void multiply_ring(WARP& warp, COPY_A& a, COPY_B& b, u8* ring,
                                              i32 steps) {
    constexpr u32 stage = TILE_A::BYTES + TILE_B::BYTES;
    constexpr int blocks = TILE_A::BK / 16;  // even, so that a block's fragment slot is fixed
    const auto start = [&](int slot, int part, int parts) {
        a.start(ring + slot * stage, part, parts);
        b.start(ring + slot * stage + TILE_A::BYTES, part, parts);
    };
    const auto started = [&] {
        a.advance_tile();
        b.advance_tile();
        cp_async::commit();
    };
    const auto load = [&](int fragments, int slot, int k16) {
        const u32 at = u32(__cvta_generic_to_shared(ring)) + slot * stage;
        warp.load(fragments, at, at + TILE_A::BYTES, k16);
    };

#pragma unroll
    for (int slot = 0; slot < STAGES - 1; ++slot) {
        start(slot, 0, 1);
        started();
    }
    cp_async::wait<STAGES - 2>();
    __syncthreads();
    load(0, 0, 0);

    int slot = 0, free = STAGES - 1;
    for (i32 step = 0; step < steps; ++step) {
        const int next = slot + 1 == STAGES ? 0 : slot + 1;
#pragma unroll
        for (int k16 = 0; k16 < blocks; ++k16) {
            if (step + STAGES - 1 < steps) start(free, k16, blocks);
            if (k16 + 1 < blocks) {
                load((k16 + 1) % 2, slot, k16 + 1);
            } else {
                started();  // a group per step, empty at the end: the count to wait for stays
                cp_async::wait<STAGES - 2>();
                __syncthreads();
                if (step + 1 < steps) load(0, next, 0);
            }
            warp.multiply(k16 % 2);
        }
        free = slot;
        slot = next;
    }
    cp_async::wait<0>();  // the zeros that filled slots past the end of a short K
    __syncthreads();
}

}  // namespace sm80
