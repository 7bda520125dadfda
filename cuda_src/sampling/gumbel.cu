// Gumbel-max, a categorical draw without maximum, sum or second reading:
// the token with the largest logit / T + G, G = -log(E), E = -log1p(-v) with v of 32 random bits.
//
// v = (bits + 0.5) / 2^32, so G reaches from -3.1 to 22.9: the winning tail, small v, is dense. Token t
// takes word t % 4 of Philox block t / 4 of (seed, position). A token beats the score `most` only if
// v < e^(x / T - most), as E >= v: one exponential tells of four tokens, by their largest x and least v,
// and the logarithms are left to the few that may. Warps tell each other how high the bar is.
//
// Temperatures up to 1e-5 take the first maximum, +infinity wins; a NaN counts as -infinity. A row of
// nothing else gives 0.
//
// Limits: the row pitch and base are aligned to VEC elements.
#include "common/dsmem.cuh"
#include "common/math.cuh"
#include "sampling/blocks.cuh"
#include "sampling/philox.cuh"
#include "sampling/settings.cuh"
#include "sampling/team.cuh"

// -log(-log1p(-v)); near v = 0, where 1 - v has lost v's digits, by v + v^2 / 2 + v^3 / 3.
__device__ __forceinline__ f32 gumbel(u32 bits) {
    const f32 v = (f32(bits >> 8) + (f32(bits & 255) + 0.5f) * 0.00390625f) * 5.9604644775390625e-8f;
    const f32 small = v * fmaf(v, fmaf(v, 0.333333343f, 0.5f), 1.0f);
    const f32 e = v < 0.004f ? small : -logf(1.0f - v);
    return -logf(fmaxf(e, 1e-30f));
}

__device__ __forceinline__ u32 word(const uint4& w, int i) {
    return i == 0 ? w.x : i == 1 ? w.y : i == 2 ? w.z : w.w;
}

// The best score that a thread has seen, and the bar for those to come.
struct Race {
    const bool noise;
    const f32 inverse, scale = inverse * 1.44269504f;
    u64 best = 0;
    f32 most = -INF, bar = INF;  // bar: -most / ln 2, and what rounding may do to it

    // False only for a token that does not beat `most`, and for tokens of less x or more bits.
    __device__ __forceinline__ bool may_win(f32 x, u32 bits) const {
        if (!noise) return x > most;
        const f32 v = __uint_as_float(bits >> 9 | 0x3f800000);  // 1 + v, rounded down
        return v <= 1.0f + ptx::ex2(fmaf(x, scale, bar));
    }

    __device__ __forceinline__ bool any_may_win(const f32* x, const uint4& w) const {
        return may_win(fmaxf(fmaxf(x[0], x[1]), fmaxf(x[2], x[3])),
                       min(min(w.x, w.y), min(w.z, w.w)));
    }

    // Less than the token's score: E <= v + v^2 up to v = 1/2.
    __device__ __forceinline__ f32 surely(f32 x, u32 bits) const {
        const f32 v = f32((bits >> 8) + 1) * 5.9604644775390625e-8f, y = key::clean(x) * inverse;
        return v < 0.5f ? y - 0.693147181f * ptx::lg2(fmaf(v, v, v)) - 1e-3f - 1e-6f * fabsf(y) : -INF;
    }

    __device__ __forceinline__ void enter(f32 x, u32 token, u32 bits) {
        const f32 y = key::clean(x) * inverse;
        if (y == -INF) return;
        const f32 score = noise ? y + gumbel(bits) : y;
        best = max(best, key::with_index(score, token));
        raise(score);
    }

    __device__ __forceinline__ void raise(f32 score) {
        most = fmaxf(most, score);
        const f32 b = fmaxf(-1.44269504f * most, -3e38f);
        bar = b + (fabsf(b) * 1e-6f + 1e-3f);
    }
};

// What a CTA's warps have reached, as a key.
struct HighBar {
    u32 reached;

    __device__ __forceinline__ u32 look() const { return dsmem::look(&reached); }
    // The warp's own best joins.
    __device__ __forceinline__ void lift(f32 most) {
        const u32 key = __reduce_max_sync(0xffffffff, key::of(most));
        if (warp::lane() == 0) atomicMax(&reached, key);
    }
};

template <class T, int VEC, int THREADS, int CLUSTER>
__global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(THREADS)
gumbel_argmax(const T* logits, const f32* temperature, const u64* seed, const i64* position, i64* ids,
              i64 pitch, i32 V, f32 temperature0, u64 seed0, i64 position0) {
    constexpr int WARPS = THREADS / 32;
    __shared__ u64 warps[WARPS], ctas[CLUSTER];
    __shared__ HighBar high;
    if (threadIdx.x == 0) high.reached = key::of(-INF);
    if constexpr (CLUSTER > 1) cluster::arrive();
    __syncthreads();
    const i64 row = blockIdx.x / CLUSTER;
    const u32 rank = CLUSTER > 1 ? cluster::rank() : 0;
    const f32 t = setting(temperature, row, temperature0);
    const bool greedy = !(t > 1e-5f);
    const f32 inverse = greedy ? 1.0f : 1.0f / fminf(t, 1e30f);
    const u64 key0 = setting(seed, row, seed0);
    const i64 at = setting(position, row, position0);
    const Logits<T, VEC> from = {logits + row * pitch, nullptr, u32(V)};

    Race race = {!greedy, inverse};
    constexpr int AHEAD = 8;  // a lane's logits at a time, the next on their way: small code
    u32 base = (rank * WARPS + warp::index()) * ROUND;
    f32 x[AHEAD], next[AHEAD];
    if (base < u32(V)) from.read(base, x);
    bool first = !greedy;  // equals must enter in their order: if greedy every warp has its own bar
#pragma unroll 1
    while (base < u32(V)) {
        u32 then = base + 32 * AHEAD;
        if (then % ROUND == 0) then += (CLUSTER * WARPS - 1) * ROUND;
        if (then < u32(V)) from.read(then, next);
        uint4 w[AHEAD / 4] = {};
#pragma unroll
        for (int i = 0; i < AHEAD; i += 4)
            if (!greedy) w[i / 4] = philox::words(key0, at, (base + from.at(warp::lane(), i)) / 4,
                                                  philox::Domain::gumbel);
        if (first) {
            f32 sure = -INF;
#pragma unroll
            for (int i = 0; i < AHEAD; ++i) sure = fmaxf(sure, race.surely(x[i], word(w[i / 4], i % 4)));
            high.lift(sure), first = false;
        }
        if (!greedy) race.raise(key::value(high.look()));
        bool may[AHEAD / 4], any = false;
#pragma unroll
        for (int i = 0; i < AHEAD; i += 4) any |= may[i / 4] = race.any_may_win(&x[i], w[i / 4]);
        if (__any_sync(0xffffffff, any)) {
#pragma unroll
            for (int i = 0; i < AHEAD; ++i)
                if (may[i / 4] && race.may_win(x[i], word(w[i / 4], i % 4)))
                    race.enter(x[i], base + from.at(warp::lane(), i), word(w[i / 4], i % 4));
            high.lift(race.most);
            if (greedy) race.raise(key::value(__reduce_max_sync(0xffffffff, key::of(race.most))));
        }
#pragma unroll
        for (int i = 0; i < AHEAD; ++i) x[i] = next[i];
        base = then;
    }
    u64 best = team::warp_max(race.best);
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
