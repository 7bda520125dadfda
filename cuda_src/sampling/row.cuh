// A row in the shared memory of a cluster: maxima, thresholds and the draw.
#pragma once

#include "sampling/mass.cuh"
#include "sampling/penalties.cuh"
#include "sampling/philox.cuh"
#include "sampling/settings.cuh"
#include "sampling/shared_row.cuh"
#include "sampling/team.cuh"

// What was decided for a row. The threshold is a logit's key, or a weight's bits once the row holds
// weights. CTA `writer` knows all of it, the others do where a distribution is asked for.
struct Outcome {
    u32 writer = 0, token = 0, threshold = 0;
    u64 mass = 0;
    bool weights = false;
};

// How a search over the row reads an element: its key, and what it adds to the measure.
struct CountLogits {
    __device__ __forceinline__ u32 key(f32 x) const { return key::of(x); }
    __device__ __forceinline__ Mass piece(f32) const { return {0, 1}; }
};
struct SumWeights {
    __device__ __forceinline__ u32 key(f32 e) const { return __float_as_uint(e); }
    __device__ __forceinline__ Mass piece(f32 e) const { return Mass::of(e); }
};

template <int THREADS, int CLUSTER, int CANDIDATES> struct RowTeam {
    using Shared = SharedRow<THREADS, CLUSTER, CANDIDATES>;
    static constexpr int WARPS = THREADS / 32, PIVOTS = Shared::PIVOTS, GROUPS = Shared::GROUPS;

    Shared& s;
    f32* x;
    const Part part;
    const Settings settings;
    const i32 V;
    const bool joint, full;  // full: everyone needs the outcome
    u32 top = 0, least = 0;  // keys of the row's maximum and of the least of its groups' maxima
    int parity = 0;

    __device__ __forceinline__ RowTeam(Shared& s, f32* x, Part part, Settings settings, i32 V,
                                       bool joint, bool full)
        : s(s), x(x), part(part), settings(settings), V(V), joint(joint), full(full) {}

    // --- the row, four tokens at a time; each warp has a run of its own, in the order of tokens ---

    template <class Visit> __device__ __forceinline__ void sweep(Visit visit) {
        const int run = (part.quads() + WARPS - 1) / WARPS, first = threadIdx.x / 32 * run;
        const int last = min(first + run, part.quads());
        for (int q = first + warp::lane(); q < last; q += 32) visit(q);
    }
    __device__ __forceinline__ Vec<f32, 4>& quad(int q) {
        return reinterpret_cast<Vec<f32, 4>*>(x)[q];
    }

    // --- maxima ---

    __device__ __forceinline__ f32 own_maximum() {
        f32 best = -INF;
        sweep([&](int q) {
            const Vec<f32, 4> v = quad(q);
            best = fmaxf(best, fmaxf(fmaxf(v.lane[0], v.lane[1]), fmaxf(v.lane[2], v.lane[3])));
        });
        return best;
    }

    // Every CTA learns the maxima of all groups of lanes, whichever tokens those saw.
    __device__ __forceinline__ void share_maxima(Loaded seen) {
        constexpr int LANES = THREADS / GROUPS;
        f32 best = seen.best;
#pragma unroll
        for (int i = LANES / 2; i; i /= 2) best = fmaxf(best, __shfl_xor_sync(0xffffffff, best, i));
        u32* mine = &s.maxima[cluster::rank()][threadIdx.x / LANES];
        for (int to = threadIdx.x % LANES; to < CLUSTER; to += LANES)
            dsmem::store(dsmem::at(mine, to), key::of(best));
        const u32 nan = __syncthreads_or(seen.nan);
        if (threadIdx.x < CLUSTER)
            dsmem::store(dsmem::at(&s.nan[cluster::rank()], threadIdx.x), nan);
        cluster::sync();
        find_extremes();
    }

    __device__ __forceinline__ void find_extremes() {
        u32 high = 0, low = 0xffffffff;
        for (int i = threadIdx.x; i < CLUSTER * GROUPS; i += THREADS) {
            high = max(high, s.maxima[0][i]);
            low = min(low, s.maxima[0][i]);
        }
        high = __reduce_max_sync(0xffffffff, high), low = __reduce_min_sync(0xffffffff, low);
        if (warp::lane() == 0) s.slots[0][threadIdx.x / 32] = u64(high) << 32 | low;
        __syncthreads();
        top = 0, least = 0xffffffff;
#pragma unroll
        for (int w = 0; w < WARPS; ++w) {
            top = max(top, u32(s.slots[0][w] >> 32));
            least = min(least, u32(s.slots[0][w]));
        }
        __syncthreads();
    }

    // Bit 0: the row has a usable logit. Bit 1: a NaN was seen.
    __device__ __forceinline__ u8 status() const {
        u32 nan = 0;
#pragma unroll
        for (int rank = 0; rank < CLUSTER; ++rank) nan |= s.nan[rank];
        return u8((top > key::NOTHING) | (nan ? 2 : 0));
    }

    // --- sums and searches over the whole cluster ---

    // The sum over the cluster of a value per thread; s.warp_mass keeps those of this CTA's warps.
    __device__ __forceinline__ u64 cluster_sum(u64 value) {
        const u64 sum = team::cta_sum<WARPS>(value, s.warp_mass);
        team::post(s.board, parity, [=](int) { return sum; });
        const u64 all = team::total(s.board, parity, 0);
        parity ^= 1;
        return all;
    }

    // Narrows a bracket until it is done or `enough` says so.
    template <class Element, class Enough>
    __device__ __forceinline__ void search(team::Bracket& b, u64 need, Element element,
                                           Enough enough) {
        while (b.low < b.high && !enough(b)) {
            measure(b, element);
            team::post(s.board, parity, [&](int what) {
                u64 sum = 0;
                for (int w = 0; w < WARPS; ++w) sum += s.sums[what][w];
                return sum;
            });
            int passed = 0;
            u64 measured = 0, all = 0;
            for (; passed < PIVOTS; ++passed) {
                all = team::total(s.board, parity, passed);
                if (all < need) break;
                measured = all;
            }
            b.narrow(passed, PIVOTS, measured, all);
            parity ^= 1;
        }
    }

    // --- the list in CTA 0 ---

    // Puts this CTA's elements from `least` to `most` on the list, in any order. Few warps have any, so
    // each takes places on the list as it meets them. Elements beyond the list's end are only counted.
    __device__ __forceinline__ void gather(f32 least, f32 most) {
        const int run = (part.quads() + WARPS - 1) / WARPS, first = threadIdx.x / 32 * run;
        const int last = min(first + run, part.quads());
        for (int base = first; base < last; base += 32) {
            const int q = base + warp::lane();
            f32 best = -INF;
            if (q < last) {
                const Vec<f32, 4> v = quad(q);
                best = fmaxf(fmaxf(v.lane[0], v.lane[1]), fmaxf(v.lane[2], v.lane[3]));
            }
            if (__any_sync(0xffffffff, best >= least)) put_on_list(q, q < last, least, most);
        }
    }

    __device__ __forceinline__ void put_on_list(int q, bool inside, f32 least, f32 most) {
        Vec<f32, 4> v = {-INF, -INF, -INF, -INF};
        if (inside) v = quad(q);
        u32 mine = 0, at = 0;
#pragma unroll
        for (int j = 0; j < 4; ++j) mine += v.lane[j] >= least && v.lane[j] <= most;
        const u32 upto = u32(team::warp_scan(mine));
        if (warp::lane() == 31 && upto) at = dsmem::add(dsmem::at(&s.listed, 0), upto);
        at = __shfl_sync(0xffffffff, at, 31) + upto - mine;
        const u32 keys = dsmem::at(s.key, 0), tokens = dsmem::at(s.token, 0);
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            if (!(v.lane[j] >= least && v.lane[j] <= most)) continue;
            if (at < CANDIDATES) {
                dsmem::store(keys + 4 * at, key::of(v.lane[j]));
                dsmem::store(tokens + 4 * at, u32(part.first + 4 * q + j));
            }
            ++at;
        }
    }

    // Leaves in s.sums what each warp's elements add to the measures of the bracket's pivots.
    template <class Element>
    __device__ __forceinline__ void measure(const team::Bracket& b, Element element) {
        u32 pivot[PIVOTS];
        Mass sum[PIVOTS];
#pragma unroll
        for (int i = 0; i < PIVOTS; ++i) pivot[i] = b.pivot(i, PIVOTS);
        sweep([&](int q) {
            const Vec<f32, 4> v = quad(q);
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                const Mass piece = element.piece(v.lane[j]);
                const u32 key = element.key(v.lane[j]);
#pragma unroll
                for (int i = 0; i < PIVOTS; ++i)
                    if (key >= pivot[i]) sum[i].add(piece);
            }
        });
#pragma unroll
        for (int i = 0; i < PIVOTS; ++i) {
            const u64 all = pivot[i] > b.low && pivot[i] <= b.high ? sum[i].total() : 0;
            const u64 total = team::warp_sum(all);
            if (warp::lane() == 0) s.sums[i][threadIdx.x / 32] = total;
        }
        __syncthreads();
    }

    // --- rows that need all of it ---

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

    __device__ __forceinline__ bool greedy() const {
        return settings.greedy() || top == key::of(LARGEST);
    }
    __device__ __forceinline__ u64 random_below(u64 mass) const {
        if (greedy()) return 0;
        const uint4 w = philox::words(settings.seed, settings.position, 0, philox::Domain::draw);
        return __umul64hi(philox::wide(w), mass);
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
