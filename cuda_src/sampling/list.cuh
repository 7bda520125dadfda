// Rows with a small k: the few tokens that may be kept, on a list in CTA 0, and its search there.
#pragma once

#include "sampling/row_finish.cuh"

template <int THREADS, int CLUSTER, int CANDIDATES> struct Listing {
    using Row = WholeRow<THREADS, CLUSTER, CANDIDATES>;
    static constexpr int WARPS = Row::WARPS, MAXIMA = CLUSTER * Row::GROUPS;

    Row& row;
    typename Row::Shared& s;

    __device__ __forceinline__ explicit Listing(Row& row) : row(row), s(row.s) {}

    // A key that at least k tokens reach: k groups' maxima do. Close to the largest such.
    __device__ __forceinline__ u32 bound(i32 k) {
        const uint4* maxima = reinterpret_cast<const uint4*>(s.maxima);
        return team::search<WARPS>({row.least, row.top, ~0ull}, k, k + k / 4, s.slots, [&](u32 at) {
            u32 count = 0;
#pragma unroll 4
            for (int i = warp::lane(); i < MAXIMA / 4; i += 32) {
                const uint4 m = maxima[i];
                count += (m.x >= at) + (m.y >= at) + (m.z >= at) + (m.w >= at);
            }
            return count;
        });
    }

    // In CTA 0: the thresholds among n listed tokens, and the draw. `all` is the mass of the whole
    // row, for joint filters.
    __device__ __forceinline__ Outcome finish(int n, i32 k, u32 bound, u64 all, const Weigh& weigh) {
        u32 limit = team::search<WARPS>({bound, row.top, ~0ull}, k, k, s.slots, [&](u32 at) {
            return each(n, [&](int i) { return u64(s.key[i] >= at); });
        });
        u64 mass = weigh_list(n, limit, weigh);
        if (row.settings.top_p < 1.0f && !row.greedy()) {
            const u64 need = fraction(row.settings.top_p, row.joint ? all : mass);
            if (need <= mass) limit = nucleus(n, limit, need);
            mass = weigh_list(n, limit, weigh);
        }
        return {0, ~pick(n, row.random_below(mass)), limit, mass, false};
    }

    template <class Value> __device__ __forceinline__ u64 each(int n, Value value) const {
        u64 sum = 0;
        for (int i = warp::lane(); i < n; i += 32) sum += value(i);
        return sum;
    }

    // The weights of tokens at or above the limit, zero for the others; their mass.
    __device__ __forceinline__ u64 weigh_list(int n, u32 limit, const Weigh& weigh) {
        u64 sum = 0;
        for (int i = threadIdx.x; i < n; i += THREADS) {
            const f32 e = weigh(key::value(s.key[i]));
            s.weight[i] = s.key[i] >= limit && e >= row.settings.min_p ? e : 0.0f;
            sum += mass_of(s.weight[i]);
        }
        sum = team::cta_sum<WARPS>(sum, s.slots[0]);
        __syncthreads();
        return sum;
    }

    __device__ __forceinline__ u32 nucleus(int n, u32 limit, u64 need) {
        return team::search<WARPS>({limit, row.top, ~0ull}, need, need, s.slots, [&](u32 at) {
            return each(n, [&](int i) { return s.key[i] >= at ? mass_of(s.weight[i]) : 0ull; });
        });
    }

    // The complement of the first token at which the running sum exceeds `rest`.
    __device__ __forceinline__ u32 pick(int n, u64 rest) {
        return team::search<WARPS>({~u32(row.V - 1), ~0u, ~0ull}, rest + 1, 0, s.slots, [&](u32 at) {
            return each(n, [&](int i) { return ~s.token[i] >= at ? mass_of(s.weight[i]) : 0ull; });
        });
    }
};

// How the row's settings choose between the list and the whole row.
template <int THREADS, int CLUSTER, int CANDIDATES>
__device__ __forceinline__ Outcome decide(WholeRow<THREADS, CLUSTER, CANDIDATES>& row,
                                          const Weigh& weigh) {
    using List = Listing<THREADS, CLUSTER, CANDIDATES>;
    if (row.top <= key::NOTHING) return {};
    const i32 asked = row.settings.top_k;
    const i32 k = row.greedy() ? 1 : asked > 0 && asked < row.V ? asked : 0;
    if (k == 0 || k > List::MAXIMA / 2) return row.finish_row(k, weigh);

    List list(row);
    const u32 bound = list.bound(k);
    if (bound <= key::NOTHING) return row.finish_row(k, weigh);
    row.gather(key::value(bound), LARGEST);
    u64 all = 0;
    if (row.joint && row.settings.top_p < 1.0f) {
        Mass sum;
        row.sweep([&](int q) {
#pragma unroll
            for (int j = 0; j < 4; ++j) sum.add(Mass::of(weigh(row.quad(q).lane[j])));
        });
        all = row.cluster_sum(sum.total());
    } else {
        cluster::sync();
    }
    const u32 n = dsmem::load(dsmem::at(&row.s.listed, 0));
    if (n > CANDIDATES) return row.finish_row(k, weigh);
    Outcome outcome;
    if (cluster::rank() == 0) outcome = list.finish(n, k, bound, all, weigh);
    return row.share(outcome);
}
