// A warp's way through its CTA's keys.
#pragma once

#include "attention/decode/work.cuh"

namespace decode {

// Of shared memory, for entries of the page table.
__device__ constexpr int table_bytes(Pages pages, int warps, int stages) {
    return pages == Pages::none ? 0 : warps * stages * TILE * 4;
}

// One warp's tiles of keys and values: the order in which it walks them, and where in the ring they
// go. Page table entries come the same way, with the tile a ring ahead of theirs: in registers they
// would have to be waited for wherever memory must be ordered.
template <class S> struct Walk {
    static constexpr bool PAGED = S::PAGES != Pages::none;

    typename S::Keys cache;
    Rows<typename S::KV> k, v;
    u8* ring;
    u32* table;        // [STAGES][TILE]
    i32 first, tiles;  // of this warp
    u32 page;          // of the tile whose keys were fetched last

    template <class Arguments>
    __device__ __forceinline__ Walk(const Arguments& x, const Work<S>& work, u8* memory)
        : cache(x.table + work.sequence * x.table_row, x.shift, work.span),
          k(work.rows_of(x.k, x.k_batch, x.k_head)), v(work.rows_of(x.v, x.v_batch, x.v_head)),
          ring(memory + S::RING + warp::index() * S::WARP_OFFSET),
          table(reinterpret_cast<u32*>(memory + S::TABLE) + warp::index() * S::STAGES * TILE),
          first(work.first + warp::index() * TILE), tiles(S::own(work.tiles)) {}

    __device__ __forceinline__ i32 key(i32 i) const { return first + i * S::WARPS * TILE; }
    __device__ __forceinline__ u8* k_slot(i32 stage) const { return ring + stage * 2 * S::SLOT; }
    __device__ __forceinline__ u8* v_slot(i32 stage) const { return k_slot(stage) + S::SLOT; }

    // What the tile a ring ahead of this one needs of the table.
    __device__ __forceinline__ void ask(i32 i, i32 stage) const {
        if (PAGED && i + S::STAGES < tiles)
            cache.fetch_entries(table + stage * TILE, key(i + S::STAGES));
    }
    // Without ending its group, to which the first one's queries also belong.
    __device__ __forceinline__ void fetch_k(i32 i, i32 stage) {
        if (i >= tiles) return;
        if (PAGED) {
            page = table[stage * TILE + warp::lane() % S::Keys::ENTRIES];
            __syncwarp();  // all lanes have theirs
        }
        ask(i, stage);
        cache.fetch(k_slot(stage), k, key(i), page);
    }
    __device__ __forceinline__ void fetch_v(i32 i, i32 stage) const {
        if (i < tiles) cache.fetch(v_slot(stage), v, key(i), page);
        cp_async::commit();
    }
    // The first tiles, whose entries are looked up all at once. Queries go first where there is a
    // table to wait for; those of 8-bit caches come otherwise.
    template <class Arguments>
    __device__ __forceinline__ void fill(u8* queries, const Arguments& x, const Work<S>& work) {
        u32 entries[S::STAGES];
#pragma unroll
        for (int i = 0; i < S::STAGES; i++) entries[i] = i < tiles ? cache.look_up(key(i)) : 0;
        if constexpr (PAGED && !S::SCALED) fetch_queries<S>(queries, x, work);
#pragma unroll
        for (int i = 0; i < S::STAGES; i++) {
            page = entries[i];
            ask(i, i);
            if (i < tiles) cache.fetch(k_slot(i), k, key(i), page);
            if constexpr (!PAGED && !S::SCALED)
                if (i == 0) fetch_queries<S>(queries, x, work);
            cp_async::commit();
            fetch_v(i, i);
        }
    }
    // The oldest half tile is there, for all lanes.
    static __device__ __forceinline__ void wait() {
        cp_async::wait<2 * S::STAGES - 1>();
        __syncwarp();
    }
};

}  // namespace decode
