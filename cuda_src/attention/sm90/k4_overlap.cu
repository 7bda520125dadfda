// Attention kernel 4, Hopper: softmax under the products of the same warpgroup.
//
// Idea over kernel 3: a warpgroup need not wait for its own products. The scores of a block do not depend
// on the sums of the block before, so both are started together, and the softmax of the one runs while
// the tensor cores are still at the other:
//     start S = Q K_j^T, start O += P V_{j+1}
//     S there: P = 2^(S - max)           under P V_{j+1}
//     O there: rescale O by what the maximum grew, round P
// The price is registers: scores, weights and sums at the same time.
//
// Napkin (d 128, 128 x 128): of some 900 clk of softmax, the 512 clk of P V that a warpgroup has left
// when its scores are there are covered; what else warpgroups cover of each other is chance.
//
// Limits: as kernel 3. Grid: (tiles of queries, heads, batch).
#include "attention/sm90/finish.cuh"
#include "attention/sm90/load.cuh"

using namespace attention;

template <class S, Mask MASK> using Work = Job<S, MASK, Keys::dense, 1>;

// One warp.
template <class S, Mask MASK>
__device__ __forceinline__ void produce(const Shared<S>& shared, const Maps& maps, const Call& call,
                                        const Work<S, MASK>& job) {
    load_queries(shared, maps.q, call, job, 0);
    Loader<S, MASK, Keys::dense, 1> loader{shared, maps, call, 0};
    loader.tile(job);
    loader.flush();
}

// A warpgroup.
template <class S, Mask MASK> struct Consumer {
    const Shared<S>& shared;
    const Work<S, MASK>& job;
    int wg;
    f32 c;
    Interval seen[2];
    Cursor<S::STAGES> at_k, at_v;

    static __device__ __forceinline__ void release(Barrier* empty, Cursor<S::STAGES>& at) {
        if (threadIdx.x % warp::GROUP == 0) mbarrier::arrive(empty);
        at.next();
    }
    __device__ __forceinline__ void begin_scores(typename S::Scores& s) const {
        mbarrier::wait(shared.k_full(at_k.stage), at_k.parity);
        wgmma::fence();
        start_scores<S>(s, shared.q(wg), shared.k(at_k.stage));
    }
    __device__ __forceinline__ Rise weigh(typename S::Scores& s, Softmax& softmax, i32 j) {
        wgmma::hold(s);
        release(shared.k_empty(at_k.stage), at_k);
        hide<MASK>(s, seen, j * S::N);
        return softmax.step(s, c);
    }
    __device__ __forceinline__ void end_values(typename S::Sums& o, typename S::Weights& p) {
        wgmma::wait<0>();
        wgmma::hold(o);
        wgmma::hold(p);
        release(shared.v_empty(at_v.stage), at_v);
    }

    __device__ __forceinline__ void run(typename S::Sums& o, Softmax& softmax) {
        typename S::Scores s;
        typename S::Weights p;
        mbarrier::wait(shared.q_full(wg), 0);
        begin_scores(s);
        wgmma::wait<0>();
        weigh(s, softmax, job.end - 1);
        pack_all<typename S::T>(p, s);
        for (i32 j = job.end - 2; j >= job.first; j--) {
            begin_scores(s);
            mbarrier::wait(shared.v_full(at_v.stage), at_v.parity);
            start_values<S>(o, p, shared.v(at_v.stage));
            wgmma::wait<1>();  // scores are there, sums need not be
            const Rise rise = weigh(s, softmax, j);
            wgmma::after(softmax.sum[0] + softmax.sum[1]);
            end_values(o, p);
            scale_rows(o, rise);
            pack_all<typename S::T>(p, s);
        }
        mbarrier::wait(shared.v_full(at_v.stage), at_v.parity);
        wgmma::hold(o);
        wgmma::hold(p);
        wgmma::fence();
        start_values<S>(o, p, shared.v(at_v.stage));
        end_values(o, p);
    }
};

template <class T, int D, int DV, int N, int WGS, int STAGES, Mask MASK>
__global__ void __launch_bounds__((WGS + 1) * 128, 1)
k4_overlap(const __grid_constant__ TensorMap map_q, const __grid_constant__ TensorMap map_k,
           const __grid_constant__ TensorMap map_v, T* out, i64 out_token, i64 out_head,
           i64 out_batch, f32* lse, i64 lse_token, i64 lse_head, i64 lse_batch, i32 queries,
           i32 keys, i32 share, f32 scale, i32 top_left, i32 left, i32 right, i32 chunk) {
    using S = Shape<T, D, DV, N, WGS, STAGES>;
    extern __shared__ __align__(1024) u8 memory[];
    const Shared<S> shared{memory};
    const Call call = Call::dense(queries, keys, share, top_left, left, right, chunk);
    // The last queries see most keys under a causal mask: they start first.
    const Work<S, MASK> job(call, {i32(gridDim.x - 1 - blockIdx.x), i32(blockIdx.y), i32(blockIdx.z)},
                            0);
    if (threadIdx.x == 0) shared.init(1);
    __syncthreads();

    if (warp::group() == 0) {
        if constexpr (WGS > 1) warp::give_registers<WGS == 2 ? 40 : 32>();
        if (warp::index() == 0 && !job.empty()) produce(shared, {map_q, map_k, map_v}, call, job);
    } else {
        if constexpr (WGS > 1) warp::take_registers<WGS == 2 ? 232 : 160>();
        const int wg = warp::group() - 1;
        typename S::Sums o = {};
        Softmax softmax;
        const f32 c = scale * LOG2E;
        const Interval seen[2] = {job.visible.of(row_of(call, job, wg, 0).query),
                                  job.visible.of(row_of(call, job, wg, 1).query)};
        if (!job.empty())
            Consumer<S, MASK>{shared, job, wg, c, {seen[0], seen[1]}}.run(o, softmax);
        finish(call, job, Results<T>{out, out_token, out_head, out_batch, lse, lse_token, lse_head,
                                     lse_batch, nullptr}, o, softmax, c, wg);
    }
}
