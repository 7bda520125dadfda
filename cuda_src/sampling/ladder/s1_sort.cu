// Rung 1, the row sorted: everything about thresholds can be read off the order.
//
// A CTA sorts its row's (key, token) pairs by their keys: least significant digit first, four passes of
// eight bits between two buffers in global memory. A pass counts each warp's digits, turns the counts
// into places, and moves the pairs, equal digits in the order they had (so tokens stay in the order of
// the vocabulary among equals). The k-th pair is top-k's threshold, the pair at which the running sum of
// mass reaches the nucleus' need is top-p's.
//
// This is how samplers are written from a library's sort and prefix sum. It moves some hundred bytes per
// token where the answer needs the row read once, and cares for the order of tokens that are dropped.
//
// Limits: a workspace of two buffers of V pairs per CTA. CTAs take rows in turn, one per CTA.
#include "sampling/ladder/row.cuh"

template <int THREADS> struct Sorter {
    static constexpr int WARPS = THREADS / 32, DIGITS = 256, OUTSIDE = DIGITS;

    u32 place[WARPS][DIGITS];  // counts, then where the warp's next pair of that digit goes
    u32 digit_sums[DIGITS];

    // Larger keys first.
    __device__ __forceinline__ static u32 digit(u64 pair, int shift) {
        return DIGITS - 1 - (u32(pair >> shift) & (DIGITS - 1));
    }

    // A warp's run of n pairs, 32 at a time: visit(pair, digit, lanes that have the same digit).
    template <class Pair, class Visit>
    __device__ __forceinline__ void run(u32 n, int shift, Pair pair, Visit visit) {
        const u32 share = (n + WARPS - 1) / WARPS, first = threadIdx.x / 32 * share;
        const u32 last = min(first + share, n);
#pragma unroll 4
        for (u32 base = first; base < last; base += 32) {
            const bool inside = base + warp::lane() < last;
            const u64 mine = inside ? pair(base + warp::lane()) : 0;
            const u32 d = inside ? digit(mine, shift) : OUTSIDE;
            visit(mine, d, __match_any_sync(0xffffffff, d));
            __syncwarp();
        }
    }

    template <class Pair>
    __device__ __forceinline__ void pass(u32 n, int shift, Pair pair, u64* to) {
        u32* mine = place[threadIdx.x / 32];
        for (int d = warp::lane(); d < DIGITS; d += 32) mine[d] = 0;
        __syncwarp();
        run(n, shift, pair, [&](u64, u32 d, u32 same) {
            if (d != OUTSIDE && first_of(same)) mine[d] += __popc(same);
        });
        __syncthreads();
        counts_to_places();
        run(n, shift, pair, [&](u64 value, u32 d, u32 same) {
            const u32 at = d != OUTSIDE ? mine[d] + rank_in(same) : 0;
            __syncwarp();
            if (d == OUTSIDE) return;
            to[at] = value;
            if (first_of(same)) mine[d] += __popc(same);
        });
        __syncthreads();
    }

    // Digits in order, and of each digit the warps in order.
    __device__ __forceinline__ void counts_to_places() {
        for (int d = threadIdx.x; d < DIGITS; d += THREADS) {
            digit_sums[d] = 0;
            for (int w = 0; w < WARPS; ++w) digit_sums[d] += place[w][d];
        }
        __syncthreads();
        if (threadIdx.x < 32) {
            u32 before = 0;
            for (int d = warp::lane(); d < DIGITS; d += 32) {
                const u32 upto = u32(team::warp_scan(digit_sums[d]));
                digit_sums[d] = before + upto - digit_sums[d];
                before += __shfl_sync(0xffffffff, upto, 31);
            }
        }
        __syncthreads();
        for (int d = threadIdx.x; d < DIGITS; d += THREADS) {
            u32 at = digit_sums[d];
            for (int w = 0; w < WARPS; ++w) {
                const u32 count = place[w][d];
                place[w][d] = at, at += count;
            }
        }
        __syncthreads();
    }

    __device__ __forceinline__ static u32 rank_in(u32 lanes) {
        return __popc(lanes & ((1u << warp::lane()) - 1));
    }
    __device__ __forceinline__ static bool first_of(u32 lanes) { return rank_in(lanes) == 0; }
};

// The row's pairs in descending order, in the buffer that is returned.
template <class T, int THREADS>
__device__ __forceinline__ const u64* sort(Sorter<THREADS>& sorter, const Row<T, THREADS>& row, u64* a,
                                           u64* b) {
    sorter.pass(row.V, 32, [&](u32 i) { return key::with_index(row.value(i), i); }, a);
    for (int shift = 40; shift < 64; shift += 8) {
        sorter.pass(row.V, shift, [=](u32 i) { return a[i]; }, b);
        u64* const sorted = b;
        b = a, a = sorted;
    }
    return a;
}

template <class T, int THREADS>
__device__ __forceinline__ u32 threshold(Row<T, THREADS>& row, const u64* sorted, bool joint,
                                         const Weigh& weigh) {
    const u32 k = row.k();
    const u32 limit = k ? max(u32(sorted[k - 1] >> 32), key::NOTHING + 1) : key::NOTHING + 1;
    if (!(row.p() < 1.0f)) return limit;
    const u64 kept = row.mass(limit, weigh), need = row.needed(kept, joint, weigh);
    if (need > kept) return limit;
    const u32 crosses = row.cta.first_beyond(row.V, need - 1, [&](u32 i) {
        return mass_of(weigh(key::value(u32(sorted[i] >> 32))));
    });
    return max(limit, u32(sorted[crosses] >> 32));
}

template <class T, int THREADS>
__global__ void __launch_bounds__(THREADS, 1024 / THREADS)
s1(const T* logits, i64* ids, f32* limits, u64* workspace, i64 pitch, i32 V, i32 rows, f32 temperature,
   i32 top_k, f32 top_p, i32 joint, u64 seed, i64 position) {
    __shared__ Cta<THREADS> cta;
    __shared__ Sorter<THREADS> sorter;
    const Answer answer = {ids, limits};
    u64* const buffers = workspace + i64(blockIdx.x) * 2 * V;
    for (i64 at = blockIdx.x; at < rows; at += gridDim.x) {
        Row<T, THREADS> row(cta, logits + at * pitch, V,
                            {temperature, top_p, 0.0f, top_k, seed, position});
        if (row.empty()) {
            answer.nothing(at);
            continue;
        }
        const Weigh weigh = row.weigher();
        const u64* sorted = sort(sorter, row, buffers, buffers + V);
        const u32 limit = threshold(row, sorted, joint, weigh);
        const u64 mass = row.mass(limit, weigh);
        answer.write(at, row.draw(limit, weigh, row.random(mass)), limit);
    }
}
