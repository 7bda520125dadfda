// Further readings of a row, by all CTAs of its cluster.
#pragma once

#include "sampling/stream_row.cuh"

template <class Row> struct StreamSweep {
    using Shared = typename Row::Shared;

    Row& row;
    Shared& s;
    const Order order;

    // A lane's logits of a block, a few at a time while the next are on their way.
    static constexpr int AHEAD = 8;
    template <class Visit> __device__ __forceinline__ void each(int block, Visit visit) const {
        const int parts = row.blocks.rounds * (32 / AHEAD);
        u32 base = row.blocks.first(block, 0);
        f32 x[AHEAD], next[AHEAD];
        row.logits.read(base, x);
#pragma unroll 1
        for (int part = 0; part < parts; ++part, base += 32 * AHEAD) {
            if (part + 1 < parts) row.logits.read(base + 32 * AHEAD, next);
            row.logits.forbid(base, x);
            visit(base, x);
#pragma unroll
            for (int i = 0; i < AHEAD; ++i) x[i] = next[i];
        }
    }

    __device__ __forceinline__ void count() {
        const Ruler ruler(order.low, order.high);
        if (row.rank) s.bins.clear();
        row.each_block([&](int b) {
            each(b, [&](u32, const f32 (&x)[AHEAD]) {
#pragma unroll
                for (int i = 0; i < AHEAD; ++i) {
                    const f32 clean = key::clean(x[i]);
                    const u32 k = key::of(clean);
                    if (k - order.low <= order.high - order.low) s.bins.count(ruler.part(clean, k));
                }
            });
        });
        __syncthreads();
        if (row.rank) row.hand_over(s.bins.low);
    }

    __device__ __forceinline__ void list() {
        const Weigh weigh = row.weigher();
        const f32 min_p = s.settings.min_p;
        row.each_block([&](int b) {
            u64 total = 0;
            each(b, [&](u32 base, const f32 (&x)[AHEAD]) {
                Mass sum;
                u32 bits = 0;
#pragma unroll
                for (int i = 0; i < AHEAD; ++i) {
                    const f32 clean = key::clean(x[i]);
                    const u32 k = key::of(clean);
                    bits |= (k >= order.low && k <= order.high ? 1u : 0u) << i;
                    const f32 e = k > order.high ? weigh(clean) : 0.0f;
                    if (e >= min_p) sum.add(Mass::of(e));
                }
                row.list(bits, x, [&](int i) { return base + row.logits.at(warp::lane(), i); });
                total += sum.total();
            });
            total = team::warp_sum(total);
            if (warp::lane() == 0) dsmem::store(dsmem::at(&s.draw.block[b], 0), total);
        });
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
