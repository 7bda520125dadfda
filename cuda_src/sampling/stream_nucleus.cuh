// The end of a whole row's nucleus, where the sketch has told about where it is: by one further reading,
// which lists the tokens there and adds up all above them.
#pragma once

#include "sampling/stream_narrow.cuh"

template <class Row> struct Nucleus {
    static constexpr int WARPS = Row::WARPS, THREADS = WARPS * 32;

    typename Row::Shared& s;
    const Weigh weigh;
    const u64 need;
    u64 above = 0, inside = 0;  // the masses of what the reading found above the list, and on it

    // One reading has been made. Settles the threshold if it is in the range, or moves the range beside it:
    // there lies all that chance may have done.
    __device__ __forceinline__ bool settled() {
        measure();
        const bool crowded = s.listed > LIST, inside_it = above < need && need <= above + inside;
        if (crowded || !inside_it) move(crowded);
        else settle(s.task.low, s.task.high);
        return inside_it && !crowded;
    }

    // High 0: there is no use in it.
    __device__ __forceinline__ void move(bool crowded) const {
        const u32 low = s.task.low, high = s.task.high;
        const f32 from = key::value(low), width = key::value(high) - from;
        const u32 least = key::of(key::clean(from - width));
        const u32 most = key::of(key::clean(key::value(high) + width));
        __syncthreads();
        if (threadIdx.x != 0) return;
        if (crowded) s.task.high = 0;
        else if (above >= need) s.task.low = high + 1, s.task.high = max(high + 1, min(most, s.top));
        else s.task.high = low - 1, s.task.low = min(low - 1, max(least, key::NOTHING + 1));
    }

    template <class Visit> __device__ __forceinline__ void each(Visit visit) const {
        for (int i = threadIdx.x; i < s.listed; i += THREADS)
            visit(i, s.key[i], mass_of(weigh(key::value(s.key[i]))));
    }

    __device__ __forceinline__ void measure() {
        above = inside = 0;
        for (int b = threadIdx.x; b < Blocks(s.V).count; b += THREADS) above += s.draw.block[b];
        if (s.listed <= LIST) each([&](int, u32, u64 mass) { inside += mass; });
        above = team::warp_sum(above), inside = team::warp_sum(inside);
        if (warp::lane() == 0) s.sums[0][threadIdx.x / 32] = above, s.sums[1][threadIdx.x / 32] = inside;
        if (threadIdx.x == 0) s.grouped = 0;
        s.bins.clear();
        above = inside = 0;
        for (int w = 0; w < WARPS; ++w) above += s.sums[0][w], inside += s.sums[1][w];
    }

    // The threshold among the listed tokens, whose masses then join those of their blocks.
    __device__ __forceinline__ void settle(u32 low, u32 high) {
        const Ruler ruler(low, high);
        each([&](int, u32 key, u64 mass) { s.bins.add(ruler.part(key::value(key), key), mass); });
        s.bins.find(need - above);
        each([&](int i, u32 key, u64) {
            if (ruler.part(key::value(key), key) != s.bins.found) return;
            if (const u32 at = atomicAdd(&s.grouped, 1u); at < 32) s.group[at] = u16(i);
        });
        __syncthreads();
        if (s.grouped > 32) return settle_widely(low, high);
        u64 mass = above + s.bins.above;
        const u32 limit = limit_of_group(mass);
        const u32 tokens = Blocks(s.V).first(1, 0);
        each([&](int i, u32 key, u64 mass) {
            if (key >= limit) add(s.draw.block[s.token[i] / tokens], mass);
        });
        note(limit, mass);
    }

    // Of the few tokens of the part where the threshold lies, by every warp: the largest key at which the
    // mass, of which what is above the part is given, reaches the need. Adds what the part has of it.
    __device__ __forceinline__ u32 limit_of_group(u64& mass) const {
        const int n = s.grouped, i = warp::lane() < n ? s.group[warp::lane()] : -1;
        const u32 mine = i < 0 ? 0 : s.key[i];
        const u64 own = i < 0 ? 0 : mass_of(weigh(key::value(mine)));
        u64 upto = mass;
        for (int j = 0; j < n; ++j) {
            const u64 other = __shfl_sync(0xffffffff, own, j);
            upto += __shfl_sync(0xffffffff, mine, j) >= mine ? other : 0;
        }
        const u32 limit = __reduce_max_sync(0xffffffff, i >= 0 && upto >= need ? mine : 0);
        mass = __shfl_sync(0xffffffff, upto, __ffs(__ballot_sync(0xffffffff, mine == limit)) - 1);
        return limit;
    }

    // Many equal or nearly so.
    __device__ __forceinline__ void settle_widely(u32 low, u32 high) {
        Narrowing<Row> wide = {s, s.search, true};
        wide.set({low, high, low, high, need, true, above});
        const u32 limit = threshold_on_list<Row>();
        note(limit, wide.total(limit));
    }

    __device__ __forceinline__ void note(u32 limit, u64 mass) {
        if (threadIdx.x == 0) s.task.bound = limit, s.task.mass = mass;
        __syncthreads();
    }

    // Sums of 64 bits by counters of 32: shared memory has no other.
    __device__ __forceinline__ static void add(u64& sum, u64 value) {
        u32* half = reinterpret_cast<u32*>(&sum);
        const u32 before = atomicAdd(half, u32(value));
        const u32 carry = u32(value >> 32) + (before + u32(value) < before);
        if (carry) atomicAdd(half + 1, carry);
    }
};

// Out of line, as other long ways, with all they need in shared memory: nothing need outlive a call.
template <class Row> __device__ __noinline__ bool settle_nucleus() {
    auto& s = here<typename Row::Shared>();
    return Nucleus<Row>{s, Row::again().weigher(), fraction(s.task.top_p, s.task.all)}.settled();
}

// Leaves in the task what it finds. False: nothing, where it was told to look.
template <class Row> __device__ __noinline__ bool find_nucleus() {
    auto& s = here<typename Row::Shared>();
    for (int turn = 0; turn < 3 && s.task.high; ++turn) {
        Row::again().order(Sweep::list, s.task.low, s.task.high);
        if (settle_nucleus<Row>()) return true;
        __syncthreads();
    }
    return false;
}
