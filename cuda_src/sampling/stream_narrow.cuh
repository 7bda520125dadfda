// Thresholds of counts or masses by further readings of a row.
#pragma once

#include "sampling/stream_sweep.cuh"

// What a token of a ruler's part weighs, as if it lay in its middle; at least one unit.
struct PartMass {
    const Ruler& ruler;
    const Weigh weigh;
    const f32 min_p;

    __device__ __forceinline__ u64 operator()(u32 part) const {
        const f32 e = weigh(ruler.middle(part));
        return max(u64(1), e >= min_p ? mass_of(e) : 0);
    }
};

// The threshold among the listed tokens, whose masses then join those of their blocks. Out of line: what
// it needs is in shared memory, and registers are few.
template <class Row> __device__ __noinline__ u32 threshold_on_list() {
    constexpr int THREADS = Row::WARPS * 32;
    auto& s = here<typename Row::Shared>();
    const Weigh weigh = Row::again().weigher();
    const bool masses = s.search.masses;
    const u64 need = s.search.need - s.search.above;
    auto mass = [&](int i) {
        const f32 e = weigh(key::value(s.key[i]));
        return e >= s.settings.min_p ? mass_of(e) : 0ull;
    };
    const u32 limit =
        select<THREADS>(s.bins, {s.search.low, s.search.high}, need, need, [&](auto add) {
            for (int i = threadIdx.x; i < s.listed; i += THREADS) add(s.key[i], masses ? mass(i) : 1ull);
        });
    const Blocks blocks(s.V);
    const u32 tokens = blocks.first(1, 0);
    s.bins.clear();  // sums of 64 bits by counters of 32: shared memory has no other
    for (int i = threadIdx.x; i < s.listed; i += THREADS)
        if (s.key[i] >= limit) s.bins.add(s.token[i] / tokens, mass(i));
    __syncthreads();
    for (int b = threadIdx.x; b < blocks.count; b += THREADS) s.draw.block[b] += s.bins.sum(b);
    __syncthreads();
    return limit;
}

template <class Row> __device__ __noinline__ void narrow_range();

template <class Row> struct Narrowing {
    static constexpr int WARPS = Row::WARPS, THREADS = WARPS * 32;

    typename Row::Shared& s;
    Search& at;
    bool counted = false;  // the blocks' masses are those of the limit found last

    __device__ __forceinline__ static Row row() { return Row::again(); }

    // Counts by the parts of a range, the part where the threshold lies, until its tokens fit the list.
    // Masses of parts are estimates; the listing, which weighs all that is above, is where the answer is
    // proven. The search is in shared memory: it outlives many calls.
    __device__ __forceinline__ u32 narrow(const Search& search) {
        set(search);
        for (;;) {
            counted = false;
            if (at.low < at.high) narrow_range<Row>();
            if (at.low < at.high && at.inside > LIST) {
                if (!at.masses && at.above + at.inside == at.need) return at.low;
                continue;
            }
            row().order(Sweep::list, at.low, at.high);
            if (at.masses && !proven(s.listed)) continue;
            if (s.listed > LIST) return at.low;
            counted = true;
            return threshold_on_list<Row>();
        }
    }

    __device__ __forceinline__ void set(const Search& search) {
        __syncthreads();
        if (threadIdx.x == 0) at = search;
        __syncthreads();
    }

    __device__ __forceinline__ void narrow_once() {
        row().order(Sweep::count, at.low, at.high);
        const Ruler ruler(at.low, at.high);
        const PartMass mass = {ruler, row().weigher(), s.settings.min_p};
        if (at.masses) weigh_bins(mass);
        s.bins.find(at.need - at.above);
        u32 part = s.bins.found, parts = 1;
        u64 inside = s.bins.inside;
        if (at.masses) {
            inside = tokens(mass, part);
            if (inside <= LIST) add_neighbours(mass, part, parts, inside);
        }
        const u32 edge = ruler.first(part + (threadIdx.x & 1) * parts);
        const u32 low = __shfl_sync(0xffffffff, edge, 0), end = __shfl_sync(0xffffffff, edge, 1);
        set({low, end - 1, at.least, at.most, at.need, at.masses, at.above + s.bins.above, at.over,
             inside});
    }

    // The parts beside the one found, where an estimate may have missed the threshold by little.
    __device__ __forceinline__ void add_neighbours(const PartMass& mass, u32& part, u32& parts,
                                                   u64& inside) const {
        const u64 above = part + 1 < Ruler::PARTS ? tokens(mass, part + 1) : 0;
        const u64 below = part > 0 ? tokens(mass, part - 1) : 0;
        if (inside + above <= LIST) inside += above, ++parts;
        if (part > 0 && inside + below <= LIST) inside += below, ++parts, --part;
    }

    __device__ __forceinline__ u64 tokens(const PartMass& mass, u32 part) const {
        return u64(f32(s.bins.sum(part)) / f32(mass(part)) + 0.5f);
    }

    // Turns counts of parts into masses.
    __device__ __forceinline__ void weigh_bins(const PartMass& mass) {
        for (u32 i = threadIdx.x; i < Ruler::PARTS; i += THREADS) s.bins.set(i, s.bins.low[i] * mass(i));
    }

    // Whether the listed tokens hold the threshold of a mass, all of them or all equal; if not, the
    // search goes on beside or among them.
    __device__ __forceinline__ bool proven(int n) {
        const Weigh weigh = row().weigher();
        const u64 above = block_sum();
        u64 inside = 0;
        for (int i = threadIdx.x; i < min(n, LIST); i += THREADS) inside += listed_mass(weigh, i);
        inside = team::cta_sum<WARPS>(inside, s.sums[1]);
        __syncthreads();
        if (n > LIST) inside = u64(n) * listed_mass(weigh, 0);  // if all are equal
        const u64 with = above + inside;
        if (above >= at.need && at.high < at.most)
            set({at.high + 1, at.most, at.high + 1, at.most, at.need, true, at.over, at.over});
        else if (n > LIST && at.low < at.high)
            set({at.least, at.high, at.least, at.high, at.need, true, above, above});
        else if (with < at.need && at.low > at.least)
            set({at.least, at.low - 1, at.least, at.low - 1, at.need, true, with, with});
        else
            return set({at.low, at.high, at.least, at.most, at.need, true, above}), true;
        return false;
    }

    __device__ __forceinline__ u64 listed_mass(const Weigh& weigh, int i) const {
        const f32 e = weigh(key::value(s.key[i]));
        return e >= s.settings.min_p ? mass_of(e) : 0;
    }

    // The mass of all tokens from `limit`, and that of each block.
    __device__ __forceinline__ u64 total(u32 limit) {
        if (!counted) row().order(Sweep::list, limit, limit - 1);
        return block_sum();
    }
    __device__ __forceinline__ u64 block_sum() {
        u64 sum = 0;
        const int count = row().blocks.count;
        for (int b = threadIdx.x; b < count; b += THREADS) sum += s.draw.block[b];
        sum = team::cta_sum<WARPS>(sum, s.sums[0]);
        __syncthreads();
        return sum;
    }
};

// Out of line, as above.
template <class Row> __device__ __noinline__ void narrow_range() {
    auto& s = here<typename Row::Shared>();
    Narrowing<Row>{s, s.search}.narrow_once();
}
