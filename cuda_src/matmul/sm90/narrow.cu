// Few tokens, many weights: C[M, N] = alpha X[M, K] W[N, K]^T for M up to 128, at memory speed.
//
// The tensor core multiplies 64 rows at a time, so the weights take that side (C^T = W X^T) and the
// tokens the narrow one: BN = 8 to 128. The work is to keep HBM busy, on every SM until the end:
//   ROWS   rows of W a CTA streams, any multiple of 8, so that N / ROWS just fills the GPU. The MMA
//          still multiplies 64; time is not spent there.
//   SPLIT  CTAs of a cluster that share a tile and divide K among them, where ROWS alone would be
//          too few for the tokens that go with them. Partial sums meet in distributed shared memory,
//          added in the order of K: no workspace, no atomics, the same bits every run.
//   SUMS   fp8 products are added up by the tensor core alone, or its sums of 128 are, in registers;
//          those of blocks times two factors: one of 128 x 128 weights, one of a token, which is a
//          column here and has its factor sent with the stage.
//
// Fetching further ahead into L2 than the ring reaches was tried and made every shape slower.
//
// One warp produces (TMA into a ring of STAGES), ceil(ROWS / 64) warpgroups consume. Launch: 128
// threads per warpgroup and 32, grid tiles of N times SPLIT, tiles of tokens, batch.
#include "common/cluster.cuh"
#include "common/mbarrier.cuh"
#include "common/tma.cuh"
#include "common/warp.cuh"
#include "common/wgmma.cuh"
#include "matmul/sm90/extras.cuh"
#include "matmul/sm90/finish.cuh"
#include "matmul/sm90/narrow_cta.cuh"
#include "matmul/sm90/ring.cuh"
#include "matmul/store_four.cuh"

// D of 64 weights by BN tokens, to [token][weight] in shared memory.
template <int PITCH, int REGS>
__device__ __forceinline__ void put_partial(f32* partial, const f32 (&d)[REGS], int wg) {
    const int lane = warp::lane();
    const int m = wg * 64 + threadIdx.x / 32 % 4 * 16 + lane / 4, token = lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < REGS; i++)
        partial[(token + i / 4 * 8 + i % 2) * PITCH + m + i / 2 % 2 * 8] = d[i];
}

// One lane keeps the ring filled.
template <class S>
__device__ __forceinline__ void produce(const Shared<S>& shared, const Maps& maps,
                                        const Work& work) {
    typename S::Cursor at;
    for (i32 k = work.k_first; k < work.k_last; k++, at.next()) {
        Barrier* landed = &shared.full[at.stage];
        mbarrier::wait(&shared.empty[at.stage], at.parity ^ 1);
        mbarrier::arrive_and_expect(landed,
                                    (S::ROWS + S::BN) * 128 + (S::BLOCKWISE ? S::BN * 4 : 0));
        tma::load(shared.w(at.stage), maps.w, landed, k * S::BK, work.n, work.z);
        tma::load(shared.x(at.stage), maps.x, landed, k * S::BK, work.token, work.z);
        if constexpr (S::BLOCKWISE)
            tma::load(shared.scales(at.stage), maps.scale, landed, work.token, k, work.z);
    }
}

// A warpgroup's 64 weights by all tokens: a stage's products, on their way into d or added to it.
template <class S>
__device__ __forceinline__ void mma(typename S::Sum& d, const Shared<S>& shared, u32 stage, int wg,
                                    bool add) {
    const u64 w = ring::operand<Major::k>(shared.w(stage), wg * 64);
    const u64 x = ring::operand<Major::k>(shared.x(stage), 0);
    wgmma::fence();
#pragma unroll
    for (int kk = 0; kk < 4; kk++)
        wgmma::mma<typename S::In, S::BN>(d, wgmma::advance(w, kk * 32),
                                          wgmma::advance(x, kk * 32), add || kk > 0);
    wgmma::commit();
}

// All of K, summed up by the tensor cores; one group stays in flight while the next stage is awaited.
template <class S>
__device__ __forceinline__ void multiply(typename S::Sum& d, const Shared<S>& shared,
                                         const Work& work, int wg) {
    typename S::Cursor at;
    for (i32 k = 0; k < work.k_blocks(); k++, at.next()) {
        mbarrier::wait(&shared.full[at.stage], at.parity);
        mma(d, shared, at.stage, wg, true);
        wgmma::wait<1>();
        if (k > 0 && threadIdx.x % warp::GROUP == 0) mbarrier::arrive(&shared.empty[at.before()]);
    }
    wgmma::wait<0>();
}

// 128 bytes of K at a time, added to d in registers. The time between MMAs belongs to memory anyway.
template <class S, class Scales>
__device__ __forceinline__ void multiply_and_add(typename S::Sum& d, const Shared<S>& shared,
                                                 const Work& work, int wg, Scales scales) {
    typename S::Cursor at;
    for (i32 k = 0; k < work.k_blocks(); k++, at.next()) {
        typename S::Sum sum;
        mbarrier::wait(&shared.full[at.stage], at.parity);
        mma(sum, shared, at.stage, wg, false);
        scales.load(k, shared.scales(at.stage));
        if constexpr (S::BLOCKWISE) __syncwarp();
        wgmma::wait<0>();
        if (threadIdx.x % (warp::GROUP / S::RELEASES) == 0)
            mbarrier::arrive(&shared.empty[at.stage]);
#pragma unroll
        for (int j = 0; j < S::BN / 2; j++) d[j] = fmaf(scales.at(j), sum[j], d[j]);
    }
}

// A thread's share of the tile: four weights of a token per turn.
template <class S> struct Share {
    static constexpr int FOURS = S::ROWS / 4, SIZE = S::BN * FOURS / S::SPLIT;
    static constexpr int TURNS = (SIZE + S::THREADS - 1) / S::THREADS;
    static_assert(S::BN * FOURS % S::SPLIT == 0, "equal shares");
    u32 rank;

    __device__ __forceinline__ bool past(int turn) const {
        return turn * S::THREADS + threadIdx.x >= SIZE;
    }
    __device__ __forceinline__ int token(int turn) const { return index(turn) / FOURS; }
    __device__ __forceinline__ int weight(int turn) const { return index(turn) % FOURS * 4; }
    __device__ __forceinline__ int index(int turn) const {
        return rank * SIZE + turn * S::THREADS + threadIdx.x;
    }
};

// Adds up what the CTAs of the cluster have, in the order of K.
template <class S>
__device__ __forceinline__ void add_up(float4 (&sums)[Share<S>::TURNS], const f32* partial,
                                       Share<S> mine) {
    const u32 base = mbarrier::address(partial);
#pragma unroll
    for (int i = 0; i < Share<S>::TURNS; i++) {
        const u32 at = base + (mine.token(i) * S::PITCH + mine.weight(i)) * 4;
        sums[i] = {0.0f, 0.0f, 0.0f, 0.0f};
        if (mine.past(i)) break;
#pragma unroll
        for (int s = 0; s < S::SPLIT; s++) {
            const float4 v = cluster::load4(S::SPLIT > 1 ? cluster::map(at, s) : at);
            sums[i].x += v.x, sums[i].y += v.y, sums[i].z += v.z, sums[i].w += v.w;
        }
    }
}

// What C needs besides the sums.
template <class S> struct Result {
    using OUT = typename S::Out;
    OUT* C;
    i64 row, batch;
    i32 M, N;
    f32 alpha;
    Extras<OUT> extras;

    // The epilogue on four neighbours of a row of C.
    __device__ __forceinline__ void finish(f32 (&x)[4], i32 token, i32 n, i32 z) const {
        if constexpr (S::EXTRAS) {
            const RowTerms<OUT> row = extras.row(token, z, alpha);
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const i32 at = min(n + j, N - 1);
                x[j] = extras.template apply<S::ACT>(x[j], row, extras.column(at), at, n + j < N);
            }
        } else {
#pragma unroll
            for (int j = 0; j < 4; j++) x[j] = act::apply<S::ACT>(alpha * x[j]);
        }
    }
    __device__ __forceinline__ void write(const float4 (&sums)[Share<S>::TURNS], Share<S> mine,
                                          const Work& work) const {
#pragma unroll
        for (int i = 0; i < Share<S>::TURNS; i++) {
            const i32 token = work.token + mine.token(i), n = work.n + mine.weight(i);
            if (mine.past(i) || token >= M) break;
            f32 x[4] = {sums[i].x, sums[i].y, sums[i].z, sums[i].w};
            finish(x, token, n, work.z);
            store_four(C + work.z * batch + token * row + n, x, N - n);
        }
    }
};

// What scales of blocks a consumer needs.
struct Factors {
    const f32* scales;
    i32 n_step, k_step, N, k_blocks;
};

template <class S>
__device__ __forceinline__ void consume(const Shared<S>& shared, const Work& work,
                                        const Factors& factors) {
    const int wg = warp::group();
    typename S::Sum d;
#pragma unroll
    for (int i = 0; i < S::BN / 2; i++) d[i] = 0.0f;  // a CTA of the cluster may have no K at all
    if constexpr (S::SUMS == Sums::plain) {
        multiply(d, shared, work, wg);
    } else if constexpr (S::BLOCKWISE) {
        finish::TokenScales<S::BN> scales;
        scales.weights.start(factors.scales + i64(work.k_first) * factors.k_step,
                             (work.n + warp::index() * 16) / 128, factors.N, factors.n_step,
                             factors.k_step, factors.k_blocks - work.k_first);
        multiply_and_add(d, shared, work, wg, scales);
    } else {
        multiply_and_add(d, shared, work, wg, finish::Unscaled{});
    }
    warp::sync(1, S::CONSUMERS);  // the ring is about to be overwritten
    put_partial<S::PITCH>(shared.partial(), d, wg);
}

template <class T, class OUT, int ROWS, int BN, int STAGES, int SPLIT, Sums SUMS, Act ACT,
          bool EXTRAS>
__global__ void __cluster_dims__(SPLIT, 1, 1) __launch_bounds__((ROWS + 63) / 64 * 128 + 32)
gemm_narrow(const __grid_constant__ TensorMap map_w, const __grid_constant__ TensorMap map_x,
            const __grid_constant__ TensorMap map_scale, OUT* C, i64 c_row, i64 c_batch, i32 M,
            i32 N, i32 K, f32 alpha, const OUT* bias, const OUT* residual, i64 residual_row,
            i64 residual_batch, const f32* scale_m, const f32* scale_n, i32 scale_m_step,
            i32 scale_n_step, i32 scale_n_k) {
    using S = Narrow<T, OUT, ROWS, BN, STAGES, SPLIT, SUMS, ACT, EXTRAS>;
    extern __shared__ __align__(1024) u8 memory[];
    const Shared<S> shared(memory);
    const u32 rank = SPLIT > 1 ? cluster::rank() : 0;
    const i32 blocks = (K + S::BK - 1) / S::BK;
    const Work work{i32(blockIdx.x / SPLIT * ROWS), i32(blockIdx.y * BN), i32(blockIdx.z),
                    i32(i64(blocks) * rank / SPLIT), i32(i64(blocks) * (rank + 1) / SPLIT)};

    set_up(shared);
    if (warp::index() == S::CONSUMERS / 32) {
        if (warp::elect()) produce(shared, Maps{map_w, map_x, map_scale}, work);
        __syncwarp();
    } else {
        consume(shared, work, Factors{scale_n, scale_n_step, scale_n_k, N, blocks});
    }
    if constexpr (SPLIT > 1) cluster::sync();
    else __syncthreads();

    const Share<S> mine{rank};
    float4 sums[Share<S>::TURNS];
    add_up(sums, shared.partial(), mine);
    if constexpr (SPLIT > 1) cluster::arrive();  // done with the peers' shared memory
    const bool factors = !S::BLOCKWISE;  // else scales are those of blocks
    const Result<S> result{C, c_row, c_batch, M, N,
                           factors && !S::EXTRAS ? uniform(alpha, scale_m, scale_n) : alpha,
                           {bias, 0, 1, residual, residual_row, 1, residual_batch,
                            factors ? scale_m : nullptr, factors ? scale_n : nullptr, scale_m_step,
                            scale_n_step}};
    result.write(sums, mine, work);
    if constexpr (SPLIT > 1) cluster::wait();  // nobody leaves while a peer still reads here
}
