// Which tile of queries comes next.
//
// Tiles are numbered so that the longest come first: with a causal mask, the last queries see the most
// keys. `section` heads are finished before the next ones start, so that those at work at the same time
// share keys in L2. Persistent CTAs take tiles from a counter in global memory, as they get free; or,
// without one, by turns, forwards and backwards: who got the longest of one round gets the shortest of
// the next.
#pragma once

#include "common/mbarrier.cuh"
#include "common/types.cuh"
#include "common/warp.cuh"

namespace attention {

using mbarrier::Barrier;

struct Tile {
    i32 m, head, batch;
};

struct Schedule {
    i32 m_tiles, heads, batch, section;
    u32* counter;  // null, or a zero

    __device__ __forceinline__ i32 count() const { return m_tiles * heads * batch; }

    __device__ __forceinline__ Tile at(i32 index) const {
        const i32 pairs = heads * batch, first = index / (m_tiles * section) * section;
        const i32 width = min(section, pairs - first), within = index - first * m_tiles;
        const i32 pair = first + within % width;
        return {m_tiles - 1 - within / width, pair % heads, pair / heads};
    }

    // The tile of worker `worker` of `workers` in round `round`; count() or more if there is none. Past
    // the first round there are as many tiles left, and workers that learn that none is, as tiles in
    // all: so the counter comes back to zero.
    __device__ __forceinline__ i32 take(i32 round, i32 worker, i32 workers) const {
        if (round == 0) return worker;
        if (counter != nullptr) return workers + atomicInc(counter, count() - 1);
        return round * workers + (round % 2 ? workers - 1 - worker : worker);
    }
};

// One thread takes tiles and tells the warps of its CTA by words in shared memory.
struct Ticket {
    Barrier *full, *empty;
    int4* tile;  // x < 0: none

    __device__ __forceinline__ void init(int readers) const {
        mbarrier::init(full, 1);
        mbarrier::init(empty, readers);
    }

    // By one thread.
    __device__ __forceinline__ void write_all(const Schedule& schedule, i32 worker,
                                              i32 workers) const {
        const i32 count = schedule.count();
        for (i32 round = 0, rounds = 0;; round++) {
            const i32 taken = schedule.take(round, worker, workers);
            const bool last = schedule.counter != nullptr ? taken >= count : round * workers >= count;
            if (!last && taken >= count) continue;
            mbarrier::wait(empty, (rounds & 1) ^ 1);
            const Tile next = last ? Tile{-1, 0, 0} : schedule.at(taken);
            *tile = make_int4(next.m, next.head, next.batch, 0);
            mbarrier::arrive(full);
            rounds++;
            if (last) break;
        }
    }

    // Calls `work(tile)` for every tile, by a whole warp; its numbers are known to be uniform.
    template <class Work> __device__ __forceinline__ void for_each(Work work) const {
        for (u32 parity = 0;; parity ^= 1) {
            mbarrier::wait(full, parity);
            const int4 got = *tile;
            __syncwarp();
            if (warp::lane() == 0) mbarrier::arrive(empty);
            const Tile next{warp::uniform(got.x), warp::uniform(got.y), warp::uniform(got.z)};
            if (next.m < 0) break;
            work(next);
        }
    }
};

}  // namespace attention
