// Gumbel-max, a categorical draw without maximum, sum or second reading:
// the token with the largest logit / T + G, G = -log(E), E = -log1p(-v) with v of 32 random bits.
//
// v = (bits + 0.5) / 2^32, so G reaches from -3.1 to 22.9: the winning tail, small v, is dense. Token t
// takes word t % 4 of Philox block t / 4 of (seed, position). The noise is what costs: it is drawn only
// where the largest possible noise could still win.
//
// Temperatures up to 1e-5 take the first maximum, +infinity wins; a NaN counts as -infinity. A row of
// nothing else gives 0.
//
// Limits: the row pitch and base are aligned to VEC elements.
#include "common/dsmem.cuh"
#include "sampling/blocks.cuh"
#include "sampling/philox.cuh"
#include "sampling/settings.cuh"
#include "sampling/team.cuh"

constexpr f32 MOST_NOISE = 23.0f;

// -log(-log1p(-v)); near v = 0, where 1 - v has lost v's digits, by v + v^2 / 2 + v^3 / 3.
__device__ __forceinline__ f32 gumbel(u32 bits) {
    const f32 v = (f32(bits >> 8) + (f32(bits & 255) + 0.5f) * 0.00390625f) * 5.9604644775390625e-8f;
    const f32 small = v * fmaf(v, fmaf(v, 0.333333343f, 0.5f), 1.0f);
    const f32 e = v < 0.004f ? small : -logf(1.0f - v);
    return -logf(fmaxf(e, 1e-30f));
}

template <class T, int VEC, int THREADS, int CLUSTER>
__global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(THREADS)
gumbel_argmax(const T* logits, const f32* temperature, const u64* seed, const i64* position, i64* ids,
              i64 pitch, i32 V, f32 temperature0, u64 seed0, i64 position0) {
    constexpr int WARPS = THREADS / 32;
    __shared__ u64 warps[WARPS], ctas[CLUSTER];
    if constexpr (CLUSTER > 1) cluster::arrive();
    const i64 row = blockIdx.x / CLUSTER;
    const u32 rank = CLUSTER > 1 ? cluster::rank() : 0;
    const f32 t = setting(temperature, row, temperature0);
    const bool greedy = !(t > 1e-5f);
    const f32 inverse = greedy ? 1.0f : 1.0f / t;
    const u64 key0 = setting(seed, row, seed0);
    const i64 at = setting(position, row, position0);
    const Logits<T, VEC> from = {logits + row * pitch, nullptr, u32(V)};

    u64 best = 0;
    f32 most = -INF;
    const u32 blocks = u32(V - 1) / ROUND + 1;
    for (u32 b = rank * WARPS + warp::index(); b < blocks; b += CLUSTER * WARPS) {
        f32 x[32];
        from.read(b * ROUND, x);
#pragma unroll
        for (int i = 0; i < 32; i += 4) {
            const u32 token = b * ROUND + from.at(warp::lane(), i);
            f32 y[4];
#pragma unroll
            for (int j = 0; j < 4; ++j) y[j] = key::clean(x[i + j]) * inverse;
            const f32 top = fmaxf(fmaxf(y[0], y[1]), fmaxf(y[2], y[3]));
            if (top == -INF || top + (greedy ? 0.0f : MOST_NOISE) < most) continue;
            uint4 w = {0, 0, 0, 0};
            if (!greedy) w = philox::words(key0, at, token / 4, philox::Domain::gumbel);
            const u32 bits[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                const f32 score = y[j] + (greedy || y[j] == -INF ? 0.0f : gumbel(bits[j]));
                if (y[j] > -INF) best = max(best, key::with_index(score, token + j));
                most = fmaxf(most, score);
            }
        }
    }
    best = team::warp_max(best);
    if (warp::lane() == 0) warps[threadIdx.x / 32] = best;
    if constexpr (CLUSTER > 1) cluster::wait();
    __syncthreads();
    if (threadIdx.x < 32) best = team::warp_max(threadIdx.x < WARPS ? warps[threadIdx.x] : 0);
    if constexpr (CLUSTER > 1) {
        if (threadIdx.x == 0) dsmem::store(dsmem::at(&ctas[rank], 0), best);
        cluster::sync();
        if (rank == 0 && threadIdx.x < 32)
            best = team::warp_max(threadIdx.x < CLUSTER ? ctas[threadIdx.x] : 0);
    }
    if (rank == 0 && threadIdx.x == 0) ids[row] = best ? key::index(best) : 0;
}
