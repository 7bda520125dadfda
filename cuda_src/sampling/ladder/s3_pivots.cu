// Rung 3, pivot search: no list and no order, only the threshold, found by counting.
//
// All kept sets are "the tokens at or above a threshold", so top-k asks for the largest key that at
// least k tokens reach, top-p for the largest that enough mass reaches. Both measures fall as the key
// grows: bisection. Each reading of the row measures PIVOTS keys at once, which cuts the bracket into
// PIVOTS + 1 parts; a search for a count ends early where exactly k tokens are left.
//
// Over rung 2: any k, and top-p alone; nothing is stored. Price: up to 32 / log2(PIVOTS + 1) readings
// per threshold, each with an exponential per token for masses. From L2 where few rows are in flight.
//
// Limits: one CTA per row, so that few rows leave most of the GPU idle.
#include "sampling/ladder/row.cuh"

// The largest key whose measure reaches `need`; any key of the same measure once that is `enough`.
template <int PIVOTS, int THREADS, class Element>
__device__ __forceinline__ u32 search(Cta<THREADS>& cta, u32 n, team::Bracket b, u64 need, u64 enough,
                                      Element element) {
    while (b.low < b.high && b.at_low > enough) {
        u64 sums[PIVOTS];
        cta.sums(n, sums, [&](u32 i, u64 (&sums)[PIVOTS]) {
            u32 key;
            u64 adds;
            element(i, key, adds);
#pragma unroll
            for (int p = 0; p < PIVOTS; ++p) sums[p] += key >= b.pivot(p, PIVOTS) ? adds : 0;
        });
        int passed = 0;
        u64 measured = 0, beyond = 0;
#pragma unroll
        for (int p = 0; p < PIVOTS; ++p) {
            if (sums[p] >= need) passed = p + 1, measured = sums[p];
            else if (passed == p) beyond = sums[p];
        }
        b.narrow(passed, PIVOTS, measured, beyond);
    }
    return b.low;
}

template <int PIVOTS, class T, int THREADS>
__device__ __forceinline__ u32 threshold(Row<T, THREADS>& row, bool joint, const Weigh& weigh) {
    u32 limit = key::NOTHING + 1;
    if (const u32 k = row.k())
        limit = search<PIVOTS>(row.cta, row.V, {limit, row.top, ~0ull}, k, k,
                               [&](u32 i, u32& key, u64& adds) { key = row.key(i), adds = 1; });
    if (!(row.p() < 1.0f)) return limit;
    const u64 kept = row.mass(limit, weigh), need = row.needed(kept, joint, weigh);
    if (need > kept) return limit;
    return search<PIVOTS>(row.cta, row.V, {limit, row.top, kept}, need, need,
                          [&](u32 i, u32& key, u64& adds) {
        const f32 x = row.value(i);
        key = key::of(x), adds = mass_of(weigh(x));
    });
}

template <class T, int THREADS, int PIVOTS>
__global__ void __launch_bounds__(THREADS, PIVOTS > 3 ? 1 : 1024 / THREADS)
s3(const T* logits, i64* ids, f32* limits, i64 pitch, i32 V, f32 temperature, i32 top_k, f32 top_p,
   i32 joint, u64 seed, i64 position) {
    __shared__ Cta<THREADS> cta;
    const Answer answer = {ids, limits};
    Row<T, THREADS> row(cta, logits + blockIdx.x * pitch, V,
                        {temperature, top_p, 0.0f, top_k, seed, position});
    if (row.empty()) return answer.nothing(blockIdx.x);
    const Weigh weigh = row.weigher();
    const u32 limit = threshold<PIVOTS>(row, joint, weigh);
    const u64 mass = row.mass(limit, weigh);
    answer.write(blockIdx.x, row.draw(limit, weigh, row.random(mass)), limit);
}
