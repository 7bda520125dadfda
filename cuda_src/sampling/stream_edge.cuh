// Where the nucleus of a whole row ends, as the sketch of its first reading tells.
#pragma once

#include "sampling/stream_row.cuh"

// Keys between which the nucleus of a whole row ends, if the sketch tells, and about how many tokens
// reach them. High 0: it does not tell.
struct Edge {
    u32 low = 0, high = 0, tokens = 0;
};

// What it finds is a guess: a further reading proves it.
template <class Row> struct EdgeFinder {
    static constexpr int WARPS = Row::WARPS, THREADS = WARPS * 32, EACH = Sketch::PARTS / THREADS;
    static constexpr f32 OF = Sketch::OF, FITS = f32(LIST / 8 * 7) / OF;

    typename Row::Shared& s;
    const Weigh weigh;
    Upto before = {};  // what is before this thread's parts
    u32 samples = 0;   // in all parts

    // From below, where weights are small and samples tell much: what is dropped is at most all - need,
    // give or take three standard deviations, or what fits the list.
    __device__ __forceinline__ Edge find(u64 dropped) {
        auto& at = s.edge;
        if (s.shape.scale == 0.0f) return {};
        if (threadIdx.x == 0) at.part = at.first = at.last = Sketch::PARTS;
        add_up();
        locate(dropped, [&](u32 part, const Upto&, const Upto& with) {
            const f32 below = fmaxf(f32(dropped) / MASS_UNIT, 1e-30f);
            at.part = part;
            at.spread = fminf(0.5f, 3.0f * sqrtf(with.square * OF * (OF - 1.0f)) / below);
        });
        __syncthreads();
        if (at.part >= Sketch::PARTS) return {};
        locate(u64(f32(dropped) * (1.0f - at.spread)), [&](u32 part, const Upto& before, const Upto&) {
            at.first = part, at.before = before.count;
        });
        locate(u64(f32(dropped) * (1.0f + at.spread)), [&](u32 part, const Upto&, const Upto& with) {
            at.last = part, at.with = with.count;
        });
        __syncthreads();
        return between(at.part, at.first, at.last, f32(at.with - at.before),
                       samples - at.before);
    }

    __device__ __forceinline__ Edge between(u32 part, u32 first, u32 last, f32 inside,
                                            u32 above) const {
        if (inside > FITS) {
            first = part - u32(f32(part - first) * FITS / inside);
            last = part + u32(f32(last - part) * FITS / inside);
        }
        if (first == 0 || last >= Sketch::PARTS - 1) return {};
        const Sketch& sketch = s.shape;
        const u32 low = max(key::NOTHING + 1, key::of(key::clean(sketch.from(first))));
        const u32 high = key::of(key::clean(sketch.from(last + 1)));
        if (low >= high) return {};
        return {low, high - 1, above * Sketch::OF};
    }

    // The parts' sums in their order: a scan over threads.
    __device__ __forceinline__ void add_up() {
        Upto mine = {};
        for (int i = 0; i < EACH; ++i) mine.add(part(threadIdx.x * EACH + i));
        Upto upto = mine;
#pragma unroll
        for (int lanes = 1; lanes < 32; lanes *= 2) {
            const Upto below = upto.below(lanes);
            if (warp::lane() >= lanes) upto.add(below);
        }
        if (warp::lane() == 31) s.edge.warps[threadIdx.x / 32] = upto;
        __syncthreads();
        for (int w = 0; w < WARPS; ++w) {
            if (w < threadIdx.x / 32) before.add(s.edge.warps[w]);
            samples += s.edge.warps[w].count;
        }
        before.add({upto.count - mine.count, upto.square - mine.square, upto.mass - mine.mass});
    }

    __device__ __forceinline__ Upto part(u32 i) const {
        const u32 n = s.sketch[i];
        const f32 w = weigh(s.shape.middle(i));
        return {n, f32(n) * w * w, n * Sketch::OF * mass_of(w)};
    }

    // The part where the mass passes `below`: what is before it, and with it. Some thread has it, if any.
    template <class Found> __device__ __forceinline__ void locate(u64 below, Found found) const {
        Upto here = before;
        for (int i = 0; i < EACH; ++i) {
            Upto with = here;
            with.add(part(threadIdx.x * EACH + i));
            if (here.mass <= below && below < with.mass) found(threadIdx.x * EACH + i, here, with);
            here = with;
        }
    }
};

// Out of line, as other long ways.
template <class Row> __device__ __noinline__ Edge find_edge(u64 dropped) {
    return EdgeFinder<Row>{here<typename Row::Shared>(), Row::again().weigher()}.find(dropped);
}
