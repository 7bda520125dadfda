// Few tokens, many weights: C[M, N] = alpha X[M, K] W[N, K]^T for M up to 128, at memory speed.
//
// The tensor core multiplies 64 rows at a time, so the weights take that side (C^T = W X^T) and the
// tokens the narrow one: BN = 8 to 128. The work is to keep HBM busy, on every SM until the end:
//   ROWS   rows of W a CTA streams, any multiple of 8, so that N / ROWS just fills the GPU. The MMA
//          still multiplies 64; time is not spent there.
//   SPLIT  CTAs of a cluster that share a tile and divide K among them, where ROWS alone would be
//          too few for the tokens that go with them. Partial sums meet in distributed shared memory,
//          added in the order of K: no workspace, no atomics, the same bits every run.
//
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

using mbarrier::Barrier;

template <class T, int ROWS, int BN, int STAGES> struct Narrow {
    static_assert(ROWS % 8 == 0, "whole swizzle atoms");
    static constexpr int BK = 128 / sizeof(T);
    static constexpr int BM = (ROWS + 63) / 64 * 64;  // what the MMAs multiply
    static constexpr int W_BYTES = BM * 128, STAGE_BYTES = W_BYTES + BN * 128;
    static constexpr int CONSUMERS = BM * 2;       // threads
    static constexpr int PITCH = BM + 4;           // of partial sums: eight token rows, eight banks
    static constexpr int PARTIAL_BYTES = BN * PITCH * 4;
    static constexpr int RING_BYTES = STAGES * STAGE_BYTES;
    static constexpr int BARRIERS = RING_BYTES > PARTIAL_BYTES ? RING_BYTES : PARTIAL_BYTES;
};

// D of 64 weights by BN tokens, to [token][weight] in shared memory.
template <int PITCH, int REGS>
__device__ __forceinline__ void put_partial(f32* partial, const f32 (&d)[REGS], int wg) {
    const int lane = warp::lane();
    const int m = wg * 64 + threadIdx.x / 32 % 4 * 16 + lane / 4, token = lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < REGS; i++)
        partial[(token + i / 4 * 8 + i % 2) * PITCH + m + i / 2 % 2 * 8] = d[i];
}

// The rows of W that no copy fills: their products are thrown away, but they are read.
template <class S, int ROWS, int STAGES> __device__ __forceinline__ void clear_padding(u8* ring) {
    constexpr int CHUNKS = (S::BM - ROWS) * 8;  // of 16 bytes, per stage
    for (int i = threadIdx.x; i < STAGES * CHUNKS; i += S::CONSUMERS + 32) {
        u8* rows = ring + i / CHUNKS * S::STAGE_BYTES + ROWS * 128;
        *reinterpret_cast<uint4*>(rows + i % CHUNKS * 16) = uint4{};
    }
}

template <class OUT> struct alignas(4 * sizeof(OUT)) Four { OUT lane[4]; };

// Four neighbours of a row of C, or as many of them as there are.
template <class OUT>
__device__ __forceinline__ void store_four(OUT* c, const f32 (&x)[4], i32 left) {
    const Four<OUT> four = {from_f32<OUT>(x[0]), from_f32<OUT>(x[1]), from_f32<OUT>(x[2]),
                            from_f32<OUT>(x[3])};
    if (left >= 4 && reinterpret_cast<u64>(c) % sizeof(four) == 0) {
        *reinterpret_cast<Four<OUT>*>(c) = four;
    } else {
#pragma unroll
        for (int j = 0; j < 4; j++)
            if (j < left) c[j] = four.lane[j];
    }
}

// The part of K that this CTA of the cluster adds up, in blocks of 128 bytes.
struct Range {
    i32 first, last;
};

// One lane keeps the ring filled.
template <class S, int ROWS, int BN, int STAGES>
__device__ __forceinline__ void produce(u8* ring, Barrier* full, Barrier* empty,
                                        const TensorMap& map_w, const TensorMap& map_x, Range k,
                                        i32 n0, i32 token0, i32 z) {
    u32 stage = 0, parity = 1;
    for (i32 i = k.first; i < k.last; i++) {
        u8* w = ring + stage * S::STAGE_BYTES;
        mbarrier::wait(&empty[stage], parity);
        mbarrier::arrive_and_expect(&full[stage], (ROWS + BN) * 128);
        tma::load(w, map_w, &full[stage], i * S::BK, n0, z);
        tma::load(w + S::W_BYTES, map_x, &full[stage], i * S::BK, token0, z);
        if (++stage == STAGES) stage = 0, parity ^= 1;
    }
}

// A warpgroup's 64 weights by all tokens.
template <class T, class S, int BN, int STAGES>
__device__ __forceinline__ void multiply(f32 (&d)[BN / 2], const u8* ring, Barrier* full,
                                         Barrier* empty, Range k, int wg) {
#pragma unroll
    for (int i = 0; i < BN / 2; i++) d[i] = 0.0f;  // a CTA of the cluster may have no K at all
    u32 stage = 0, parity = 0, before = 0;
    for (i32 i = k.first; i < k.last; i++) {
        const u32 w = mbarrier::address(ring + stage * S::STAGE_BYTES);
        const u64 a = wgmma::descriptor(w + wg * 64 * 128, 16, 1024, wgmma::Swizzle::b128);
        const u64 b = wgmma::descriptor(w + S::W_BYTES, 16, 1024, wgmma::Swizzle::b128);
        mbarrier::wait(&full[stage], parity);
        wgmma::fence();
#pragma unroll
        for (int kk = 0; kk < 4; kk++)
            wgmma::mma<T, BN>(d, wgmma::advance(a, kk * 32), wgmma::advance(b, kk * 32), 1);
        wgmma::commit();
        wgmma::wait<1>();
        if (i > k.first && threadIdx.x % warp::GROUP == 0) mbarrier::arrive(&empty[before]);
        before = stage;
        if (++stage == STAGES) stage = 0, parity ^= 1;
    }
    wgmma::wait<0>();
}

// A thread's share of the tile: four weights of a token per turn.
template <class S, int ROWS, int BN, int SPLIT> struct Share {
    static constexpr int FOURS = ROWS / 4, SIZE = BN * FOURS / SPLIT, THREADS = S::CONSUMERS + 32;
    static constexpr int TURNS = (SIZE + THREADS - 1) / THREADS;
    static_assert(BN * FOURS % SPLIT == 0, "equal shares");
    u32 rank;

    __device__ __forceinline__ bool past(int turn) const {
        return turn * THREADS + threadIdx.x >= SIZE;
    }
    __device__ __forceinline__ int token(int turn) const { return index(turn) / FOURS; }
    __device__ __forceinline__ int weight(int turn) const { return index(turn) % FOURS * 4; }
    __device__ __forceinline__ int index(int turn) const {
        return rank * SIZE + turn * THREADS + threadIdx.x;
    }
};

// Adds up what the CTAs of the cluster have, in the order of K.
template <class S, int SPLIT, class Mine>
__device__ __forceinline__ void add_up(float4 (&sums)[Mine::TURNS], const u8* partial, Mine mine) {
    const u32 base = mbarrier::address(partial);
#pragma unroll
    for (int i = 0; i < Mine::TURNS; i++) {
        const u32 at = base + (mine.token(i) * S::PITCH + mine.weight(i)) * 4;
        sums[i] = {0.0f, 0.0f, 0.0f, 0.0f};
        if (mine.past(i)) break;
#pragma unroll
        for (int s = 0; s < SPLIT; s++) {
            const float4 v = cluster::load4(SPLIT > 1 ? cluster::map(at, s) : at);
            sums[i].x += v.x, sums[i].y += v.y, sums[i].z += v.z, sums[i].w += v.w;
        }
    }
}

// The epilogue on four neighbours of a row of C.
template <Act ACT, bool EXTRAS, class OUT>
__device__ __forceinline__ void finish_four(f32 (&x)[4], const Extras<OUT>& extras, f32 alpha,
                                            i32 token, i32 n, i32 z, i32 N) {
    if constexpr (EXTRAS) {
        const RowTerms<OUT> row = extras.row(token, z, alpha);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const i32 at = min(n + j, N - 1);
            x[j] = extras.template apply<ACT>(x[j], row, extras.column(at), at, n + j < N);
        }
    } else {
#pragma unroll
        for (int j = 0; j < 4; j++) x[j] = act::apply<ACT>(alpha * x[j]);
    }
}

template <class T, class OUT, int ROWS, int BN, int STAGES, int SPLIT, Act ACT, bool EXTRAS>
__global__ void __cluster_dims__(SPLIT, 1, 1) __launch_bounds__((ROWS + 63) / 64 * 128 + 32)
gemm_narrow(const __grid_constant__ TensorMap map_w, const __grid_constant__ TensorMap map_x,
            OUT* C, i64 c_row, i64 c_batch, i32 M, i32 N, i32 K, f32 alpha, const OUT* bias,
            const OUT* residual, i64 residual_row, i64 residual_batch, const f32* scale_m,
            const f32* scale_n, i32 scale_m_step, i32 scale_n_step) {
    using S = Narrow<T, ROWS, BN, STAGES>;
    extern __shared__ __align__(1024) u8 shared[];
    Barrier* full = reinterpret_cast<Barrier*>(shared + S::BARRIERS);
    Barrier* empty = full + STAGES;

    const u32 rank = SPLIT > 1 ? cluster::rank() : 0;
    const i32 n0 = blockIdx.x / SPLIT * ROWS, token0 = blockIdx.y * BN, z = blockIdx.z;
    const i32 blocks = (K + S::BK - 1) / S::BK;
    const Range k{i32(i64(blocks) * rank / SPLIT), i32(i64(blocks) * (rank + 1) / SPLIT)};
    const int role = warp::index();

    if (threadIdx.x == S::CONSUMERS) {
        for (int i = 0; i < STAGES; i++) {
            mbarrier::init(&full[i], 1);
            mbarrier::init(&empty[i], S::BM / 64);
        }
        mbarrier::fence_init();
    }
    if constexpr (ROWS < S::BM) {
        clear_padding<S, ROWS, STAGES>(shared);
        tma::fence_shared();
    }
    __syncthreads();

    if (role == S::CONSUMERS / 32) {
        if (warp::elect())
            produce<S, ROWS, BN, STAGES>(shared, full, empty, map_w, map_x, k, n0, token0, z);
        __syncwarp();
    } else {
        f32 d[BN / 2];
        multiply<T, S, BN, STAGES>(d, shared, full, empty, k, role / 4);
        warp::sync(1, S::CONSUMERS);  // the ring is about to be overwritten
        put_partial<S::PITCH>(reinterpret_cast<f32*>(shared), d, role / 4);
    }
    if constexpr (SPLIT > 1) cluster::sync();
    else __syncthreads();

    using Mine = Share<S, ROWS, BN, SPLIT>;
    const Mine mine{rank};
    float4 sums[Mine::TURNS];
    add_up<S, SPLIT>(sums, shared, mine);
    if constexpr (SPLIT > 1) cluster::arrive();  // done with the peers' shared memory
    const Extras<OUT> extras{bias, 0, 1, residual, residual_row, 1, residual_batch, scale_m,
                             scale_n, scale_m_step, scale_n_step};
#pragma unroll
    for (int i = 0; i < Mine::TURNS; i++) {
        const i32 token = token0 + mine.token(i), n = n0 + mine.weight(i);
        if (mine.past(i) || token >= M) break;
        f32 x[4] = {sums[i].x, sums[i].y, sums[i].z, sums[i].w};
        finish_four<ACT, EXTRAS>(x, extras, alpha, token, n, z, N);
        store_four(C + z * c_batch + token * c_row + n, x, N - n);
    }
    if constexpr (SPLIT > 1) cluster::wait();  // nobody leaves while a peer still reads here
}
