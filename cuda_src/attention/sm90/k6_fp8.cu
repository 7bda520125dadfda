// Attention kernel 6, Hopper: operands of 8 bits, e4m3 with float32 scales.
//
// The structure is kernel 5's: persistent CTAs, tiles that run into each other, warpgroups that take
// turns. Three things are its own.
//
// wgmma takes bytes along K alone. Scores are no problem, rows of Q and K run along the columns that are
// summed. P V sums over keys, along which V does not run: three warps of the producer warpgroup transpose
// each block of V in shared memory while the warpgroups compute. The order of keys in a transposed block
// is the one in which the four threads of a quad hold scores, so weights become the next product's left
// operand where they are, by rounding alone (fp8_shape.cuh).
//
// Weights are rounded to 3 bits after the leading one, 2^-4 relative: that is what the result is off by,
// averaged over keys. Tensor cores add up 8-bit products with about 13 bits below the leading one.
//
// Products take half of kernel 5's time, exponentials as long as ever: now they are what a step waits
// for. So nobody looks for maxima (fp8_softmax.cuh), and three warpgroups of few keys a step work better
// than two of many.
//
// Napkin (d 128, 192 x 96): 8192 FLOP/clk make 1152 clk of products per step, 18432 ex2 at 16 a clk take
// as long, the rest of the softmax 400 issue slots. Shared memory is busy for as long again at 128 bytes a
// clk: operands 770, what TMA writes 190, transposing 190.
#include "attention/sm90/finish.cuh"
#include "attention/sm90/fp8_load.cuh"
#include "attention/sm90/fp8_scales.cuh"
#include "attention/sm90/fp8_softmax.cuh"
#include "attention/sm90/fp8_transpose.cuh"
#include "attention/sm90/load.cuh"
#include "attention/sm90/turns.cuh"

using namespace attention;

constexpr int BARRIER_AGAIN = 4;  // and the following, one per warpgroup; those before are of turns

template <class S, Mask MASK, Keys KEYS> using Work = Job<S, MASK, KEYS, 1>;

// A consumer warpgroup.
template <class OUT, class S, Mask MASK, Keys KEYS, bool TURNS> struct Consumer {
    using W = Work<S, MASK, KEYS>;

    static constexpr f32 NOTHING = -2e30f;  // below every base

    const Shared<S>& shared;
    const Call& call;
    const Scales& scales;
    const Results<OUT>& to;
    int wg;
    Turns<S::WGS, TURNS> turns{wg};
    u32 blocks = 0, q_parity = 0;  // blocks: whose scores are done, of all tiles
    // Of the current tile, all that steps need to know: registers are scarce.
    Interval seen[2];
    f32 c[2];          // factor of products, times log2(e)
    i32 first;         // block
    i32 whole[2];      // blocks of which every key is seen by all rows: from [0], before [1]
    i32 keep_at;       // block after whose step sums are put aside
    f32 kept_base[2];  // of those that have been; not negative infinity

    static __device__ __forceinline__ void release(Barrier* empty) {
        if (threadIdx.x % warp::GROUP == 0) mbarrier::arrive(empty);
    }
    // The stage of a block, and the parity of its round.
    static __device__ __forceinline__ u32 stage(u32 block) { return block % S::STAGES; }
    static __device__ __forceinline__ u32 parity(u32 block) { return block / S::STAGES % 2; }

    __device__ __forceinline__ void start(const W& job) {
        first = job.first;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const Row row = row_of(call, job, wg, h);
            seen[h] = job.visible.of(row.query);
            c[h] = scales.scores(job.batch, row.head, job.head / call.share) * LOG2E;
        }
        const i32 row = job.row + wg * S::ROWS;
        const Interval top = job.visible.of(row >> call.group_bits);
        const Interval bottom = job.visible.of((row + S::ROWS - 1) >> call.group_bits);
        whole[0] = (bottom.first + S::N - 1) / S::N;
        whole[1] = top.end / S::N;
    }

    __device__ __forceinline__ void await_keys() const {
        mbarrier::wait(shared.k_full(stage(blocks)), parity(blocks));
    }
    __device__ __forceinline__ void start_scores(typename S::Scores& s) const {
        start_scores8<S>(s, shared.q(wg), shared.k(stage(blocks)));
    }
    __device__ __forceinline__ void scores_done(typename S::Scores& s, i32 j) const {
        wgmma::hold(s);
        if (j >= whole[1] || (MASK == Mask::window && j < whole[0])) hide<MASK>(s, seen, j * S::N);
    }
    // Once nobody will want the block's scores again.
    __device__ __forceinline__ void release_keys(i32 j) {
        release(shared.k_empty(stage(blocks++)));
        if (j == first) {
            release(shared.q_empty(wg));
            q_parity ^= 1;
        }
    }

    __device__ __forceinline__ void await_values(u32 block) const {
        mbarrier::wait(shared.t_full(stage(block)), parity(block));
    }
    __device__ __forceinline__ void start_values(typename S::Sums& o, const typename S::Weights& p,
                                                 u32 block) const {
        start_values8<S>(o, p, shared.t(stage(block)));
    }
    __device__ __forceinline__ void values_done(typename S::Sums& o, typename S::Weights& p,
                                                u32 block) const {
        wgmma::hold(o);
        wgmma::hold(p);
        release(shared.t_empty(stage(block)));
    }

    // Weights of a tile's first block.
    __device__ __forceinline__ void weigh_first(typename S::Weights& p, typename S::Scores& s,
                                                BlindSoftmax& softmax, i32 j) {
        scores_done(s, j);
        release_keys(j);
        softmax = BlindSoftmax();
        kept_base[0] = kept_base[1] = NOTHING;
        keep_at = j - S::KEEP_EVERY;
        softmax.renew(s, c);
        pack_all8(p, s);
    }

    // The very first block, with nothing to do meanwhile.
    __device__ __forceinline__ void first_block(typename S::Weights& p, BlindSoftmax& softmax, i32 j) {
        typename S::Scores s;
        mbarrier::wait(shared.q_full(wg), q_parity);
        await_keys();
        wgmma::fence();
        start_scores(s);
        wgmma::wait<0>();
        weigh_first(p, s, softmax, j);
    }

    // The last product of a tile, the first of the next, and while that runs the results of the old one.
    __device__ __forceinline__ void turn_over(typename S::Sums& o, typename S::Weights& p,
                                              BlindSoftmax& softmax, const Tile& old, i32 j) {
        typename S::Scores s;
        await_values(blocks - 1);
        turns.await();
        wgmma::fence();
        start_values(o, p, blocks - 1);
        mbarrier::wait(shared.q_full(wg), q_parity);
        await_keys();
        start_scores(s);
        turns.pass();
        wgmma::wait<1>();
        values_done(o, p, blocks - 1);
        add_kept(o, softmax);
        end(old, o, softmax);
        wgmma::wait<0>();
        weigh_first(p, s, softmax, j);
    }

    // Scores of block j, while the weights of the block before are used.
    __device__ __forceinline__ void step(typename S::Sums& o, typename S::Weights& p,
                                         BlindSoftmax& softmax, i32 j) {
        typename S::Scores s;
        await_keys();
        turns.await();
        wgmma::fence();
        start_scores(s);
        await_values(blocks - 1);
        start_values(o, p, blocks - 1);
        turns.pass();
        wgmma::wait<1>();
        scores_done(s, j);
        wgmma::wait<0>();
        values_done(o, p, blocks - 1);
        softmax.weigh(s, c);  // begins before the wait: the compiler is free to move it
        if (warp::sync_any(BARRIER_AGAIN + wg, warp::GROUP, softmax.outgrown())) raise(s, o, softmax, j);
        else softmax.accept();
        release_keys(j);
        pack_all8(p, s);
        if (S::KEEPS && j == keep_at && j >= first + S::KEEP_EVERY / 2) put_aside(o, softmax);
    }

    // Adds sums to what has been put aside, in shared memory, and begins anew.
    __device__ __forceinline__ void put_aside(typename S::Sums& o, const BlindSoftmax& softmax) {
        add_kept(o, softmax);
#pragma unroll
        for (int i = 0; i < S::DV / 8; i++) {
            kept()[i * warp::GROUP] = make_float4(o[4 * i], o[4 * i + 1], o[4 * i + 2], o[4 * i + 3]);
        }
        clear(o);
        kept_base[0] = softmax.base[0], kept_base[1] = softmax.base[1];
        keep_at -= S::KEEP_EVERY;
    }
    __device__ __forceinline__ void add_kept(typename S::Sums& o, const BlindSoftmax& softmax) const {
        if (!S::KEEPS || kept_base[0] == NOTHING) return;
        const f32 factor[2] = {ptx::ex2(kept_base[0] - softmax.base[0]),
                               ptx::ex2(kept_base[1] - softmax.base[1])};
#pragma unroll
        for (int i = 0; i < S::DV / 8; i++) {
            const float4 x = kept()[i * warp::GROUP];
            o[4 * i] = fmaf(x.x, factor[0], o[4 * i]);
            o[4 * i + 1] = fmaf(x.y, factor[0], o[4 * i + 1]);
            o[4 * i + 2] = fmaf(x.z, factor[1], o[4 * i + 2]);
            o[4 * i + 3] = fmaf(x.w, factor[1], o[4 * i + 3]);
        }
    }
    __device__ __forceinline__ float4* kept() const {
        return reinterpret_cast<float4*>(shared.kept(wg)) + threadIdx.x % warp::GROUP;
    }

    // Weights are too large.
    __device__ __forceinline__ void raise(typename S::Scores& s, typename S::Sums& o,
                                          BlindSoftmax& softmax, i32 j) const {
        if (warp::sync_any(BARRIER_AGAIN + wg, warp::GROUP, softmax.lost())) {
            scores_again(s, j);
            scale_rows(o, softmax.renew(s, c));
        } else {
            const f32 before[2] = {softmax.base[0], softmax.base[1]};
            scale_rows(o, softmax.raise(s, before));
        }
    }
    // Scores once more, for a new base.
    __device__ __forceinline__ void scores_again(typename S::Scores& s, i32 j) const {
        wgmma::hold(s);
        wgmma::fence();
        start_scores(s);
        wgmma::wait<0>();
        scores_done(s, j);
    }

    __device__ __forceinline__ void last_values(typename S::Sums& o, typename S::Weights& p) {
        await_values(blocks - 1);
        wgmma::fence();
        start_values(o, p, blocks - 1);
        wgmma::wait<0>();
        wgmma::hold(o);
    }

    static __device__ __forceinline__ void clear(typename S::Sums& o) {
#pragma unroll
        for (int i = 0; i < S::DV / 2; i++) o[i] = 0.0f;
    }

    __device__ __forceinline__ void end(const Tile& tile, const typename S::Sums& o,
                                        const BlindSoftmax& softmax) const {
        const W job(call, tile, 0);
        const i64 batch = call.lengths.q_offsets != nullptr ? 0 : job.batch;
        const i64 first = job.sequence.q_first;
        const f32 scale = scales.values(job.batch, job.head / call.share);
        finish_row8<0>(to, row_of(call, job, wg, 0), batch, first, o, softmax, scale);
        finish_row8<1>(to, row_of(call, job, wg, 1), batch, first, o, softmax, scale);
    }

    // A tile without keys.
    __device__ __forceinline__ void nothing(const Tile& tile) const {
        typename S::Sums none;
        clear(none);
        end(tile, none, BlindSoftmax());
    }

    // All tiles. The last block of one is finished while the first of the next is begun.
    __device__ __forceinline__ void run() {
        typename S::Sums o;
        typename S::Weights p;
        BlindSoftmax softmax;
        Tile last;
        bool open = false;  // told by `last`, the assembler would not know that all lanes agree
        turns.begin();
        shared.ticket().for_each([&](const Tile& tile) {
            const W job(call, tile, 0);
            if (job.empty()) return nothing(tile);
            start(job);
            i32 j = job.end - 1;
            if (open) turn_over(o, p, softmax, last, j);
            else first_block(p, softmax, j);
            clear(o);
            last = tile, open = true;
            for (j--; j >= first; j--) step(o, p, softmax, j);
        });
        if (open) {
            last_values(o, p);
            add_kept(o, softmax);
            end(last, o, softmax);
        }
        turns.settle();
    }
};

template <class S, Mask MASK, Keys KEYS>
__device__ __forceinline__ void produce(const Shared<S>& shared, const TensorMap& map_q,
                                        const TensorMap& map_k, const TensorMap& map_v,
                                        const Call& call) {
    const Ticket ticket = shared.ticket();
    if (warp::index() == 0) {
        Loader8<S, MASK, KEYS> loader{shared, map_k, map_v, call};
        ticket.lead(call.schedule, blockIdx.x, gridDim.x,
                    [&](const Tile& tile) { loader.tile(Work<S, MASK, KEYS>(call, tile, 0)); });
    } else {
        Transposer<S> transposer{shared, warp::index() - 1};
        u32 parity = 0;
        ticket.for_each([&](const Tile& tile) {
            const Work<S, MASK, KEYS> job(call, tile, 0);
            if (job.empty()) return;
            if (warp::index() == 1) {
                prefetch_queries(map_q, call, job);
                load_queries(shared, map_q, call, job, parity);
            }
            parity ^= 1;
            transposer.tile(job);
        });
    }
    __syncwarp();
}

template <class OUT, int D, int DV, int N, int WGS, int STAGES, Mask MASK, Keys KEYS, bool TURNS>
__global__ void __launch_bounds__((WGS + 1) * 128, 1)
k6_fp8(const __grid_constant__ TensorMap map_q, const __grid_constant__ TensorMap map_k,
       const __grid_constant__ TensorMap map_v, OUT* out, i64 out_token, i64 out_head, i64 out_batch,
       f32* lse, i64 lse_token, i64 lse_head, i64 lse_batch, i32 queries, i32 keys, i32 m_tiles,
       i32 heads, i32 batch, i32 section, i32 group, i32 share, f32 scale, i32 top_left, i32 left,
       i32 right, i32 chunk, const f32* sinks, f32 v_factor, const f32* q_scale, i32 q_scale_batch,
       i32 q_scale_head, i32 q_scale_share, const f32* k_scale, i32 k_scale_batch, i32 k_scale_head,
       const f32* v_scale, i32 v_scale_batch, i32 v_scale_head, const u32* q_offsets,
       const u32* q_lengths, const u32* k_offsets, const u32* k_lengths, const u32* table,
       i32 table_batch, i32 page, i32 page_box, u32* counter) {
    using S = Shape8<D, DV, N, WGS, STAGES>;
    extern __shared__ __align__(1024) u8 memory[];
    const Shared<S> shared{memory};
    const Call call{{queries, keys, q_offsets, q_lengths, k_offsets, k_lengths},
                    {m_tiles, heads, batch, section, counter},
                    __ffs(group) - 1, share, top_left, left, right, chunk,
                    {table, page, page_box}, table_batch};

    if (threadIdx.x == 0) {
        tma::prefetch(map_q), tma::prefetch(map_k), tma::prefetch(map_v);
        shared.init();
    }
    __syncthreads();

    if (warp::group() == 0) {
        if constexpr (WGS > 1) warp::give_registers<S::GIVEN>();
        produce<S, MASK, KEYS>(shared, map_q, map_k, map_v, call);
    } else {
        if constexpr (WGS > 1) warp::take_registers<S::TAKEN>();
        const Scales scales{scale, v_factor, q_scale_share, {q_scale, q_scale_batch, q_scale_head},
                            {k_scale, k_scale_batch, k_scale_head},
                            {v_scale, v_scale_batch, v_scale_head}};
        const Results<OUT> results{out, out_token, out_head, out_batch, lse, lse_token, lse_head,
                                   lse_batch, sinks};
        static_assert(WGS > 1 || !TURNS);
        Consumer<OUT, S, MASK, KEYS, TURNS> consumer{shared, call, scales, results, warp::group() - 1};
        consumer.run();
    }
}
