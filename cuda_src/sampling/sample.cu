// From logits to a token in one launch: temperature, min-p, top-k, top-p and the draw, without sorting.
//
// A cluster of CTAs reads a row once and keeps it in its shared memory. Every kept set is "all tokens
// at or above a threshold", so the work is to find thresholds:
//
// - Each of some hundred groups of lanes knows the maximum of its own tokens. At least k tokens reach the k-th
//   largest of these maxima, and not many more do: whoever reaches it goes onto a list of CANDIDATES
//   in CTA 0, which finishes alone (list.cuh). Two barriers of the cluster in all.
// - Rows without a small k, or with too many ties, search their thresholds over the whole cluster's
//   shared memory, a few pivots at a time (row.cuh, row_finish.cuh).
//
// Sums of probabilities are integers (mass.cuh) and the token is where their running sum, in the order
// of tokens, passes a Philox number: the result depends on the row, its settings, its seed and
// position, on nothing else.
//
// Limits: a row's part fits STAGE; the row pitch and base are aligned to VEC elements.
#include "sampling/list.cuh"

template <class T, int VEC, int THREADS, int CLUSTER, int CANDIDATES, int STAGE, int BLOCKS>
__global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(THREADS, BLOCKS)
sample(const T* logits, const f32* temperature, const i32* top_k, const f32* top_p,
       const f32* min_p, const u64* seed, const i64* position, const u32* bitmask,
       const i32* offsets, const i32* tokens, const i32* counts, const f32* frequency,
       const f32* presence, const f32* repetition, i64* ids, u8* status, f32* distribution,
       i64 pitch, i64 mask_pitch, i64 out_pitch, i32 V, i32 joint, f32 temperature0, i32 top_k0,
       f32 top_p0, f32 min_p0, u64 seed0, i64 position0, f32 frequency0, f32 presence0,
       f32 repetition0) {
    using Shared = SharedRow<THREADS, CLUSTER, CANDIDATES>;
    extern __shared__ __align__(16) u8 memory[];
    Shared& s = *reinterpret_cast<Shared*>(memory);
    f32* x = reinterpret_cast<f32*>(memory + sizeof(Shared));

    const i64 row = blockIdx.x / CLUSTER;
    const Part part(V, cluster::rank(), CLUSTER);
    const Settings settings = {setting(temperature, row, temperature0), setting(top_p, row, top_p0),
                               fminf(setting(min_p, row, min_p0), 1.0f), setting(top_k, row, top_k0),
                               setting(seed, row, seed0), setting(position, row, position0)};
    if (threadIdx.x == 0) s.listed = 0;
    cluster::arrive();
    const Allowed allowed = {bitmask ? bitmask + row * mask_pitch : nullptr};
    Loaded seen = load_part<T, VEC, THREADS>(x, logits + row * pitch, part, allowed);
    __syncthreads();
    if (offsets) {
        penalize<THREADS>(x, part, row, {offsets, tokens, counts, frequency, presence, repetition,
                                         frequency0, presence0, repetition0});
        __syncthreads();
    }
    cluster::wait();  // nobody writes into a CTA that has not started

    WholeRow<THREADS, CLUSTER, CANDIDATES> team(s, x, part, settings, V, joint, distribution);
    if (offsets) seen.best = team.own_maximum();
    team.share_maxima(seen);
    const Weigh weigh(key::value(team.top), team.greedy() ? 1.0f : settings.temperature);
    const Outcome outcome = decide(team, weigh);
    if (cluster::rank() == outcome.writer && threadIdx.x == 0) {
        ids[row] = outcome.token;
        if (status) status[row] = team.status();
    }
    if (distribution) team.write(distribution + row * out_pitch, outcome, weigh);
    cluster::sync();  // CTA 0's list is read by others until here
}
