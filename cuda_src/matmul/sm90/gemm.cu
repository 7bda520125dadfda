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
#include "matmul/sm90/extras.cuh"
#include "matmul/sm90/finish.cuh"
#include "matmul/sm90/ring.cuh"
#include "matmul/sm90/staging.cuh"
#include "matmul/sm90/tiles.cuh"

using mbarrier::Barrier;

enum class Share { rows, columns, pingpong };  // how the two consumer warpgroups divide the work
enum class Store { rows, columns, direct };    // how C leaves
// Where products are added up: in the tensor core (fp8 keeps about 14 bits there), or 128 bytes of K at
// a time, with the sum of those sums in f32 registers and (blocks) a scale for each.
enum class Sums { plain, promoted, blocks };

constexpr int CONSUMERS = 2, PIECE_BYTES = 64 * 128;  // each warpgroup has two pieces of C on their way
constexpr int BARRIER_TURN = 1, BARRIER_PIECES = 3, BARRIER_BOTH = 5;  // named barriers

// Columns of C per piece: the widest rows of 128, 64 or 32 bytes that divide a warpgroup's tile.
template <class OUT, int COLS, Store STORE> __device__ constexpr int piece_columns() {
    if (STORE == Store::columns) return COLS < 64 ? COLS : 64;
    const int bytes = COLS * int(sizeof(OUT));
    return (bytes % 128 == 0 ? 128 : bytes % 64 == 0 ? 64 : 32) / int(sizeof(OUT));
}

template <int N> struct Count {
    static constexpr int value = N;
};

template <class T, class OUT, int BM, int BN, int STAGES, int CM, int CN, int SPLIT, Share SHARE,
          Major AM, Major BMAJ, Store STORE, Sums SUMS, Act ACT, bool EXTRAS>
__global__ void __cluster_dims__(CM * CN * SPLIT, 1, 1) __launch_bounds__(384, 1)
gemm(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
     const __grid_constant__ TensorMap map_c, const __grid_constant__ TensorMap map_scale, OUT* C,
     i64 c_row, i64 c_batch, i32 M, i32 N, i32 K, i32 batch, i32 group, f32 alpha, const OUT* bias,
     i64 bias_m, i64 bias_n, const OUT* residual, i64 residual_m, i64 residual_n,
     i64 residual_batch, const f32* scale_m, const f32* scale_n, i32 scale_m_step,
     i32 scale_n_step, i32 scale_n_k) {
    static_assert(SPLIT == 1 || (CM * CN == 1 && BM == 128 && SHARE == Share::rows),
                  "a split tile is finished half by half");
    constexpr bool PINGPONG = SHARE == Share::pingpong;
    constexpr int BK = 128 / sizeof(T), CLUSTER = CM * CN * SPLIT;
    constexpr int ROWS = SHARE == Share::rows ? BM / CONSUMERS : BM;  // a warpgroup's part of C
    constexpr int COLS = SHARE == Share::columns ? BN / CONSUMERS : BN;
    constexpr int BLOCKS = ROWS / 64;
    constexpr bool BLOCKWISE = SUMS == Sums::blocks;
    constexpr int RELEASES = BLOCKWISE ? 4 : 1;  // per warpgroup: warps read their row scales alone
    static_assert(!BLOCKWISE || COLS <= 128 + (COLS & -COLS), "two column blocks a tile");
    constexpr bool HEAVY = BLOCKS * COLS / 2 > 192;  // accumulators that need the last registers
    using Stage = ring::Stage<BM, BN, BMAJ>;
    using Place = ring::Place<CM, CN>;

    extern __shared__ __align__(1024) u8 shared[];
    u8* pieces = shared + STAGES * Stage::BYTES;
    f32* row_scales = reinterpret_cast<f32*>(pieces + 2 * CONSUMERS * PIECE_BYTES);
    Barrier* full = reinterpret_cast<Barrier*>(row_scales + (BLOCKWISE ? STAGES * BM : 0));
    Barrier* empty = full + STAGES;

    const int role = warp::group();  // 0 produces, 1 and 2 consume
    const u32 rank = CLUSTER > 1 ? cluster::rank() : 0;
    const Place place = SPLIT == 1 ? Place::at(rank) : Place{0, 0};

    if (threadIdx.x == 0) {
        tma::prefetch(map_a), tma::prefetch(map_b);
        if (STORE != Store::direct) tma::prefetch(map_c);
        for (int i = 0; i < STAGES; i++) {
            mbarrier::init(&full[i], 1);
            mbarrier::init(&empty[i], (PINGPONG ? 1 : CONSUMERS) * RELEASES * Place::FEEDERS);
        }
        mbarrier::fence_init();
    }
    if constexpr (CLUSTER > 1) cluster::meet();
    else __syncthreads();

    const auto ceil_div = [](i32 a, i32 b) { return (a + b - 1) / b; };
    const tiles::Schedule schedule{ceil_div(M, BM * CM), ceil_div(N, BN * CN), batch, group};
    const i32 count = schedule.count(), first = blockIdx.x / CLUSTER, step = gridDim.x / CLUSTER;
    const i32 all_k = ceil_div(K, BK), k_first = SPLIT > 1 ? all_k * rank / SPLIT : 0;
    const i32 k_blocks = SPLIT > 1 ? all_k * (rank + 1) / SPLIT - k_first : all_k;

    if (role == 0) {
        warp::give_registers<HEAVY ? 24 : 40>();
        ring::Cursor<STAGES> at;
        for (i32 t = first; t < count; t += step) {
            const tiles::Tile tile = schedule.at(t);
            const i32 m = (tile.m * CM + place.m) * BM, n = (tile.n * CN + place.n) * BN;
            if (threadIdx.x == 0) {
                for (i32 k = k_first; k < k_first + k_blocks; k++, at.next()) {
                    u8* stage = shared + at.stage * Stage::BYTES;
                    Barrier* landed = &full[at.stage];
                    mbarrier::wait(&empty[at.stage], at.parity ^ 1);
                    mbarrier::arrive_and_expect(landed, Stage::BYTES + (BLOCKWISE ? BM * 4 : 0));
                    if constexpr (BLOCKWISE)
                        tma::load(row_scales + at.stage * BM, map_scale, landed, m, k, tile.z);
                    ring::load<BM, CN, AM>(stage, map_a, landed, k * BK, m, tile.z, place.n,
                                           place.row_mask());
                    ring::load<BN, CM, BMAJ>(stage + Stage::A_BYTES, map_b, landed, k * BK, n,
                                             tile.z, place.m, place.column_mask());
                }
            }
            __syncwarp();
            if constexpr (SPLIT > 1) cluster::sync(), cluster::sync();  // partial sums there, read
        }
        // The last releases come from other CTAs too: they must find this one's barriers alive.
        if (CM * CN > 1 && threadIdx.x == 0) {
            for (int i = 0; i < STAGES; i++, at.next()) mbarrier::wait(&empty[at.stage], at.parity ^ 1);
        }
    } else {
        warp::take_registers<HEAVY ? 240 : 232>();
        const int wg = role - 1, thread = threadIdx.x % warp::GROUP;
        u8* my_pieces = pieces + wg * 2 * PIECE_BYTES;
        const auto release = [&](u32 stage) {
            const int who = RELEASES > 1 ? warp::lane() : thread;
            if constexpr (CM * CN == 1) {
                if (who == 0) mbarrier::arrive(&empty[stage]);
            } else if (who < Place::FEEDERS) {
                mbarrier::arrive_remote(&empty[stage], place.feeder(who));
            }
        };
        ring::Cursor<STAGES> at;
        if (PINGPONG && wg == 1) at.skip(k_blocks);
        u32 piece = 0;
        for (i32 t = first + (PINGPONG ? wg * step : 0); t < count;
             t += step * (PINGPONG ? 2 : 1)) {
            const tiles::Tile tile = schedule.at(t);
            const int my_row = SHARE == Share::rows ? wg * ROWS : 0;
            const int my_column = SHARE == Share::columns ? wg * COLS : 0;
            const i32 m = (tile.m * CM + place.m) * BM + my_row;
            const i32 n = (tile.n * CN + place.n) * BN + my_column;
            f32 d[BLOCKS][COLS / 2];

            auto scales = [&] {
                if constexpr (BLOCKWISE)
                    return finish::BlockScales<BLOCKS, COLS>(scale_n, scale_n_step, scale_n_k, k_blocks,
                                                             n, N, my_row);
                else return finish::Unscaled{};
            }();
            if constexpr (SUMS != Sums::plain) finish::zero(d);

            if (PINGPONG && t != first) warp::sync(BARRIER_TURN + wg, 2 * warp::GROUP);
            const auto multiply = [&](f32 (&sum)[COLS / 2], const u8* stage, u64 b, int i, int kk,
                                      u32 add) {
                const u64 a = ring::operand<AM>(stage, my_row + i * 64);
                wgmma::mma<T, COLS, AM, BMAJ>(sum, wgmma::advance(a, kk * ring::K_STEP<AM>),
                                              wgmma::advance(b, kk * ring::K_STEP<BMAJ>), add);
            };
            u32 before = 0;
            for (i32 k = 0; k < k_blocks; k++, at.next()) {
                const u8* stage = shared + at.stage * Stage::BYTES;
                mbarrier::wait(&full[at.stage], at.parity);
                const u64 b = ring::operand<BMAJ>(stage + Stage::A_BYTES, my_column);
                if constexpr (SUMS == Sums::plain) {
                    wgmma::fence();
#pragma unroll
                    for (int kk = 0; kk < 4; kk++) {
#pragma unroll
                        for (int i = 0; i < BLOCKS; i++) multiply(d[i], stage, b, i, kk, (k | kk) != 0);
                    }
                    wgmma::commit();
                    wgmma::wait<1>();
                    if (k > 0) release(before);
                } else {
                    // The other warpgroup keeps the tensor cores busy while this one adds.
#pragma unroll
                    for (int i = 0; i < BLOCKS; i++) {
                        f32 sum[COLS / 2];
                        wgmma::fence();
#pragma unroll
                        for (int kk = 0; kk < 4; kk++) multiply(sum, stage, b, i, kk, kk != 0);
                        wgmma::commit();
                        if (i == 0) scales.load(k, row_scales + at.stage * BM);
                        if (BLOCKWISE && i == BLOCKS - 1) __syncwarp();
                        wgmma::wait<0>();
                        if (i == BLOCKS - 1) release(at.stage);
#pragma unroll
                        for (int j = 0; j < COLS / 2; j++)
                            d[i][j] = fmaf(scales.at(i, j / 2 % 2, j / 4 * 8), sum[j], d[i][j]);
                    }
                }
                before = at.stage;
            }
            if (PINGPONG) {
                if (t + step < count) warp::arrive(BARRIER_TURN + 1 - wg, 2 * warp::GROUP);
                at.skip(k_blocks);
            }
            if constexpr (SUMS == Sums::plain) {
                wgmma::wait<0>();
                release(before);
            }
            if constexpr (SPLIT > 1) {
                // CTA r finishes the rows of warpgroup r: the other's go through the ring, which
                // nobody fills before the next tile.
                f32* partial = reinterpret_cast<f32*>(shared) + thread * 4;
                warp::sync(BARRIER_BOTH, 2 * warp::GROUP);  // both have read the ring
                if (wg != rank) finish::put_partial(partial, d[0]);
                cluster::sync();
                if (wg == rank) finish::add_partial(d[0], partial, rank ^ 1);
                cluster::arrive();
                if (wg != rank) {
                    cluster::wait();
                    continue;
                }
            }

            const auto finished = [&](auto columns, int i, int from) {
                constexpr int WIDTH = decltype(columns)::value;
                if constexpr (EXTRAS) {
                    const Extras<OUT> extras{bias, bias_m, bias_n, residual, residual_m, residual_n,
                        residual_batch, BLOCKWISE ? nullptr : scale_m,
                        BLOCKWISE ? nullptr : scale_n, scale_m_step, scale_n_step};
                    finish::extras<ACT, WIDTH>(d[i], from, extras, alpha, {m + i * 64, n, tile.z},
                                               M, N);
                } else {
#pragma unroll
                    for (int j = from / 2; j < (from + WIDTH) / 2; j++)
                        d[i][j] = act::apply<ACT>(d[i][j] * alpha);
                }
            };
#pragma unroll
            for (int i = 0; i < BLOCKS; i++) {
                constexpr int WIDTH = piece_columns<OUT, COLS, STORE>();
                static_assert(COLS % WIDTH == 0, "the tile is whole pieces");
#pragma unroll
                for (int c = 0; c < COLS; c += WIDTH, piece ^= 1) {
                    u8* to = my_pieces + piece * PIECE_BYTES;
                    finished(Count<WIDTH>{}, i, c);
                    if constexpr (STORE == Store::direct) {
                        __syncwarp();
                        staging::write_rows<OUT, WIDTH>(to, d[i], c);
                        __syncwarp();
                        staging::copy_rows<OUT, WIDTH>(
                            to, C + tile.z * c_batch + i64(m + i * 64) * c_row + n + c, c_row,
                            M - m - i * 64, N - n - c);
                        continue;
                    }
                    if (thread == 0) tma::wait_read<1>();
                    warp::sync(BARRIER_PIECES + wg, warp::GROUP);
                    if constexpr (STORE == Store::rows)
                        staging::write_rows<OUT, WIDTH>(to, d[i], c);
                    else if constexpr (STORE == Store::columns)
                        staging::write_columns<OUT, WIDTH>(to, d[i], c);
                    tma::fence_shared();
                    warp::sync(BARRIER_PIECES + wg, warp::GROUP);
                    if (thread == 0) {
                        if constexpr (STORE == Store::rows)
                            tma::store(map_c, to, n + c, m + i * 64, tile.z);
                        else tma::store(map_c, to, m + i * 64, n + c, tile.z);
                        tma::commit();
                    }
                }
            }
            if constexpr (SPLIT > 1) cluster::wait();
        }
        if (STORE != Store::direct && thread == 0) tma::wait_read<0>();  // the end of the grid waits
        __syncwarp();
    }
}
