// A warp's way through its CTA's keys.
#pragma once

#include "attention/decode/work.cuh"

namespace decode {

constexpr int AHEAD = 3;  // tiles from the look-up of a page table entry to its use

// One warp's tiles of keys and values: the order in which it walks them, and where in the ring they
// go. A page table entry takes as long to come as a tile.
template <class S> struct Walk {
    typename S::Keys cache;
    Rows<typename S::KV> k, v;
    u8* ring;
    i32 first, tiles;  // of this warp
    u32 pages[AHEAD];  // table entries of the tile to fetch next, and of those after it

    template <class Arguments>
    __device__ __forceinline__ Walk(const Arguments& x, const Work<S>& work, u8* rings)
        : cache{x.table + work.sequence * x.table_row, x.shift, work.span},
          k(work.rows_of(x.k, x.k_batch, x.k_head)), v(work.rows_of(x.v, x.v_batch, x.v_head)),
          ring(rings + warp::index() * S::WARP_OFFSET),
          first(work.first + warp::index() * TILE), tiles(S::tiles(work.steps)) {}

    __device__ __forceinline__ i32 key(i32 i) const { return first + i * S::WARPS * TILE; }
    __device__ __forceinline__ u8* k_slot(i32 stage) const { return ring + stage * 2 * S::SLOT; }
    __device__ __forceinline__ u8* v_slot(i32 stage) const { return k_slot(stage) + S::SLOT; }
    __device__ __forceinline__ u32 look_up(i32 i) const {
        return i < tiles ? cache.look_up(key(i)) : 0;
    }

    // Without ending its group, to which the first one's queries also belong.
    __device__ __forceinline__ void fetch_k(i32 i, i32 stage) const {
        if (i < tiles) cache.fetch(k_slot(stage), k, key(i), pages[0]);
    }
    __device__ __forceinline__ void fetch_v(i32 i, i32 stage) {
        if (i < tiles) cache.fetch(v_slot(stage), v, key(i), pages[0]);
        cp_async::commit();
        turn(look_up(i + AHEAD));
    }
    // One tile on: entries move up, and the last one is this.
    __device__ __forceinline__ void turn(u32 last) {
#pragma unroll
        for (int i = 0; i + 1 < AHEAD; i++) pages[i] = pages[i + 1];
        pages[AHEAD - 1] = last;
    }
    // The first tiles, whose entries are looked up all at once. Queries go first where there is a
    // table to wait for; those of 8-bit caches come otherwise.
    template <class Arguments>
    __device__ __forceinline__ void fill(u8* queries, const Arguments& x, const Work<S>& work) {
        constexpr bool PAGED = S::PAGES != Pages::none;
        u32 entries[S::STAGES + AHEAD];
#pragma unroll
        for (int i = 0; i < S::STAGES + AHEAD; i++) entries[i] = look_up(i);
        if constexpr (PAGED && !S::SCALED) fetch_queries<S>(queries, x, work);
#pragma unroll
        for (int i = 0; i < S::STAGES; i++) {
            pages[0] = entries[i];
            fetch_k(i, i);
            if constexpr (!PAGED && !S::SCALED)
                if (i == 0) fetch_queries<S>(queries, x, work);
            cp_async::commit();
            if (i < tiles) cache.fetch(v_slot(i), v, key(i), pages[0]);
            cp_async::commit();
        }
#pragma unroll
        for (int i = 0; i < AHEAD; i++) pages[i] = entries[S::STAGES + i];
    }
    // The oldest half tile is there, for all lanes.
    static __device__ __forceinline__ void wait() {
        cp_async::wait<2 * S::STAGES - 1>();
        __syncwarp();
    }
};

}  // namespace decode
