// Rung 4, rejection with two pivots: a token is drawn first and asked afterwards whether it is kept.
//
// A token drawn from all above `low` is kept if fewer than k tokens and less than the nucleus' mass lie
// strictly above it: one reading to draw, one to measure. Rejected, nothing at or below it can be kept,
// so `low` rises to it; and a second pivot, halfway between the token and the lowest key known to be
// kept, is measured by the same reading. Where the nucleus has most of the mass the first token is kept.
//
// Over rung 3: no search, and a distribution that is no wider than its nucleus ends after two readings.
// Dual-pivot rejection is how FlashInfer samples. Every round has a Philox number of its own, so the
// draw is reproducible, but it is not the other rungs' token, which is the draw of one number.
//
// Limits: what top-k keeps has no known mass, so that top-p counts of the whole row (joint). There is
// no threshold to give. One CTA per row.
#include "sampling/ladder/row.cuh"

// How many tokens, and how much mass, lie strictly above a key.
struct Above {
    u64 count, mass;

    __device__ __forceinline__ bool keeps(u64 k, u64 need) const {
        return (k == 0 || count < k) && mass < need;
    }
};

template <class T, int THREADS>
__device__ __forceinline__ void measure(Row<T, THREADS>& row, const Weigh& weigh, const u32 (&pivot)[2],
                                        Above (&above)[2]) {
    u64 sums[4];
    row.cta.sums(row.V, sums, [&](u32 i, u64 (&sums)[4]) {
        const f32 x = row.value(i);
        const u32 key = key::of(x);
        const u64 mass = mass_of(weigh(x));
        for (int p = 0; p < 2; ++p)
            if (key > pivot[p]) sums[2 * p] += 1, sums[2 * p + 1] += mass;
    });
    above[0] = {sums[0], sums[1]}, above[1] = {sums[2], sums[3]};
}

template <class T, int THREADS>
__device__ __forceinline__ u32 draw_kept(Row<T, THREADS>& row, const Weigh& weigh) {
    u64 mass = row.mass(0, weigh);  // of all above `low`
    const u64 need = fraction(row.p(), mass);
    u32 low = key::NOTHING, high = row.top;  // high is kept
    for (u32 round = 0;; ++round) {
        const u32 token = row.draw(low + 1, weigh, row.random(mass, round));
        const u32 key = row.key(token), pivot[2] = {key, key + (max(high, key) - key) / 2};
        Above above[2];
        measure(row, weigh, pivot, above);
        if (above[0].keeps(row.k(), need)) return token;
        const bool second = above[1].keeps(row.k(), need);
        low = pivot[second ? 0 : 1], mass = above[second ? 0 : 1].mass;
        if (second) high = pivot[1];
    }
}

template <class T, int THREADS>
__global__ void __launch_bounds__(THREADS, 1024 / THREADS)
s4(const T* logits, i64* ids, i64 pitch, i32 V, f32 temperature, i32 top_k, f32 top_p, u64 seed,
   i64 position) {
    __shared__ Cta<THREADS> cta;
    const Answer answer = {ids, nullptr};
    Row<T, THREADS> row(cta, logits + blockIdx.x * pitch, V,
                        {temperature, top_p, 0.0f, top_k, seed, position});
    if (row.empty()) return answer.nothing(blockIdx.x);
    answer.write(blockIdx.x, draw_kept(row, row.weigher()), 0);
}
