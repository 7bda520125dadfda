// The k largest logits of each row in descending order with their tokens:
// lower tokens first among equals; where asked for, the logarithm of the sum of all exponentials too.
//
// The row is streamed as for sampling (stream.cu). The list of CTA 0 is sorted: at least k tokens reach
// the k-th largest maximum of a group, few more do. Rows with so many ties that the list overflows are
// read again: all that is above the k-th value, then the first tokens that equal it.
//
// NaN counts as -infinity, +infinity as the largest number. A row with fewer than k tokens above
// -infinity is padded with -infinity and token -1.
//
// Limits: the row pitch and base are aligned to VEC elements; k is at most LIST / 2.
#include "sampling/stream_finish.cuh"

// Out of line, from what is in shared memory: a rare, long way must not cost the short one registers.
template <class Top> __device__ __noinline__ void list_widely() {
    const u32 limit = Top::read_again();
    auto row = Top::Row::again();
    Top top = {row, row.s};
    if (threadIdx.x < 32) top.first_equals(limit, top.k() - row.s.listed);
    __syncthreads();
}

template <class T, int VEC, int THREADS, int CLUSTER, int MOST> struct TopK {
    using Row = StreamRow<T, VEC, THREADS, CLUSTER, MOST>;
    using Ends = Finish<T, VEC, THREADS, CLUSTER, MOST>;

    Row& row;
    typename Row::Shared& s;

    __device__ __forceinline__ i32 k() const { return s.settings.top_k; }

    __device__ __forceinline__ f32 log_mass() {
        const Weigh weigh = row.weigher();
        return weigh.max + logf(f32(row.row_mass(weigh)) / (MASS_UNIT * weigh.unit));
    }

    // Puts all that may be among the k largest on the list; how many those are.
    __device__ __forceinline__ int collect() {
        const Ends finish = {row, s, row.weigher(), k(), 1.0f, false};
        const u32 bound = finish.lower_bound(true);
        if (bound && row.gather(bound)) row.dismiss();
        else list_widely<TopK>();
        return s.listed;
    }

    // By further readings of the row, lists all above the k-th value, which it returns.
    __device__ __forceinline__ static u32 read_again() {
        auto& s = here<typename Row::Shared>();
        Narrowing<Row> wide = {s, s.search};
        const u32 limit = wide.narrow({key::NOTHING + 1, s.top, key::NOTHING + 1, s.top,
                                       u64(s.settings.top_k), false});
        __syncthreads();  // whoever looked at the list has gone on
        if (limit < s.top) wide.row().order(Sweep::list, limit + 1, s.top);
        else if (threadIdx.x == 0) s.listed = 0;
        __syncthreads();
        return limit;
    }

    // By one warp: lists the first `wanted` tokens of this key.
    __device__ __forceinline__ void first_equals(u32 limit, int wanted) {
        for (int b = 0; b < row.blocks.count && wanted > 0; ++b) {
            const u32* maxima = &s.maxima[b * 32];
            if (!__any_sync(0xffffffff, maxima[warp::lane()] >= limit)) continue;
            const u32 end = min(u32(row.blocks.V), row.blocks.first(b + 1, 0));
            for (u32 base = row.blocks.first(b, 0); base < end && wanted > 0; base += 32) {
                const u32 token = base + warp::lane();
                const bool equal = key::of(key::clean(row.logits.one(token))) == limit;
                const u32 all = __ballot_sync(0xffffffff, equal);
                const u32 before = __popc(all & ((1u << warp::lane()) - 1));
                if (equal && before < u32(wanted)) row.put(row.take_places(1), limit, token);
                wanted -= __popc(all);
            }
        }
    }

    // Sorts the list by key, then by the lower token: a bitonic network over a power of two.
    __device__ __forceinline__ void sort(int n) {
        int size = 32;
        while (size < n) size *= 2;
        for (int i = threadIdx.x; i < size; i += THREADS)
            s.sorted[i] = i < n ? u64(s.key[i]) << 32 | ~s.token[i] : 0;
        for (int run = 2; run <= size; run *= 2)
            for (int step = run / 2; step; step /= 2) {
                __syncthreads();
                for (int i = threadIdx.x; i < size / 2; i += THREADS) {
                    const int low = i / step * step * 2 + i % step, high = low + step;
                    const u64 a = s.sorted[low], b = s.sorted[high];
                    const bool descending = (low & run) == 0;
                    if ((a < b) == descending) s.sorted[low] = b, s.sorted[high] = a;
                }
            }
        __syncthreads();
    }
};

template <class T, int VEC, int THREADS, int CLUSTER, int MOST, int BLOCKS>
__global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(THREADS, BLOCKS)
top_k(const T* logits, f32* values, i32* tokens, f32* log_sum, const i32* per_row, i64 pitch, i32 V,
      i32 width) {
    using Row = StreamRow<T, VEC, THREADS, CLUSTER, MOST>;
    auto& s = here<typename Row::Shared>();
    const i64 at = blockIdx.x / CLUSTER;
    const i32 asked = per_row ? min(width, max(0, per_row[at])) : width;
    Row row = {s, {logits + at * pitch, nullptr, u32(V)}, Blocks(V),
               CLUSTER > 1 ? cluster::rank() : 0};
    const auto stage = row.start({1.0f, 1.0f, 0.0f, min(V, asked), 0, 0}, false);
    row.survey(stage, log_sum != nullptr, Weigh(0.0f, 1.0f), {});
    if (row.rank) {
        row.obey();
        return;
    }
    const bool any = row.top > key::NOTHING;
    TopK<T, VEC, THREADS, CLUSTER, MOST> top = {row, s};
    if (log_sum) {
        const f32 sum = any ? top.log_mass() : -INF;
        if (threadIdx.x == 0) log_sum[at] = sum;
    }
    const int n = any && top.k() ? top.collect() : 0, k = top.k();
    if (any) top.sort(n);
    for (int i = threadIdx.x; i < width; i += THREADS) {
        const bool there = i < k && i < n;
        values[at * width + i] = there ? key::value(u32(s.sorted[i] >> 32)) : -INF;
        tokens[at * width + i] = there ? i32(~u32(s.sorted[i])) : -1;
    }
    row.end({});
}
