// Rung 5, radix select: the threshold digit by digit, a histogram of 1024 digits per reading.
//
// A histogram of how many tokens (or how much mass) have each leading digit of their keys tells in which
// of 1024 ranges the threshold lies; the next reading splits that range again. Thirty-two bits need at
// most four readings, two mostly: the range that holds the answer soon has few tokens (bins.cuh).
//
// Over rung 3: ten bits per reading where its pivots give one to three. Over rung 4: it finds the set
// itself, so top-p may count of what top-k kept, and the number of readings hardly depends on the data.
// Price: an atomic in shared memory per token in range, many of them to the same few bins at first.
//
// The next steps are samplers for use: `resident` keeps the row in the shared memory of a cluster, so
// that readings after the first cost no global memory (sample.cu); `sample` learns from the maxima of
// groups which few tokens need a second look (stream.cu).
//
// Limits: one CTA per row.
#include "sampling/bins.cuh"
#include "sampling/ladder/row.cuh"

template <class T, int THREADS>
__device__ __forceinline__ u32 threshold(Row<T, THREADS>& row, Bins<THREADS>& bins, bool joint,
                                         const Weigh& weigh) {
    u32 limit = key::NOTHING + 1;
    if (const u32 k = row.k())
        limit = select(bins, Range{limit, row.top}, k, k, [&](auto add) {
#pragma unroll 4
            for (u32 i = threadIdx.x; i < row.V; i += THREADS) add(row.key(i), 1);
        });
    if (!(row.p() < 1.0f)) return limit;
    const u64 kept = row.mass(limit, weigh), need = row.needed(kept, joint, weigh);
    if (need > kept) return limit;
    return select(bins, Range{limit, row.top}, need, need, [&](auto add) {
#pragma unroll 4
        for (u32 i = threadIdx.x; i < row.V; i += THREADS) {
            const f32 x = row.value(i);
            if (key::of(x) >= limit) add(key::of(x), mass_of(weigh(x)));
        }
    });
}

template <class T, int THREADS>
__global__ void __launch_bounds__(THREADS, 1024 / THREADS)
s5(const T* logits, i64* ids, f32* limits, i64 pitch, i32 V, f32 temperature, i32 top_k, f32 top_p,
   i32 joint, u64 seed, i64 position) {
    __shared__ Cta<THREADS> cta;
    __shared__ Bins<THREADS> bins;
    const Answer answer = {ids, limits};
    Row<T, THREADS> row(cta, logits + blockIdx.x * pitch, V,
                        {temperature, top_p, 0.0f, top_k, seed, position});
    if (row.empty()) return answer.nothing(blockIdx.x);
    const Weigh weigh = row.weigher();
    const u32 limit = threshold(row, bins, joint, weigh);
    const u64 mass = row.mass(limit, weigh);
    answer.write(blockIdx.x, row.draw(limit, weigh, row.random(mass)), limit);
}
