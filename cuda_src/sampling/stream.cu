// From logits to a token in one launch, each row streamed once.
//
// The CTAs of a cluster read a row from global memory and keep of it the maxima of groups of 32 tokens
// and, where the whole mass counts, the sums of exponentials of blocks of 1024. That is enough:
//
// - No filter: the block is drawn from the sums, the token from the block, which is read again.
// - A nucleus: where the CTAs' shared memory holds the row, they find its end there (stream_held.cuh).
// - A small k, min-p, or most of a nucleus: at least k tokens reach the k-th largest group maximum,
//   and not many more do. CTA 0 reads those groups again, and finishes on a list in shared memory.
//   Where few rows are shared out among many CTAs, their registers hold the row (stream_small.cuh).
// - Everything else: thresholds by histograms over further readings, a thousandfold narrower each.
//
// Masses are integers (mass.cuh), or f32 sums in an order that V alone sets, so the token depends on
// the row, its settings, its seed and position, on nothing else.
//
// Limits: the row pitch and base are aligned to VEC elements.
#include "sampling/stream_held.cuh"
#include "sampling/stream_small.cuh"

template <class Row>
__device__ __forceinline__ void write(const Row& row, f32* to, const Drawn& drawn) {
    const Weigh weigh = row.weigher();
    const f32 scale = MASS_UNIT / f32(drawn.mass);
    row.each_block([&](int b) {
#pragma unroll 1
        for (int half = 0; half < 2 * row.blocks.rounds; ++half) {  // of a round: registers are few
            const u32 base = row.blocks.first(b, half / 2) + half % 2 * (ROUND / 2);
            f32 x[16];
            row.logits.read(base, x);
            row.logits.forbid(base, x);
#pragma unroll
            for (int i = 0; i < 16; ++i) {
                const u32 token = base + row.logits.at(warp::lane(), i);
                if (token >= u32(row.blocks.V)) continue;
                const f32 clean = key::clean(x[i]), e = weigh(clean);
                const bool kept = key::of(clean) >= drawn.threshold && e >= row.s.settings.min_p;
                const bool chosen = row.greedy() ? token == drawn.token : kept;
                to[token] = drawn.mass && chosen ? (row.greedy() ? 1.0f : e * scale) : 0.0f;
            }
        }
    });
}

template <class T, int VEC, int THREADS, int CLUSTER, int MOST, int BLOCKS,
          int HELD>
__global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(THREADS, BLOCKS)
stream(const T* logits, const f32* temperature, const i32* top_k, const f32* top_p,
       const f32* min_p, const u64* seed, const i64* position, const u32* bitmask, i64* ids,
       u8* status, f32* distribution, i64 pitch, i64 mask_pitch, i64 out_pitch, i32 V, i32 joint,
       f32 temperature0, i32 top_k0, f32 top_p0, f32 min_p0, u64 seed0, i64 position0) {
    using Row = StreamRow<T, VEC, THREADS, CLUSTER, MOST>;
    auto& s = here<typename Row::Shared>();
    const i64 at = blockIdx.x / CLUSTER;
    const Logits<T, VEC> given = {logits + at * pitch, bitmask ? bitmask + at * mask_pitch : nullptr,
                                  u32(V)};
    const u32 rank = CLUSTER > 1 ? cluster::rank() : 0;
    auto leave = [&](const Row& row, const Drawn& drawn) {
        if (threadIdx.x) return;
        if (ids) ids[at] = drawn.token;
        if (status) status[at] = row.status();
    };
    Settings settings = {setting(temperature, at, temperature0), setting(top_p, at, top_p0), 0.0f,
                         setting(top_k, at, top_k0), 0, 0};
    auto complete = [&] {
        settings.min_p = fminf(setting(min_p, at, min_p0), 1.0f);
        settings.seed = setting(seed, at, seed0), settings.position = setting(position, at, position0);
    };
    using Small = SmallK<T, VEC, THREADS, CLUSTER, MOST>;
    if constexpr (Small::FITS) {
        if (!distribution && Small::suits(settings, V, joint)) {
            Row row = {s, given, Blocks(V, 1), rank};  // no division before the row sets out
            Drawn drawn;
            if (Small(row).ends(settings, complete, drawn)) {
                if (rank == 0) leave(row, drawn);
                return;
            }
            __syncthreads();
        }
    }
    complete();
    Row row = {s, given, Blocks(V), rank};
    const bool filtered = (settings.top_k > 0 && settings.top_k < V) || settings.min_p > 0.0f;
    if constexpr (HELD && CLUSTER > 1) {
        using Held = HeldNucleus<T, VEC, THREADS, CLUSTER, MOST>;
        if (!distribution && Held::suits(settings, filtered, row)) {
            Drawn drawn;
            if (Held(row).ends(settings, drawn)) {
                if (drawn.mass) leave(row, drawn);
                return;
            }
            __syncthreads();
        }
    }
    const auto stage = row.start(settings, distribution != nullptr);
    const bool sums = !settings.greedy() && (!filtered || (settings.top_p < 1.0f && joint));
    Sketch sketch;
    if (sketched(settings, filtered, row.blocks)) sketch = row.sketch();
    row.survey(stage, sums, Weigh(0.0f, settings.temperature), sketch);
    if (row.rank) {
        row.obey();
    } else {
        Drawn drawn;
        if (row.top > key::NOTHING) {
            const bool greedy = row.greedy();
            const i32 k = greedy ? 1 : settings.top_k > 0 && settings.top_k < V ? settings.top_k : 0;
            Finish<T, VEC, THREADS, CLUSTER, MOST> finish = {
                row, s, row.weigher(), k, greedy ? 1.0f : settings.top_p, joint || !filtered};
            drawn = finish.decide();
        }
        leave(row, drawn);
        row.end(drawn);
    }
    if (distribution) write(row, distribution + at * out_pitch, row.ended());
}
