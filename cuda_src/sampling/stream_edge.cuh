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
    static constexpr bool KEEPS = EACH <= 2;  // where threads have registers

    typename Row::Shared& s;
    const Weigh weigh;
    Upto kept[KEEPS ? EACH : 1];  // this thread's parts
    Upto before = {}, own = {};   // what is before them, and in them
    u32 samples = 0;              // in all parts

    // From below, where weights are small and samples tell much: what is dropped is at most all - need,
    // give or take three standard deviations, or what fits the list.
    __device__ __forceinline__ Edge find(u64 dropped) {
        auto& at = s.edge;
        if (s.shape.scale == 0.0f) return {};
        if (threadIdx.x == 0) at.part = at.first = at.last = Sketch::PARTS;
        add_up();
        if (threadIdx.x == 0) at.before = 0, at.with = samples;  // where no part is found
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

    // A key that about as many tokens reach: k, and what three standard deviations may lack.
    __device__ __forceinline__ u32 reached_by(u32 k) {
        auto& at = s.edge;
        if (threadIdx.x == 0) at.part = 0;
        add_up();
        const u32 wanted = k + u32(3.0f * sqrtf((OF - 1.0f) * f32(k))) + Sketch::OF;
        locate<&Upto::count>(samples - min(samples, wanted / Sketch::OF), [&](
            u32 part, const Upto& before, const Upto&) {
            at.part = f32(samples - before.count) > FITS ? 0 : part;
        });
        __syncthreads();
        return at.part == 0 ? 0 : max(key::NOTHING + 1, key::of(key::clean(s.shape.from(at.part))));
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
#pragma unroll
        for (int i = 0; i < EACH; ++i) own.add(KEEPS ? kept[i] = part(i) : part(i));
        Upto upto = own;
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
        before.add({upto.count - own.count, upto.square - own.square, upto.mass - own.mass});
    }

    __device__ __forceinline__ Upto part(int own) const {
        const u32 i = threadIdx.x * EACH + own, n = s.sketch[i];
        const f32 w = weigh(s.shape.middle(i));
        return {n, f32(n) * w * w, n * Sketch::OF * mass_of(w)};
    }

    // The part where the mass, or another sum, passes `below`: what is before it, and with it. Some thread
    // has it, if any.
    template <auto SUM = &Upto::mass, class Found>
    __device__ __forceinline__ void locate(u64 below, Found found) const {
        if (below < before.*SUM || before.*SUM + own.*SUM <= below) return;
        Upto here = before;
#pragma unroll(KEEPS ? EACH : 1)
        for (int i = 0; i < EACH; ++i) {
            Upto with = here;
            with.add(KEEPS ? kept[i] : part(i));
            if (here.*SUM <= below && below < with.*SUM) found(threadIdx.x * EACH + i, here, with);
            here = with;
        }
    }
};

// Out of line, as other long ways.
template <class Row> __device__ __noinline__ Edge find_edge(u64 dropped) {
    return EdgeFinder<Row>{here<typename Row::Shared>(), Row::again().weigher(), {}}.find(dropped);
}
template <class Row> __device__ __noinline__ u32 find_reached(u32 k) {
    return EdgeFinder<Row>{here<typename Row::Shared>(), Row::again().weigher(), {}}.reached_by(k);
}

// Of how many groups' maxima k may be a k-th largest that tells: not of nearly all. 0 if there are too few.
__device__ __forceinline__ bool maxima_tell(i32 k, const Blocks& blocks) {
    return k <= LIST && k <= blocks.count * 32 / 4 * 3;
}
// Whether a sketch is worth its counting.
__device__ __forceinline__ bool sketched(const Settings& settings, bool filtered, const Blocks& blocks) {
    const i32 k = settings.top_k;
    if (settings.greedy() || blocks.V <= LIST) return false;
    if (!filtered) return settings.top_p < 1.0f;
    return k > 0 && k < blocks.V && k <= LIST / 4 * 3 && !maxima_tell(k, blocks);
}
