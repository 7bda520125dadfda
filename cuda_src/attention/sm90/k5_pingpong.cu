// Attention kernel 5, Hopper: no tile ends before the next has begun; what gpukit.attention runs.
//
// Four ideas over kernel 4. CTAs are persistent and take tiles longest first. Between tiles the loop does
// not drain: the last product of one and the first of the next are started together, and results leave
// while the new one runs; a tile of few keys would else be mostly beginning and end. Sums are rescaled
// only where weights might overflow (lazy_softmax.cuh). And warpgroups take turns at starting products,
// so that one's softmax falls under the other's products: named barriers keep them half a step apart.
// On short walks there are no turns: each leaves out the blocks at the ends of a tile that only others
// see (part.cuh).
//
// A step of a warpgroup, for block j of the keys (from the right, where masks are):
//     my turn: start S = Q K_j^T, start O += P V_{j+1}; the next one's turn
//     S there: scale, mask; if a score is out of bounds: O there, a new base, rescale
//     O there: weights P = 2^(S - base), rounded
// Exponentials could do without O. But rounding cannot, and it issues in their shadow.
//
// Napkin (d 128, 128 x 128): 4096 FLOP/clk make 2048 clk of products per step, of which 16384 ex2 at 16
// a clk take 1024 and the rest of the softmax some 450 issue slots: all of it fits under the products of
// the other warpgroup. From L2 come 64 KB a step: 32 bytes per clk and SM. Where all tiles see the same
// keys, clusters of two share them by multicast.
//
// What is left are latencies, at the ends of a tile most: with results, masks and all it takes a warpgroup
// as long as two steps and a half to get from one to the next. Where walks are short there is one
// warpgroup more to fill them, and 64 keys a step for want of registers. On the longest walks of wide
// heads three, with 80 keys, share what is read.
//
// GQA: heads that share keys may share a tile (`group`): then a tile of few queries is full.
#include "attention/lazy_softmax.cuh"
#include "attention/sm90/finish.cuh"
#include "attention/sm90/part.cuh"
#include "attention/sm90/produce.cuh"
#include "attention/sm90/ring.cuh"
#include "attention/sm90/turns.cuh"

using namespace attention;

// A consumer warpgroup.
template <class S, Mask MASK, Keys KEYS, u32 TERMS, int CTAS, bool TURNS> struct Consumer {
    using T = typename S::T;
    using Work = Job<S, MASK, KEYS, CTAS>;

    const Shared<S>& shared;
    const Call& call;
    const Terms<T>& terms;
    f32 c;
    int wg;
    Turns<S::WGS, TURNS> turns;
    Ring<S, Operand::keys, CTAS> k{shared};
    Ring<S, Operand::values, CTAS> v{shared};
    u32 q_parity = 0;
    bool keys_here = false;  // the next block's are known to be: asking takes its time
    RowTerms<T, TERMS> rows[2];
    Interval seen[2], shown;  // by a thread's rows; by all rows of the warpgroup
    Part mine;                // blocks of the tile
    i32 behind = 0;           // blocks of the tile that come after: others have use for them

    static constexpr bool PARTS = MASK != Mask::full && S::STAGES > 1 && S::WGS > 1 && !TURNS;

    __device__ __forceinline__ Consumer(const Shared<S>& shared, const Call& call,
                                        const Terms<T>& terms, int wg)
        : shared(shared), call(call), terms(terms), c(TERMS ? LOG2E : terms.scale * LOG2E), wg(wg),
          turns{wg} {
        turns.begin();
    }

    __device__ __forceinline__ void release_q() {
        if (threadIdx.x % warp::GROUP == 0) mbarrier::arrive(shared.q_empty(wg));
        q_parity ^= 1;
    }

    // What is to be known of a tile before its first product.
    __device__ __forceinline__ void begin(const Work& job) {
        mine = {job.first, job.end};
        if constexpr (PARTS) mine = part_of<S>(call, job, wg);
    }
    // What masks and terms need to know. There is time for it while the first products run.
    __device__ __forceinline__ void look(const Work& job) {
        const i32 row = job.row + wg * S::ROWS;
        shown.end = job.visible.of(row >> call.group_bits).end;
        shown.first = job.visible.of((row + S::ROWS - 1) >> call.group_bits).first;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const Row row = row_of(call, job, wg, h);
            seen[h] = job.visible.of(row.query);
            if constexpr (TERMS != 0) {
                rows[h] = {};
                if (row.exists)
                    rows[h].start(terms, job.batch, row.head, row.query,
                                  call.lengths.q_offsets != nullptr ? 0 : job.batch,
                                  job.sequence.q_first + row.query, job.visible.shift);
            }
        }
    }

    // What is to be done to scores of block j, which holds keys that some rows must not see if MASKED.
    template <bool MASKED>
    __device__ __forceinline__ void score(typename S::Scores& s, const Work& job, i32 j) const {
        if constexpr (TERMS != 0)
            add_terms<T, TERMS>(s, rows, j * S::N, job.sequence.keys, terms);
        if constexpr (MASKED) {
            if ((j + 1) * S::N > shown.end) hide_after(s, seen, j * S::N);
            if constexpr (MASK == Mask::window)
                if (j * S::N < shown.first) hide_before(s, seen, j * S::N);
        }
    }

    // Weights of a tile's first block.
    __device__ __forceinline__ void weigh_first(typename S::Weights& p, typename S::Scores& s,
                                                LazySoftmax& softmax, const Work& job) {
        scores_done(s, mine.count() == 1);
        score<true>(s, job, mine.end - 1);
        softmax = LazySoftmax();
        softmax.raise(Maxima::of(s), c);
        softmax.weigh(s, c);
        pack_all<T>(p, s);
    }

    __device__ __forceinline__ void start_scores_of(typename S::Scores& s) const {
        start_scores<S>(s, shared.q(wg), k.block());
    }
    __device__ __forceinline__ void scores_done(typename S::Scores& s, bool last) {
        wgmma::hold(s);
        k.release();
        keys_here = k.here();
        if (last) release_q();
    }

    // The very first block, with nothing to do meanwhile.
    __device__ __forceinline__ void first_block(typename S::Weights& p, LazySoftmax& softmax,
                                                const Work& job) {
        typename S::Scores s;
        mbarrier::wait(shared.q_full(wg), q_parity);
        if constexpr (PARTS) k.skip(job.end - mine.end);
        k.await();
        wgmma::fence();
        start_scores_of(s);
        look(job);
        wgmma::wait<0>();
        weigh_first(p, s, softmax, job);
    }

    // The last product of a tile, the first of the next, and while that runs the results of the old one.
    __device__ __forceinline__ void turn_over(typename S::Sums& o, typename S::Weights& p,
                                              LazySoftmax& softmax, const Work& old,
                                              const Work& job, const Results<T>& to) {
        typename S::Scores s;
        v.await();
        turns.await();
        wgmma::fence();
        start_values<S>(o, p, v.block());
        mbarrier::wait(shared.q_full(wg), q_parity);
        if constexpr (PARTS) k.skip(job.end - mine.end);
        k.await();
        start_scores_of(s);
        turns.pass();
        look(job);
        wgmma::wait<1>();
        wgmma::hold(o);
        wgmma::hold(p);
        v.release();
        if constexpr (PARTS) v.skip(behind);
        finish(call, old, to, o, softmax, c, wg);
        wgmma::wait<0>();
        weigh_first(p, s, softmax, job);
    }

    // Scores of block j, while the weights of the block before are used.
    template <bool MASKED>
    __device__ __forceinline__ void step(typename S::Sums& o, typename S::Weights& p,
                                         LazySoftmax& softmax, const Work& job, i32 j) {
        typename S::Scores s;
        if (!keys_here) k.await();
        turns.await();
        wgmma::fence();
        start_scores_of(s);
        v.await();
        start_values<S>(o, p, v.block());
        turns.pass();
        wgmma::wait<1>();
        scores_done(s, j == mine.first);
        score<MASKED>(s, job, j);
        const Maxima top = Maxima::of(s);
        if (__any_sync(0xffffffff, softmax.outgrown(top, c))) {
            wgmma::wait<0>();
            wgmma::hold(o);
            scale_rows(o, softmax.raise(top, c));
        }
        wgmma::wait<0>();
        wgmma::hold(o);
        wgmma::hold(p);
        v.release();
        softmax.weigh(s, c);
        pack_all<T>(p, s);
    }

    __device__ __forceinline__ void last_values(typename S::Sums& o, typename S::Weights& p) {
        v.await();
        wgmma::fence();
        start_values<S>(o, p, v.block());
        wgmma::wait<0>();
        wgmma::hold(o);
        v.release();
    }

    static __device__ __forceinline__ void clear(typename S::Sums& o) {
#pragma unroll
        for (int i = 0; i < S::DV / 2; i++) o[i] = 0.0f;
    }

    // A tile's blocks but the first: those with something to hide are at the ends.
    __device__ __forceinline__ void walk(typename S::Sums& o, typename S::Weights& p,
                                         LazySoftmax& softmax, const Work& job) {
        if constexpr (PARTS) v.skip(job.end - mine.end);
        const i32 hidden = max(shown.end / S::N, mine.first);
        const i32 clear = max((shown.first + S::N - 1) / S::N, mine.first);
        i32 j = mine.end - 2;
        for (; j >= hidden; j--) step<true>(o, p, softmax, job, j);
        for (; j >= clear; j--) step<false>(o, p, softmax, job, j);
        if constexpr (MASK == Mask::window)
            for (; j >= mine.first; j--) step<true>(o, p, softmax, job, j);
        behind = mine.first - job.first;
        if constexpr (PARTS) k.skip(behind);
    }

    // All tiles. The last block of one is finished while the first of the next is begun.
    __device__ __forceinline__ void run(const Results<T>& to, u32 rank) {
        typename S::Sums o;
        typename S::Weights p;
        LazySoftmax softmax;
        Work job;
        bool open = false;
        shared.ticket().for_each([&](const Tile& tile) {
            const Work next(call, tile, rank);
            if (next.empty()) {
                typename S::Sums none;
                clear(none);
                finish(call, next, to, none, Softmax(), c, wg);
                return;
            }
            begin(next);
            if (open) turn_over(o, p, softmax, job, next, to);
            else first_block(p, softmax, next);
            clear(o);
            job = next, open = true;
            walk(o, p, softmax, job);
        });
        if (open) {
            last_values(o, p);
            finish(call, job, to, o, softmax, c, wg);
        }
    }
};

template <class T, int D, int DV, int N, int WGS, int STAGES, Mask MASK, Keys KEYS, u32 TERMS,
          int CTAS, bool TURNS>
__global__ void __cluster_dims__(CTAS, 1, 1) __launch_bounds__((WGS + 1) * 128, 1)
k5_pingpong(const __grid_constant__ TensorMap map_q, const __grid_constant__ TensorMap map_k,
            const __grid_constant__ TensorMap map_v, T* out, i64 out_token, i64 out_head,
            i64 out_batch, f32* lse, i64 lse_token, i64 lse_head, i64 lse_batch, i32 queries,
            i32 keys, i32 m_tiles, i32 heads, i32 batch, i32 section, i32 group, i32 share,
            f32 scale, i32 top_left, i32 left, i32 right, i32 chunk, const f32* sinks, f32 softcap,
            const f32* slopes, i64 slopes_batch, const T* bias, i64 bias_batch, i64 bias_head,
            i64 bias_query, i64 bias_key, const T* relative, i64 relative_batch, i64 relative_query,
            i64 relative_head, i32 extent,
            const u32* q_offsets, const u32* q_lengths, const u32* k_offsets,
            const u32* k_lengths, const u32* table, i32 table_batch, i32 page, i32 page_box,
            u32* counter) {
    using S = Shape<T, D, DV, N, WGS, STAGES>;
    extern __shared__ __align__(1024) u8 memory[];
    const Shared<S> shared{memory};
    const Call call{{queries, keys, q_offsets, q_lengths, k_offsets, k_lengths},
                    {m_tiles, heads, batch, section, CTAS == 1 ? counter : nullptr},
                    __ffs(group) - 1, share, top_left, left, right, chunk,
                    {table, page, page_box}, table_batch};

    if (threadIdx.x == 0) {
        tma::prefetch(map_q), tma::prefetch(map_k), tma::prefetch(map_v);
        shared.init(CTAS);
    }
    if constexpr (CTAS > 1) cluster::meet();
    else __syncthreads();

    constexpr bool LONG = TERMS != 0 && DV <= 128;  // long arithmetic between products
    if (warp::group() == 0) {
        if constexpr (WGS > 1) warp::give_registers<WGS == 4 ? 24 : WGS == 3 ? 32 : LONG ? 24 : 40>();
        produce<S, MASK, KEYS, CTAS>(shared, {map_q, map_k, map_v}, call);
    } else {
        if constexpr (WGS > 1) warp::take_registers<WGS == 4 ? 112 : WGS == 3 ? 160 : LONG ? 240 : 232>();
        const Terms<T> terms{scale, softcap, slopes, slopes_batch, bias, bias_batch, bias_head,
                             bias_query, bias_key, relative, relative_batch, relative_query,
                             relative_head, extent};
        const Results<T> results{out, out_token, out_head, out_batch, lse, lse_token, lse_head,
                                 lse_batch, sinks};
        Consumer<S, MASK, KEYS, TERMS, CTAS, TURNS && (WGS > 1)> consumer(shared, call, terms,
                                                                         warp::group() - 1);
        consumer.run(results, CTAS > 1 ? cluster::rank() : 0);
        consumer.turns.settle();
    }
}
