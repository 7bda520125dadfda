// The most probable token of each row, the lowest index among equals, in one launch.
//
// Value and index travel as one u64 of the same order, so that maxima may be taken in any order. The
// CTAs of a cluster share a row: a single row of 128256 tokens would keep one SM busy for 8 us, eight
// SMs for one. A NaN counts as -infinity; a row of nothing else gives 0.
//
// Limits: the row pitch and base are aligned to VEC elements.
#include "common/dsmem.cuh"
#include "sampling/slice.cuh"
#include "sampling/team.cuh"

template <class T, int N> __device__ __forceinline__ f32 largest_of(const Vec<T, N>& v) {
    f32 best = to_f32(v.lane[0]);
#pragma unroll
    for (int j = 1; j < N; ++j) best = fmaxf(best, to_f32(v.lane[j]));  // drops a NaN
    return best;
}

template <class T, int VEC, int UNROLL, int THREADS>
__device__ __forceinline__ u64 best_of(const T* row, Part part) {
    using V = Vec<T, VEC>;
    const V* from = reinterpret_cast<const V*>(row + part.first);
    const int vectors = part.count / VEC;
    f32 best = -INF;
    V winner;  // of this thread's vectors the first that has its maximum: they come in order
    int at = -1;
    for (int base = threadIdx.x; base < vectors; base += THREADS * UNROLL) {
        V v[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; ++u)
            if (base + u * THREADS < vectors) v[u] = load<Cache::stream>(from + base + u * THREADS);
#pragma unroll
        for (int u = 0; u < UNROLL; ++u)
            if (base + u * THREADS < vectors)
                if (const f32 x = largest_of(v[u]); x > best)
                    best = x, winner = v[u], at = base + u * THREADS;
    }
    u32 where = 0xffffffff;
    if (at >= 0)
#pragma unroll
        for (int j = VEC - 1; j >= 0; --j)
            if (to_f32(winner.lane[j]) == best) where = part.first + at * VEC + j;
    for (int i = vectors * VEC + threadIdx.x; i < part.count; i += THREADS)
        if (const f32 x = to_f32(row[part.first + i]); x > best) best = x, where = part.first + i;
    return where == 0xffffffff ? key::with_index(-INF, 0) : key::with_index(best + 0.0f, where);
}

template <class T, int VEC, int UNROLL, int THREADS, int CLUSTER>
__global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(THREADS, 1)
argmax(const T* logits, i64* ids, i64 pitch, i32 V) {
    constexpr int WARPS = THREADS / 32;
    __shared__ u64 warps[WARPS], ctas[CLUSTER];
    if constexpr (CLUSTER > 1) cluster::arrive();
    const i64 row = blockIdx.x / CLUSTER;
    const Part part(V, cluster::rank(), CLUSTER);
    u64 best = team::warp_max(best_of<T, VEC, UNROLL, THREADS>(logits + row * pitch, part));
    if (warp::lane() == 0) warps[threadIdx.x / 32] = best;
    if constexpr (CLUSTER > 1) cluster::wait();
    __syncthreads();
    if (threadIdx.x < 32) {
        best = team::warp_max(threadIdx.x < WARPS ? warps[threadIdx.x] : 0);
        if constexpr (CLUSTER > 1) {
            if (threadIdx.x == 0) dsmem::store(dsmem::at(&ctas[cluster::rank()], 0), best);
        }
    }
    if constexpr (CLUSTER > 1) {
        cluster::sync();
        if (cluster::rank() == 0 && threadIdx.x < 32)
            best = team::warp_max(threadIdx.x < CLUSTER ? ctas[threadIdx.x] : 0);
    }
    if (cluster::rank() == 0 && threadIdx.x == 0) ids[row] = key::index(best);
}
