// Which tile of queries comes next.
//
// Persistent CTAs take tiles, longest first (order.cuh), from a counter in global memory as they get
// free: who has a short one gets the next. Without a counter they take turns, back and forth: who had the
// longest of a round has the shortest of the next.
#pragma once

#include "attention/order.cuh"
#include "common/mbarrier.cuh"
#include "common/types.cuh"
#include "common/warp.cuh"

namespace attention {

using mbarrier::Barrier;

struct Schedule : Order {
    u32* counter;  // null, or a zero

    // The tile after tile `index`; count() or more if there is none. There are as many tiles left after
    // the first ones, and workers that learn that none is, as tiles in all: so the counter comes back to
    // zero. By one warp.
    __device__ __forceinline__ i32 after(i32 index, i32 workers) const {
        if (counter == nullptr) return (2 * (index / workers) + 2) * workers - 1 - index;
        const i32 taken = warp::lane() == 0 ? atomicInc(counter, count() - 1) : 0;
        return workers + warp::uniform(taken);
    }
};

// The warp that brings keys takes tiles and tells the others of its CTA by words in shared memory. It
// asks for the next tile once it has asked for the last keys of this one, no sooner: a tile that a busy
// CTA keeps in reserve is one that a free CTA cannot have, and longest-first would be worth nothing.
struct Ticket {
    Barrier *full, *empty;
    int4* tile;  // x < 0: none

    // `readers` warps.
    __device__ __forceinline__ void init(int readers) const {
        mbarrier::init(full, 1);
        mbarrier::init(empty, warp::SIZE * readers);
    }

    // Calls `work(tile)` for this worker's tiles and tells the readers of each. By one warp.
    template <class Work>
    __device__ __forceinline__ void lead(const Schedule& schedule, i32 worker, i32 workers,
                                         Work work) const {
        u32 parity = 1;
        i32 index = worker;
        for (; index < schedule.count(); index = schedule.after(index, workers), parity ^= 1) {
            const Tile next = schedule.at(index);
            write(next, parity);
            work(next);
        }
        write({-1, 0, 0}, parity);
    }

    // Calls `work(tile)` for every tile, by a whole warp; its numbers are known to be uniform.
    template <class Work> __device__ __forceinline__ void for_each(Work work) const {
        for (u32 parity = 0;; parity ^= 1) {
            mbarrier::wait(full, parity);
            const int4 got = *tile;
            mbarrier::arrive(empty);  // every lane that reads: race checkers follow no __syncwarp
            const Tile next{warp::uniform(got.x), warp::uniform(got.y), warp::uniform(got.z)};
            if (next.m < 0) break;
            work(next);
        }
    }

private:
    __device__ __forceinline__ void write(const Tile& next, u32 parity) const {
        mbarrier::wait(empty, parity);
        if (warp::lane() == 0) {
            *tile = make_int4(next.m, next.head, next.batch, 0);
            mbarrier::arrive(full);
        }
        __syncwarp();
    }
};

}  // namespace attention
