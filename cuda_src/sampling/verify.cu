// Speculative decoding, a chain of drafts per row: which are accepted, and the token that follows them.
//
// Draft i, drawn from p_i, is accepted if u p_i(t) < q_i(t), u of Philox block i of domain accept. After
// the first that is not, the next token is drawn from max(q_i - p_i, 0), or from q_i where that is zero
// everywhere; after the last draft from q_n. Drafts without probabilities were certain (p = 1). What is
// NaN counts as 0, drafts outside the vocabulary are never accepted.
//
// The draw is that of sampling: integer masses, the first token where their running sum passes a number
// of domain residual. The CTAs of a cluster add up blocks of 1024 tokens, CTA 0 draws.
//
// Limits: up to THREADS drafts; 2^23 tokens.
#include "common/dsmem.cuh"
#include "sampling/block_draw.cuh"
#include "sampling/mass.cuh"
#include "sampling/philox.cuh"
#include "sampling/settings.cuh"

__device__ __forceinline__ f32 probability(f32 p) { return fminf(fmaxf(p, 0.0f), 1.0f); }

// What the next token is drawn from.
struct Rest {
    const f32 *target, *draft;  // draft: null if all were accepted or drafts were certain
    i32 certain;                // the token that was, or -1
    i32 V;
    bool fallback = false;

    __device__ __forceinline__ static u32 read(u32 token) { return token; }
    __device__ __forceinline__ u64 operator()(u32 token) const {
        if (token >= u32(V)) return 0;
        const f32 q = probability(target[token]);
        if (fallback) return mass_of(q);
        const f32 p = draft ? probability(draft[token]) : token == u32(certain) ? 1.0f : 0.0f;
        return mass_of(fmaxf(q - p, 0.0f));
    }
};

template <int THREADS, int CLUSTER> struct SharedVerify {
    BlockDraw<THREADS, Blocks::MOST> draw;
    u64 sums[2][CLUSTER];
    u32 first;
};

// Leaves the blocks' masses in CTA 0; their sum.
template <int THREADS, int CLUSTER>
__device__ __forceinline__ u64 add_up(SharedVerify<THREADS, CLUSTER>& s, const Blocks& blocks,
                                      const Rest& rest, int turn) {
    const int share = (blocks.count + CLUSTER - 1) / CLUSTER, rank = int(cluster::rank());
    u64 mine = 0;
    for (int b = rank * share; b < min(blocks.count, (rank + 1) * share); ++b) {
        u64 sum = 0;
        for (int round = 0; round < blocks.rounds; ++round)
            sum += s.draw.sum_of(blocks.first(b, round), rest);
        if (threadIdx.x == 0) dsmem::store(dsmem::at(&s.draw.block[b], 0), sum);
        mine += sum;
    }
    if (threadIdx.x < CLUSTER) dsmem::store(dsmem::at(&s.sums[turn][rank], threadIdx.x), mine);
    cluster::sync();
    u64 all = 0;
    for (int c = 0; c < CLUSTER; ++c) all += s.sums[turn][c];
    return all;
}

template <class I, int THREADS, int CLUSTER>
__global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(THREADS)
verify(const I* drafts, const i32* lengths, const f32* draft, const f32* target, const u64* seed,
       const i64* position, i64* tokens, i32* accepted, i32 most, i32 V, u64 seed0, i64 position0) {
    __shared__ SharedVerify<THREADS, CLUSTER> s;
    const i64 row = blockIdx.x / CLUSTER;
    const int n = lengths ? max(0, min(most, lengths[row])) : most;
    const u64 key = setting(seed, row, seed0);
    const i64 at = setting(position, row, position0);
    const f32* q = target + row * (most + 1) * V;
    const f32* p = draft ? draft + row * most * V : nullptr;
    if (threadIdx.x == 0) s.first = n;
    __syncthreads();
    if (int(threadIdx.x) < n) {
        const int i = threadIdx.x;
        const i64 t = i64(drafts[row * most + i]);
        const f32 u = philox::uniform(philox::words(key, at, i, philox::Domain::accept).x);
        const bool known = t >= 0 && t < V;
        const f32 drawn = known && p ? probability(p[i64(i) * V + t]) : 1.0f;
        if (!known || !(u * drawn < probability(q[i64(i) * V + t]))) atomicMin(&s.first, u32(i));
    }
    cluster::sync();
    const int first = int(s.first);

    Rest rest = {q + i64(first) * V, p && first < n ? p + i64(first) * V : nullptr,
                 !p && first < n ? i32(drafts[row * most + first]) : -1, V};
    const Blocks blocks(V);
    u64 all = add_up(s, blocks, rest, 0);
    if (all == 0) {
        rest.fallback = true;
        all = add_up(s, blocks, rest, 1);
    }
    if (cluster::rank() != 0) return;
    const uint4 w = philox::words(key, at, 0, philox::Domain::residual);
    u64 left = __umul64hi(philox::wide(w), all);
    u32 token = 0;
    if (all) {
        const int block = s.draw.which_block(left, blocks.count);
        for (int round = 0; round < blocks.rounds; ++round)
            left -= s.draw.walk(blocks.first(block, round), left, 0.0, rest);
        token = s.draw.token;
    }
    for (int i = threadIdx.x; i <= most; i += THREADS)
        tokens[row * (most + 1) + i] = i < first ? i64(drafts[row * most + i])
                                                 : i == first ? i64(token) : -1;
    if (accepted && threadIdx.x == 0) accepted[row] = first;
}
