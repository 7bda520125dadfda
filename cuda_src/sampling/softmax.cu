// Softmax of each row at its temperature: logits read once, probabilities written once.
//
// The CTAs of a cluster keep a row in their shared memory, so that the maximum and the sum cost no
// second read. While one cluster waits for its barriers, the others on the same SMs load and store.
// Temperatures up to 1e-5 put all on the first maximum. A NaN counts as -infinity; a row of nothing
// else gives zeros.
//
// Limits: a row's part fits the dynamic shared memory; the row pitches and bases are aligned to VEC
// elements.
#include "sampling/mass.cuh"
#include "sampling/settings.cuh"
#include "sampling/slice.cuh"
#include "sampling/team.cuh"

template <int THREADS, int CLUSTER> struct SharedSoftmax {
    u64 warps[THREADS / 32];
    team::Board<1, CLUSTER> board;
};

// Everyone's maximum, with the lowest index that has it.
template <int THREADS, int CLUSTER>
__device__ __forceinline__ u64 maximum(SharedSoftmax<THREADS, CLUSTER>& s, const f32* x, Part part) {
    u64 best = 0;
    for (int i = threadIdx.x; i < part.count; i += THREADS)
        best = max(best, key::with_index(x[i], part.first + i));
    best = team::warp_max(best);
    if (warp::lane() == 0) s.warps[threadIdx.x / 32] = best;
    __syncthreads();
    best = 0;
    for (int w = 0; w < THREADS / 32; ++w) best = max(best, s.warps[w]);
    team::post(s.board, 0, [=](int) { return best; });
    best = 0;
    for (int rank = 0; rank < CLUSTER; ++rank) best = max(best, s.board.slot[0][0][rank]);
    return best;
}

template <int THREADS, int CLUSTER>
__device__ __forceinline__ u64 exponentials(SharedSoftmax<THREADS, CLUSTER>& s, f32* x, Part part,
                                            const Weigh& weigh) {
    Mass sum;
    auto quads = reinterpret_cast<Vec<f32, 4>*>(x);
    for (int q = threadIdx.x; q < part.quads(); q += THREADS) {
        Vec<f32, 4> v = quads[q];
#pragma unroll
        for (int j = 0; j < 4; ++j) sum.add(Mass::of(v.lane[j] = weigh(v.lane[j])));
        quads[q] = v;
    }
    const u64 mine = team::cta_sum<THREADS / 32>(sum.total(), s.warps);
    team::post(s.board, 1, [=](int) { return mine; });
    return team::total(s.board, 1, 0);
}

template <class T, int VEC, int THREADS>
__device__ __forceinline__ void store_part(T* row, const f32* x, Part part, f32 scale) {
    using V = Vec<T, VEC>;
    V* to = reinterpret_cast<V*>(row + part.first);
    const int vectors = part.count / VEC;
    for (int i = threadIdx.x; i < vectors; i += THREADS) {
        V v;
#pragma unroll
        for (int j = 0; j < VEC; ++j) v.lane[j] = from_f32<T>(x[i * VEC + j] * scale);
        store<Cache::stream>(to + i, v);
    }
    for (int i = vectors * VEC + threadIdx.x; i < part.count; i += THREADS)
        row[part.first + i] = from_f32<T>(x[i] * scale);
}

template <class T, class OUT, int VEC, int OUT_VEC, int THREADS, int CLUSTER, int STAGE, int BLOCKS>
__global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(THREADS, BLOCKS)
softmax(const T* logits, const f32* temperature, OUT* out, i64 pitch, i64 out_pitch, i32 V,
        f32 temperature0) {
    extern __shared__ __align__(16) u8 memory[];
    using Shared = SharedSoftmax<THREADS, CLUSTER>;
    Shared& s = *reinterpret_cast<Shared*>(memory);
    f32* x = reinterpret_cast<f32*>(memory + (sizeof(Shared) + 15) / 16 * 16);
    const i64 row = blockIdx.x / CLUSTER;
    const Part part(V, cluster::rank(), CLUSTER);
    cluster::arrive();
    load_part<T, VEC, THREADS>(x, logits + row * pitch, part, {nullptr});
    __syncthreads();
    cluster::wait();

    const f32 t = setting(temperature, row, temperature0);
    const u64 best = maximum<THREADS, CLUSTER>(s, x, part);
    const f32 top = key::value(u32(best >> 32));
    const bool greedy = !(t > 1e-5f) || top == LARGEST;
    if (top == -INF || greedy) {
        for (int i = threadIdx.x; i < part.quads() * 4; i += THREADS)
            x[i] = top > -INF && u32(part.first + i) == key::index(best);
        __syncthreads();
        store_part<OUT, OUT_VEC, THREADS>(out + row * out_pitch, x, part, 1.0f);
    } else {
        const u64 sum = exponentials<THREADS, CLUSTER>(s, x, part, Weigh(top, t));
        store_part<OUT, OUT_VEC, THREADS>(out + row * out_pitch, x, part, MASS_UNIT / f32(sum));
    }
    if constexpr (CLUSTER > 1) cluster::sync();
}
