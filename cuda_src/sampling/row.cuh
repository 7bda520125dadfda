// A row in the shared memory of a cluster: its maxima, sums and searches over it, the list in CTA 0.
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

    // --- the draw ---

    __device__ __forceinline__ bool greedy() const {
        return settings.greedy() || top == key::of(LARGEST);
    }
    __device__ __forceinline__ u64 random_below(u64 mass) const {
        if (greedy()) return 0;
        const uint4 w = philox::words(settings.seed, settings.position, 0, philox::Domain::draw);
        return __umul64hi(philox::wide(w), mass);
    }
};
