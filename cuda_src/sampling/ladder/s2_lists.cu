// Rung 2, two stages: the k largest of each part of a row, then the k largest of those.
//
// s2_lists: CTAs of their own for every part of every row list the part's k + 1 largest pairs in shared
// memory (top_list.cuh). s2: one CTA per row merges the lists in the same way; the nucleus and the draw
// need nothing but these k tokens, sorted by key for the one, by token for the other.
//
// Over rung 1: the row is read once, nothing is sorted that is not kept, and a single row occupies as
// many SMs as it has parts. This is the usual GPU top-k; one pair too many is kept so that ties with the
// k-th are noticed: then all tokens that equal it stay, and the row is read again to draw.
//
// Limits: k from 1 to SIZE / 2 - 1, and without a k there is no list. Top-p counts of what top-k kept (a
// joint one needs the mass of the whole row). A second launch; a workspace of parts * (k + 1) pairs per
// row.
#include "sampling/ladder/row.cuh"
#include "sampling/ladder/top_list.cuh"

template <class T, int THREADS, int SIZE>
__global__ void __launch_bounds__(THREADS, 1024 / THREADS)
s2_lists(const T* logits, u64* workspace, i64 pitch, i32 V, i32 keep) {
    __shared__ TopList<THREADS, SIZE> list;
    const u32 parts = gridDim.x, share = (V - 1) / parts + 1, first = blockIdx.x * share;
    const T* row = logits + blockIdx.y * pitch;
    list.collect(first < V ? min(share, V - first) : 0, keep, [&](u32 i) {
        return key::with_index(key::clean(to_f32(row[first + i])), first + i);
    });
    u64* to = workspace + (i64(blockIdx.y) * parts + blockIdx.x) * keep;
    for (int i = threadIdx.x; i < keep; i += THREADS) to[i] = i < list.count ? list.pair[i] : 0;
}

__device__ __forceinline__ u64 mass_of_pair(u64 pair, const Weigh& weigh) {
    return mass_of(weigh(key::value(u32(pair >> 32))));
}

// The lowest key of the nucleus of n tokens, best first; `kept` is the mass of all that top-k keeps.
template <class T, int THREADS>
__device__ __forceinline__ u32 nucleus(Row<T, THREADS>& row, const u64* pairs, u32 n, u64 kept,
                                       const Weigh& weigh) {
    const u64 need = fraction(row.p(), kept);
    return u32(pairs[row.cta.first_beyond(n, need - 1, [&](u32 i) {
        return mass_of_pair(pairs[i], weigh);
    })] >> 32);
}

template <class T, int THREADS>
__device__ __forceinline__ u64 listed_mass(Row<T, THREADS>& row, const u64* pairs, u32 n,
                                           const Weigh& weigh) {
    return row.cta.sum(n, [&](u32 i) { return mass_of_pair(pairs[i], weigh); });
}

// Draws among those of n listed tokens that reach the limit, in the order of the vocabulary.
template <class T, int THREADS, int SIZE>
__device__ __forceinline__ u32 draw_listed(Row<T, THREADS>& row, TopList<THREADS, SIZE>& list, u32 n,
                                           u32 limit, const Weigh& weigh) {
    const auto turned = [](u64 pair) { return pair << 32 | pair >> 32; };
    __syncthreads();  // the list has been read for the nucleus
    for (u32 i = threadIdx.x; i < n; i += THREADS) list.pair[i] = turned(list.pair[i]);
    list.sort(n);
    const auto mass = [&](u32 i) {
        const u64 pair = turned(list.pair[i]);
        return u32(pair >> 32) >= limit ? mass_of_pair(pair, weigh) : 0;
    };
    const u64 all = row.cta.sum(n, mass);
    return key::index(turned(list.pair[row.cta.first_beyond(n, row.random(all), mass)]));
}

template <class T, int THREADS, int SIZE>
__global__ void __launch_bounds__(THREADS, 1024 / THREADS)
s2(const T* logits, i64* ids, f32* limits, const u64* workspace, i64 pitch, i32 V, i32 parts, i32 keep,
   f32 temperature, f32 top_p, u64 seed, i64 position) {
    __shared__ Cta<THREADS> cta;
    __shared__ TopList<THREADS, SIZE> list;
    const Answer answer = {ids, limits};
    const u64* lists = workspace + i64(blockIdx.x) * parts * keep;
    list.collect(parts * keep, keep, [&](u32 i) { return lists[i]; });
    Row<T, THREADS> row(cta, logits + blockIdx.x * pitch, V,
                        {temperature, top_p, 0.0f, keep - 1, seed, position},
                        u32(list.pair[0] >> 32));
    if (row.empty()) return answer.nothing(blockIdx.x);

    const Weigh weigh = row.weigher();
    const u32 n = min(list.count, row.k());
    const u32 kth = max(u32(list.pair[n - 1] >> 32), key::NOTHING + 1);
    const bool tied = n < list.count && u32(list.pair[n] >> 32) == kth;
    const u64 kept = tied ? row.mass(kth, weigh) : listed_mass(row, list.pair, n, weigh);
    const u32 limit = row.p() < 1.0f ? max(kth, nucleus(row, list.pair, n, kept, weigh)) : kth;
    const u32 token = tied && limit == kth ? row.draw(kth, weigh, row.random(kept))
                                           : draw_listed(row, list, n, limit, weigh);
    answer.write(blockIdx.x, token, limit);
}
