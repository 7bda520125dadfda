// The library's Hopper matmul: persistent, warp-specialised, any tile the tensor cores like.
//
// C[M, N] = act(alpha A[M, K] B[N, K]^T ...). One warpgroup produces: a single thread keeps a ring of
// STAGES tiles filled by TMA, across tiles of C, so that memory is never idle. Two consume:
//   rows, columns  the warpgroups share a tile of C, split along M or N. Operands are read from
//                  shared memory for more FLOPs; the write-out is exposed.
//   pingpong       each owns a whole tile; named barriers let one multiply while the other writes out.
//                  The write-out is hidden; the tile must fit one warpgroup's registers.
// CTAs of a CM x CN cluster share operand tiles by multicast, which divides what L2 has to deliver.
// SPLIT = 2 makes a cluster of two CTAs that share one tile of C and divide K, where there are too few
// tiles for the GPU. Their sums meet in distributed shared memory, always in the same order.
//
// A and B may run along K or along M / N (16-bit types). C leaves by TMA store, row-major or
// column-major (for swapped operands), or, where TMA cannot address it (row pitch or base not a
// multiple of 16 bytes), by plain stores of rows.
//
// K must give every CTA of a split at least one block of 128 bytes.
//
// Launch: 384 threads; grid a multiple of the cluster size, at most one CTA per SM.
#include "common/cluster.cuh"
#include "common/mbarrier.cuh"
#include "common/tma.cuh"
#include "common/warp.cuh"
#include "common/wgmma.cuh"
#include "matmul/sm90/cta.cuh"
#include "matmul/sm90/extras.cuh"
#include "matmul/sm90/finish.cuh"
#include "matmul/sm90/ring.cuh"
#include "matmul/sm90/staging.cuh"

// Fetches the tile's part of K, stage by stage, as they become empty.
template <class G>
__device__ __forceinline__ void fetch(const Shared<G>& shared, const Maps& maps,
                                      const Work<G>& work, finish::Origin tile,
                                      typename G::Cursor& at) {
    for (i32 k = work.k_first; k < work.k_first + work.k_blocks; k++, at.next()) {
        Barrier* landed = &shared.full[at.stage];
        mbarrier::wait(&shared.empty[at.stage], at.parity ^ 1);
        mbarrier::arrive_and_expect(landed, G::Stage::BYTES + (G::BLOCKWISE ? G::BM * 4 : 0));
        if constexpr (G::BLOCKWISE)
            tma::load(shared.row_scales + at.stage * G::BM, maps.scale, landed, tile.m, k, tile.z);
        ring::load<G::BM, G::CN, G::A>(shared.a(at.stage), maps.a, landed, k * G::BK, tile.m,
                                       tile.z, work.place.n, work.place.row_mask());
        ring::load<G::BN, G::CM, G::B>(shared.b(at.stage), maps.b, landed, k * G::BK, tile.n,
                                       tile.z, work.place.m, work.place.column_mask());
    }
}

template <class G>
__device__ __forceinline__ void produce(const Shared<G>& shared, const Maps& maps,
                                        const Work<G>& work) {
    typename G::Cursor at;
    for (i32 t = work.first; t < work.count; t += work.step) {
        if (threadIdx.x == 0) fetch(shared, maps, work, work.origin(t), at);
        __syncwarp();
        if constexpr (G::SPLIT > 1) cluster::sync(), cluster::sync();  // partial sums there, read
    }
    // The last releases come from other CTAs too: they must find this one's barriers alive.
    if (G::CM * G::CN > 1 && threadIdx.x == 0) {
        for (int i = 0; i < G::STAGES; i++, at.next())
            mbarrier::wait(&shared.empty[at.stage], at.parity ^ 1);
    }
}

// A consumer warpgroup, and where its part of a tile begins.
template <class G> struct Consumer {
    int wg, thread, row, column;

    __device__ __forceinline__ explicit Consumer(int wg)
        : wg(wg), thread(threadIdx.x % warp::GROUP), row(G::BY_ROWS ? wg * G::ROWS : 0),
          column(G::BY_COLUMNS ? wg * G::COLS : 0) {}

    // Lets everyone who feeds this stage know that it has been read.
    __device__ __forceinline__ void release(const Shared<G>& shared, const Work<G>& work,
                                            u32 stage) const {
        const int who = G::RELEASES > 1 ? warp::lane() : thread;
        if constexpr (G::CM * G::CN == 1) {
            if (who == 0) mbarrier::arrive(&shared.empty[stage]);
        } else if (who < G::Place::FEEDERS) {
            mbarrier::arrive_remote(&shared.empty[stage], work.place.feeder(who));
        }
    }
    // Block i of 64 rows times the stage's columns: 32 bytes of K.
    __device__ __forceinline__ void mma(const Shared<G>& shared, f32 (&sum)[G::COLS / 2], u32 stage,
                                        int i, int kk, u32 add) const {
        const u64 a = ring::operand<G::A>(shared.a(stage), row + i * 64);
        const u64 b = ring::operand<G::B>(shared.b(stage), column);
        wgmma::mma<typename G::In, G::COLS, G::A, G::B>(
            sum, wgmma::advance(a, kk * ring::K_STEP<G::A>),
            wgmma::advance(b, kk * ring::K_STEP<G::B>), add);
    }
};

// All of K, summed up by the tensor cores; one group stays in flight while the next stage is awaited.
template <class G>
__device__ __forceinline__ void multiply(const Consumer<G>& me, const Shared<G>& shared,
                                         const Work<G>& work, typename G::Cursor& at,
                                         typename G::Sum& d) {
    u32 before = 0;
    for (i32 k = 0; k < work.k_blocks; k++, at.next()) {
        mbarrier::wait(&shared.full[at.stage], at.parity);
        wgmma::fence();
#pragma unroll
        for (int kk = 0; kk < 4; kk++) {
#pragma unroll
            for (int i = 0; i < G::BLOCKS; i++)
                me.mma(shared, d[i], at.stage, i, kk, (k | kk) != 0);
        }
        wgmma::commit();
        wgmma::wait<1>();
        if (k > 0) me.release(shared, work, before);
        before = at.stage;
    }
}

// 128 bytes of K at a time, added to d in registers; the other warpgroup keeps the tensor cores busy.
template <class G, class Scales>
__device__ __forceinline__ void multiply_and_add(const Consumer<G>& me, const Shared<G>& shared,
                                                 const Work<G>& work, typename G::Cursor& at,
                                                 typename G::Sum& d, Scales scales) {
    finish::zero(d);
    for (i32 k = 0; k < work.k_blocks; k++, at.next()) {
        mbarrier::wait(&shared.full[at.stage], at.parity);
#pragma unroll
        for (int i = 0; i < G::BLOCKS; i++) {
            f32 sum[G::COLS / 2];
            wgmma::fence();
#pragma unroll
            for (int kk = 0; kk < 4; kk++) me.mma(shared, sum, at.stage, i, kk, kk != 0);
            wgmma::commit();
            if (i == 0) scales.load(k, shared.row_scales + at.stage * G::BM);
            if (G::BLOCKWISE && i == G::BLOCKS - 1) __syncwarp();
            wgmma::wait<0>();
            if (i == G::BLOCKS - 1) me.release(shared, work, at.stage);
#pragma unroll
            for (int j = 0; j < G::COLS / 2; j++)
                d[i][j] = fmaf(scales.at(i, j / 2 % 2, j / 4 * 8), sum[j], d[i][j]);
        }
    }
}

// A split tile: CTA r finishes the rows of warpgroup r. The other's sums go through the ring, which
// nobody fills before the next tile. False: nothing is left to this warpgroup.
template <class G>
__device__ __forceinline__ bool exchange(const Consumer<G>& me, const Shared<G>& shared, u32 rank,
                                         typename G::Sum& d) {
    f32* partial = reinterpret_cast<f32*>(shared.ring) + me.thread * 4;
    warp::sync(BARRIER_BOTH, 2 * warp::GROUP);  // both have read the ring
    if (me.wg != rank) finish::put_partial(partial, d[0]);
    cluster::sync();
    if (me.wg == rank) finish::add_partial(d[0], partial, rank ^ 1);
    cluster::arrive();
    if (me.wg != rank) cluster::wait();
    return me.wg == rank;
}

// What C needs besides the sums.
template <class G> struct Result {
    using OUT = typename G::Out;
    OUT* C;
    i64 row, batch;
    i32 M, N;
    f32 alpha;
    Extras<OUT> extras;

    // The epilogue on one piece's columns of a block.
    __device__ __forceinline__ void finish(f32 (&d)[G::COLS / 2], int from,
                                           finish::Origin block) const {
        if constexpr (G::TERMS == Terms::all) {
            finish::extras<G::ACT, G::PIECE_COLS>(d, from, extras, alpha, block, M, N);
        } else if constexpr (G::TERMS == Terms::scales) {
            finish::extras<G::ACT, G::PIECE_COLS>(d, from, extras.scales(), alpha, block, M, N);
        } else {
#pragma unroll
            for (int j = from / 2; j < (from + G::PIECE_COLS) / 2; j++)
                d[j] = act::apply<G::ACT>(d[j] * alpha);
        }
    }
    // A piece by plain stores; every warp its own rows.
    __device__ __forceinline__ void copy(u8* piece, const f32 (&d)[G::COLS / 2], int from,
                                         finish::Origin block) const {
        __syncwarp();
        staging::write_rows<OUT, G::PIECE_COLS>(piece, d, from);
        __syncwarp();
        OUT* to = C + block.z * batch + i64(block.m) * row + block.n + from;
        staging::copy_rows<OUT, G::PIECE_COLS>(piece, to, row, M - block.m, N - block.n - from);
    }
};

// A piece by TMA, once the store before the last has read its buffer.
template <class G>
__device__ __forceinline__ void send(const Consumer<G>& me, u8* piece, const TensorMap& map,
                                     const f32 (&d)[G::COLS / 2], int from, finish::Origin block) {
    using OUT = typename G::Out;
    if (me.thread == 0) tma::wait_read<1>();
    warp::sync(BARRIER_PIECES + me.wg, warp::GROUP);
    if constexpr (G::STORE == Store::rows) staging::write_rows<OUT, G::PIECE_COLS>(piece, d, from);
    else if constexpr (G::STORE == Store::columns)
        staging::write_columns<OUT, G::PIECE_COLS>(piece, d, from);
    tma::fence_shared();
    warp::sync(BARRIER_PIECES + me.wg, warp::GROUP);
    if (me.thread == 0) {
        if constexpr (G::STORE == Store::rows)
            tma::store(map, piece, block.n + from, block.m, block.z);
        else tma::store(map, piece, block.m, block.n + from, block.z);
        tma::commit();
    }
}

// C in pieces, through the warpgroup's two buffers in turn.
template <class G>
__device__ __forceinline__ void write_out(const Consumer<G>& me, const Shared<G>& shared,
                                          const Maps& maps, const Result<G>& result,
                                          finish::Origin mine, typename G::Sum& d, u32& turn) {
#pragma unroll
    for (int i = 0; i < G::BLOCKS; i++) {
        const finish::Origin block{mine.m + i * 64, mine.n, mine.z};
#pragma unroll
        for (int from = 0; from < G::COLS; from += G::PIECE_COLS, turn ^= 1) {
            u8* piece = shared.pieces + (me.wg * 2 + turn) * PIECE_BYTES;
            result.finish(d[i], from, block);
            if constexpr (G::STORE == Store::direct) result.copy(piece, d[i], from, block);
            else send(me, piece, maps.c, d[i], from, block);
        }
    }
}

template <class G>
__device__ __forceinline__ void consume(const Consumer<G>& me, const Shared<G>& shared,
                                        const Maps& maps, const Work<G>& work,
                                        const Result<G>& result, const f32* scale_n,
                                        i32 scale_n_step, i32 scale_n_k) {
    typename G::Cursor at;
    if (G::PINGPONG && me.wg == 1) at.skip(work.k_blocks);
    u32 turn = 0;
    const i32 first = work.first + (G::PINGPONG ? me.wg * work.step : 0);
    for (i32 t = first; t < work.count; t += work.step * (G::PINGPONG ? 2 : 1)) {
        const finish::Origin tile = work.origin(t);
        const finish::Origin mine{tile.m + me.row, tile.n + me.column, tile.z};
        typename G::Sum d;
        if (G::PINGPONG && t != work.first) warp::sync(BARRIER_TURN + me.wg, 2 * warp::GROUP);
        if constexpr (G::SUMS == Sums::plain) multiply(me, shared, work, at, d);
        else if constexpr (G::BLOCKWISE)
            multiply_and_add(me, shared, work, at, d,
                             finish::BlockScales<G::BLOCKS, G::COLS>(
                                 scale_n, scale_n_step, scale_n_k, work.k_blocks, mine.n, result.N,
                                 me.row));
        else multiply_and_add(me, shared, work, at, d, finish::Unscaled{});
        if (G::PINGPONG && t + work.step < work.count)
            warp::arrive(BARRIER_TURN + 1 - me.wg, 2 * warp::GROUP);
        if constexpr (G::SUMS == Sums::plain) {
            wgmma::wait<0>();
            me.release(shared, work, at.before());
        }
        if (G::PINGPONG) at.skip(work.k_blocks);
        if constexpr (G::SPLIT > 1) {
            if (!exchange(me, shared, work.rank, d)) continue;
        }
        write_out(me, shared, maps, result, mine, d, turn);
        if constexpr (G::SPLIT > 1) cluster::wait();
    }
    if (G::STORE != Store::direct && me.thread == 0) tma::wait_read<0>();  // the grid's end waits
    __syncwarp();
}

template <class T, class OUT, int BM, int BN, int STAGES, int CM, int CN, int SPLIT, Share SHARE,
          Major A, Major B, Store STORE, Sums SUMS, Act ACT, Terms TERMS>
__global__ void __cluster_dims__(CM * CN * SPLIT, 1, 1) __launch_bounds__(384, 1)
gemm(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
     const __grid_constant__ TensorMap map_c, const __grid_constant__ TensorMap map_scale, OUT* C,
     i64 c_row, i64 c_batch, i32 M, i32 N, i32 K, i32 batch, i32 group, f32 alpha, const OUT* bias,
     i64 bias_m, i64 bias_n, const OUT* residual, i64 residual_m, i64 residual_n,
     i64 residual_batch, const f32* scale_m, const f32* scale_n, i32 scale_m_step,
     i32 scale_n_step, i32 scale_n_k) {
    using G = Gemm<T, OUT, BM, BN, STAGES, CM, CN, SPLIT, SHARE, A, B, STORE, SUMS, ACT, TERMS>;
    extern __shared__ __align__(1024) u8 memory[];
    const Shared<G> shared(memory);
    const Maps maps{map_a, map_b, map_c, map_scale};
    const int role = warp::group();  // 0 produces, 1 and 2 consume

    set_up(shared, maps);
    const Work<G> work(M, N, K, batch, group);
    if (role == 0) {
        warp::give_registers<G::HEAVY ? 24 : 40>();
        produce(shared, maps, work);
    } else {
        warp::take_registers<G::HEAVY ? 240 : 232>();
        const bool factors = !G::BLOCKWISE;  // else scales are those of blocks
        const bool in_alpha = factors && G::TERMS == Terms::none;  // there are no others
        const Result<G> result{C, c_row, c_batch, M, N,
                               in_alpha ? uniform(alpha, scale_m, scale_n) : alpha,
                               {bias, bias_m, bias_n, residual, residual_m, residual_n,
                                residual_batch, factors ? scale_m : nullptr,
                                factors ? scale_n : nullptr, scale_m_step, scale_n_step}};
        consume(Consumer<G>(role - 1), shared, maps, work, result, scale_n, scale_n_step,
                scale_n_k);
    }
}
