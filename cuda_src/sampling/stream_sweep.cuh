// Further readings of a row, by all CTAs of its cluster.
#pragma once

#include "sampling/stream_row.cuh"

template <class Row> struct StreamSweep {
    using Shared = typename Row::Shared;
    static constexpr int WARPS = Row::WARPS;

    Row& row;
    Shared& s;
    const Order order;

    // A lane's logits of this warp's blocks, a few at a time while the next are on their way; `over(b)`
    // after each block.
    static constexpr int AHEAD = 8;
    template <class Visit, class Over>
    __device__ __forceinline__ void each(Visit visit, Over over) const {
        const int parts = row.blocks.rounds * (32 / AHEAD), last = row.last();
        int block = row.first(), part = 0;
        if (block >= last) return;
        u32 base = row.blocks.first(block, 0);
        f32 x[AHEAD], next[AHEAD];
        row.logits.read(base, x);
#pragma unroll 1
        while (block < last) {
            const bool end = ++part == parts;
            const int then = end ? block + WARPS : block;
            const u32 ahead = end ? row.blocks.first(then, 0) : base + 32 * AHEAD;
            if (then < last) row.logits.read(ahead, next);
            row.logits.forbid(base, x);
            visit(base, x);
            if (end) over(block), part = 0;
#pragma unroll
            for (int i = 0; i < AHEAD; ++i) x[i] = next[i];
            block = then, base = ahead;
        }
    }

    __device__ __forceinline__ void count() {
        const Ruler ruler(order.low, order.high);
        if (row.rank) s.bins.clear();
        each([&](u32, const f32 (&x)[AHEAD]) {
#pragma unroll
            for (int i = 0; i < AHEAD; ++i) {
                const f32 clean = key::clean(x[i]);
                const u32 k = key::of(clean);
                if (k - order.low <= order.high - order.low) s.bins.count(ruler.part(clean, k));
            }
        }, [](int) {});
        __syncthreads();
        if (row.rank) row.hand_over(s.bins.low);
    }

    // Few logits of many are listed, but some of most warps' 32: what all of them cost is what counts.
    __device__ __forceinline__ void list() {
        const Weigh weigh = row.weigher();
        const f32 min_p = s.settings.min_p, most = key::most(order.high);
        if (min_p == 0.0f && weigh.unit == 1.0f && weigh.max < LARGEST && weigh(most) > 1e-30f)
            list(most, [&](f32 x) { return weigh.near(x); });
        else
            list(most, [&](f32 x) {
                const f32 e = weigh(fminf(x, LARGEST));  // infinities count as that
                return e >= min_p ? e : 0.0f;
            });
        if (Row::CTAS > 1) hand_over();
    }

    template <class Value> __device__ __forceinline__ void list(f32 most, Value value) {
        const f32 least = key::least(order.low);
        u64 total = 0;
        each([&](u32 base, const f32 (&x)[AHEAD]) {
            Mass sum;
            u32 bits = 0;
#pragma unroll
            for (int i = 0; i < AHEAD; ++i) {
                const bool above = x[i] > most;
                bits |= !above && x[i] >= least ? 1u << i : 0u;
                const f32 e = value(x[i]);
                sum.add(Mass::of(above ? e : 0.0f));
            }
            total += sum.total();
            while (__any_sync(0xffffffff, bits))
                if (bits) put(base + row.logits.at(warp::lane(), __ffs(bits) - 1)), bits &= bits - 1;
        }, [&](int block) {
            total = team::warp_sum(total);
            if (warp::lane() == 0) dsmem::store(dsmem::at(&s.draw.block[block], 0), total);
            total = 0;
        });
    }

    // Onto this CTA's list. Registers have no index: the logit is read again.
    __device__ __forceinline__ void put(u32 token) {
        const u32 at = atomicAdd(&s.listed, 1u);
        if (at < LIST) s.key[at] = key::of(key::clean(to_f32(row.logits.row[token]))), s.token[at] = token;
    }

    // Adds this CTA's list to that of CTA 0; its own is empty again.
    __device__ __forceinline__ void hand_over() {
        if (row.rank == 0) return;
        __syncthreads();
        const u32 n = s.listed;
        if (n == 0) return;
        if (threadIdx.x == 0) s.grouped = dsmem::add(dsmem::at(&s.listed, 0), n);
        __syncthreads();
        const u32 from = s.grouped;
        for (u32 i = threadIdx.x; i < min(n, u32(LIST)) && from + i < LIST; i += WARPS * 32) {
            dsmem::store(dsmem::at(&s.key[from + i], 0), s.key[i]);
            dsmem::store(dsmem::at(&s.token[from + i], 0), s.token[i]);
        }
        if (threadIdx.x == 0) s.listed = 0;
    }
};

// Out of line, with all it needs in shared memory: a rare, long piece of code that must not cost the
// others registers.
template <class Row> __device__ __noinline__ void carry_out() {
    Row row = Row::again();
    StreamSweep<Row> sweep = {row, row.s, row.s.order};
    if (row.s.order.what == Sweep::count) sweep.count();
    else sweep.list();
}
