// How the CTAs of a cluster finish a row that they keep, where a list will not do.
#pragma once

#include "sampling/row.cuh"

template <int THREADS, int CLUSTER, int CANDIDATES>
struct WholeRow : RowTeam<THREADS, CLUSTER, CANDIDATES> {
    using Team = RowTeam<THREADS, CLUSTER, CANDIDATES>;
    using Team::RowTeam, Team::WARPS, Team::s, Team::x, Team::part, Team::settings, Team::V, Team::joint;
    using Team::full, Team::top, Team::parity, Team::sweep, Team::quad, Team::cluster_sum, Team::search;
    using Team::gather, Team::greedy, Team::random_below;

    __device__ __forceinline__ Outcome finish_row(i32 k, const Weigh& weigh) {
        u32 limit = key::NOTHING;
        if (k) {
            team::Bracket b = {key::NOTHING, top, ~0ull};
            search(b, k, CountLogits{}, [=](const team::Bracket& b) { return b.at_low <= k; });
            limit = b.low;
        }
        const u64 all = weigh_row(limit, weigh);
        u64 kept = cluster_sum(row_mass(1));
        if (threadIdx.x == 0) s.listed = 0;  // whoever looked at it has passed a barrier since
        u32 threshold = 1;
        if (settings.top_p < 1.0f && !greedy()) {
            const u64 need = fraction(settings.top_p, joint ? all : kept);
            if (need <= kept) threshold = nucleus(kept, need);
            kept = cluster_sum(row_mass(threshold));
        }
        return draw(threshold, kept);
    }

    // The least weight of the nucleus: over the row until few elements are left, then on the list.
    __device__ __forceinline__ u32 nucleus(u64 kept, u64 need) {
        team::Bracket b = {lower_bound(kept - need), 0x3f800000, ~0ull};
        search(b, need, SumWeights{}, [](const team::Bracket& b) {
            // Every element of the bracket weighs at least `low`, which is many units of mass.
            return b.low > 0x30800000 && f32(b.at_low - b.at_high) <
                                             (CANDIDATES - 1) * MASS_UNIT * __uint_as_float(b.low);
        });
        if (b.low >= b.high) return b.low;
        gather(__uint_as_float(b.low), __uint_as_float(b.high));
        cluster::sync();
        u32 threshold = 0;
        if (cluster::rank() == 0) {
            const int n = s.listed;
            threshold = team::search<WARPS>(
                {b.low, b.high, ~0ull}, need - b.at_high, need - b.at_high, s.slots, [&](u32 at) {
                    u64 sum = 0;
                    for (int i = warp::lane(); i < n; i += 32) {
                        const f32 e = key::value(s.key[i]);
                        if (__float_as_uint(e) >= at) sum += mass_of(e);
                    }
                    return sum;
                });
        }
        team::post(s.board, parity, [=](int) { return threshold; });
        threshold = u32(s.board.slot[parity][0][0]);
        parity ^= 1;
        return threshold;
    }

    // Turns logits into weights, zero where a filter drops them; the mass of all tokens if joint.
    __device__ __forceinline__ u64 weigh_row(u32 limit, const Weigh& weigh) {
        Mass all;
        sweep([&](int q) {
            Vec<f32, 4>& v = quad(q);
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                const f32 e = weigh(v.lane[j]);
                if (joint) all.add(Mass::of(e));
                v.lane[j] = key::of(v.lane[j]) >= limit && e >= settings.min_p ? e : 0.0f;
            }
        });
        return joint ? cluster_sum(all.total()) : 0;
    }

    // This thread's weights of at least `threshold`.
    __device__ __forceinline__ u64 row_mass(u32 threshold) {
        Mass sum;
        sweep([&](int q) {
            const Vec<f32, 4> v = quad(q);
#pragma unroll
            for (int j = 0; j < 4; ++j)
                if (__float_as_uint(v.lane[j]) >= threshold) sum.add(Mass::of(v.lane[j]));
        });
        return sum.total();
    }

    // Weights below it add up to no more than `spare`.
    __device__ __forceinline__ u32 lower_bound(u64 spare) const {
        return max(1u, __float_as_uint(0.999f * (f32(spare) / (MASS_UNIT * f32(V)))));
    }

    // The token where the running sum of weights passes the random number. The board and s.warp_mass
    // hold the masses of the CTAs and of this CTA's warps.
    __device__ __forceinline__ Outcome draw(u32 threshold, u64 mass) {
        u64 rest = random_below(mass);
        u32 rank = 0, token = 0;
        const auto& masses = s.board.slot[parity ^ 1][0];
        for (; rank + 1 < CLUSTER && rest >= masses[rank]; ++rank) rest -= masses[rank];
        if (rank == cluster::rank()) {
            int w = 0;
            for (; w + 1 < WARPS && rest >= s.warp_mass[w]; ++w) rest -= s.warp_mass[w];
            if (w == threadIdx.x / 32) walk(threshold, rest);
            __syncthreads();
            token = s.drawn;
        }
        return share({rank, token, threshold, mass, true});
    }

    // This warp's run, 32 quads a step, until the running sum passes `rest`.
    __device__ __forceinline__ void walk(u32 threshold, u64 rest) {
        const int run = (part.quads() + WARPS - 1) / WARPS, first = threadIdx.x / 32 * run;
        const int last = min(first + run, part.quads());
        for (int base = first; base < last; base += 32) {
            const int q = base + warp::lane();
            u64 upto[4], sum = 0;
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                const f32 e = q < last ? quad(q).lane[j] : 0.0f;
                sum += __float_as_uint(e) >= threshold ? mass_of(e) : 0;
                upto[j] = sum;
            }
            const u64 before = team::warp_scan(sum) - sum;
            if (const u32 hit = __ballot_sync(0xffffffff, before + sum > rest)) {
                if (warp::lane() == __ffs(hit) - 1) {
                    int j = 0;
                    while (j < 3 && before + upto[j] <= rest) ++j;
                    s.drawn = part.first + 4 * q + j;
                }
                return;
            }
            rest -= __shfl_sync(0xffffffff, before + sum, 31);
        }
    }

    // Tells every CTA what the writer knows, if they need it.
    __device__ __forceinline__ Outcome share(Outcome o) {
        if (!full) return o;
        team::post(s.board, parity, [&](int what) {
            return what == 0 ? u64(o.threshold) << 32 | o.token : o.mass;
        });
        const u64 both = s.board.slot[parity][0][o.writer];
        o.token = u32(both), o.threshold = u32(both >> 32);
        o.mass = s.board.slot[parity][1][o.writer];
        parity ^= 1;
        return o;
    }

    // The masked and renormalised distribution; all on one token if greedy.
    __device__ __forceinline__ void write(f32* to, const Outcome& o, const Weigh& weigh) {
        const f32 scale = MASS_UNIT / f32(o.mass);
        for (int i = threadIdx.x; i < part.count; i += THREADS) {
            const bool kept = (o.weights ? __float_as_uint(x[i]) : key::of(x[i])) >= o.threshold;
            f32 e = o.weights ? x[i] : weigh(x[i]);
            e = kept && e >= settings.min_p ? e * scale : 0.0f;
            const f32 one = part.first + i == o.token ? 1.0f : 0.0f;
            to[part.first + i] = o.mass == 0 ? 0.0f : greedy() ? one : e;
        }
    }
};
