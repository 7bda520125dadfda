// Attention kernel 3, Hopper: TMA brings keys and values, warpgroups multiply by wgmma.
//
// Idea over kernel 2: nobody who computes copies. One warp asks TMA for blocks of keys and values, two
// stages ahead; each of the consumer warpgroups owns 64 queries and takes both operands of S = Q K^T, and
// the values of O += P V, straight from shared memory. Weights go on from registers. Full and empty
// barriers, one pair per stage, are all that the two sides say to each other; registers that the producer
// does not need go to the consumers.
//
// A step of a warpgroup, for block j of the keys (from the right, where masks are):
//     S = Q K_j^T, and wait          tensor cores
//     P = 2^(S - max), rescale O     everything else
//     O += P V_j, and wait           tensor cores
// Only other warpgroups use the tensor cores meanwhile, when chance has them in another phase.
//
// Napkin (d 128, 128 x 128): per step 2 x 1024 clk of products, and some 900 clk of softmax behind the
// first half and before the second of each warpgroup. In lockstep that is 2950 clk for 2048 of products:
// 70 % of the tensor cores, less what waiting for results costs.
//
// Limits: one tile per CTA: nothing runs while a CTA starts and while it ends. Any lengths; rows start at
// multiples of 16 bytes. Grid: (tiles of queries, heads, batch).
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
template <class S, Mask MASK>
__device__ __forceinline__ void consume(const Shared<S>& shared, const Call& call,
                                        const Work<S, MASK>& job, int wg, f32 c,
                                        typename S::Sums& o, Softmax& softmax) {
    const Interval seen[2] = {job.visible.of(row_of(call, job, wg, 0).query),
                              job.visible.of(row_of(call, job, wg, 1).query)};
    Cursor<S::STAGES> at;
    mbarrier::wait(shared.q_full(wg), 0);
    for (i32 j = job.end - 1; j >= job.first; j--, at.next()) {
        typename S::Scores s;
        typename S::Weights p;
        mbarrier::wait(shared.k_full(at.stage), at.parity);
        wgmma::fence();
        start_scores<S>(s, shared.q(wg), shared.k(at.stage));
        wgmma::wait<0>();
        wgmma::hold(s);
        if (threadIdx.x % warp::GROUP == 0) mbarrier::arrive(shared.k_empty(at.stage));

        hide<MASK>(s, seen, j * S::N);
        scale_rows(o, softmax.step(s, c));
        pack_all<typename S::T>(p, s);

        mbarrier::wait(shared.v_full(at.stage), at.parity);
        wgmma::hold(o);
        wgmma::hold(p);
        wgmma::fence();
        start_values<S>(o, p, shared.v(at.stage));
        wgmma::wait<0>();
        wgmma::hold(o);
        if (threadIdx.x % warp::GROUP == 0) mbarrier::arrive(shared.v_empty(at.stage));
    }
}

template <class T, int D, int DV, int N, int WGS, int STAGES, Mask MASK>
__global__ void __launch_bounds__((WGS + 1) * 128, 1)
k3_warpgroups(const __grid_constant__ TensorMap map_q, const __grid_constant__ TensorMap map_k,
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
        if (!job.empty()) consume(shared, call, job, wg, c, o, softmax);
        finish(call, job, Results<T>{out, out_token, out_head, out_batch, lse, lse_token, lse_head,
                                     lse_batch, nullptr}, o, softmax, c, wg);
    }
}
