// The library's Hopper matmul: persistent, warp-specialised, any tile the tensor cores like.
//
// C[M, N] = alpha A[M, K] B[N, K]^T. One warpgroup produces: a single thread keeps a ring of STAGES
// tiles filled by TMA. Two consume:
//   cooperative  each owns half the rows of the CTA's tile. One tile is shared by 256 threads, so
//                operands are read from shared memory fewer times; the write-out is exposed.
//   ping-pong    each owns a whole tile of its own; named barriers let one multiply while the other
//                writes out. The write-out is hidden; the tile must fit one warpgroup's registers.
// CTAs of a cluster (CM along M or CN along N) share the tile of the other operand: each loads a part
// and multicasts it, which halves what L2 has to deliver.
//
// SPLIT = 2 makes a cluster of two CTAs that share one tile of C and divide K, where there are too few
// tiles for the GPU: a large tile needs less shared-memory traffic per FLOP than two small ones. Their
// sums meet in distributed shared memory, always in the same order.
//
// A and B may run along K or along M / N (16-bit types). C leaves by TMA store, row-major or
// column-major (COLUMNS, for swapped operands), or, where TMA cannot address it (row pitch or base not
// a multiple of 16 bytes), straight from registers.
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
#include "matmul/sm90/staging.cuh"
#include "matmul/sm90/tiles.cuh"

using mbarrier::Barrier;

enum class Store { rows, columns, direct };

template <class T, int BM, int BN, int STAGES, int CM, int CN, int SPLIT, bool PINGPONG, Major BMAJ>
struct Shape {
    static_assert((CM > 1) + (CN > 1) + (SPLIT > 1) <= 1, "a cluster extends along one dimension");
    static constexpr int BK = 128 / sizeof(T);  // a row of 128 bytes: one swizzle atom
    static constexpr int CLUSTER = CM * CN * SPLIT;
    static constexpr int SHARERS = CM * CN;  // CTAs that read what one of them loads
    static constexpr int SLAB = 64 * 128;  // 64 of M or N by 64 of K, for operands along M or N
    static constexpr int A_BYTES = BM * 128;
    static constexpr int B_BYTES = BMAJ == Major::k ? BN * 128 : (BN + 63) / 64 * SLAB;
    static constexpr int STAGE_BYTES = A_BYTES + B_BYTES;
    static constexpr int WARPGROUPS = 2;
    static constexpr int WG_ROWS = PINGPONG ? BM : BM / WARPGROUPS;  // rows of C a warpgroup owns
    static constexpr int BLOCKS = WG_ROWS / 64;
    static constexpr int PIECE_BYTES = 64 * 128;  // one of two write-out buffers of a warpgroup
    static constexpr int RING_BYTES = STAGES * STAGE_BYTES;
};

template <int N> struct Count {
    static constexpr int value = N;
};

// Position in the ring: which stage, and the parity of its current round.
template <int STAGES> struct Cursor {
    u32 stage = 0, parity = 0;

    __device__ __forceinline__ void next() {
        if (++stage == STAGES) stage = 0, parity ^= 1;
    }
    __device__ __forceinline__ void skip(u32 count) {
        const u32 to = stage + count;
        parity ^= to / STAGES & 1;
        stage = to % STAGES;
    }
};

template <class S, int STAGES> struct Ring {
    u8* tiles;
    Barrier *full, *empty;

    __device__ __forceinline__ u8* a(u32 stage) const { return tiles + stage * S::STAGE_BYTES; }
    __device__ __forceinline__ u8* b(u32 stage) const { return a(stage) + S::A_BYTES; }
};

// Loads this CTA's share of an operand tile; PARTS CTAs of the cluster share the tile.
// `along` is the tile's first row (of M or N), k its first element of K.
template <class T, int ROWS, int PARTS, Major MAJOR>
__device__ __forceinline__ void load_operand(u8* to, const TensorMap& map, Barrier* full, i32 k,
                                             i32 along, i32 z, u32 part, u16 mask) {
    if constexpr (MAJOR == Major::k) {
        constexpr int MINE = ROWS / PARTS;
        u8* mine = to + part * MINE * 128;
        if constexpr (PARTS == 1) tma::load(mine, map, full, k, along, z);
        else tma::load_multicast(mine, map, full, mask, k, along + part * MINE, z);
    } else {
        constexpr int SLABS = (ROWS + 63) / 64, MINE = SLABS / PARTS;
        static_assert(SLABS % PARTS == 0, "whole slabs of 64 per CTA");
#pragma unroll
        for (int i = 0; i < MINE; i++) {
            const int slab = part * MINE + i;
            u8* mine = to + slab * 64 * 128;
            if constexpr (PARTS == 1) tma::load(mine, map, full, along + slab * 64, k, z);
            else tma::load_multicast(mine, map, full, mask, along + slab * 64, k, z);
        }
    }
}

// Descriptor of the operand rows from `row` on, and how far 32 bytes of K are from each other.
template <Major MAJOR> __device__ __forceinline__ u64 operand(const u8* tile, int row) {
    const u32 address = mbarrier::address(tile) + row * 128;  // 64 rows are one slab in either major
    return wgmma::descriptor(address, MAJOR == Major::k ? 16 : 64 * 128, 1024,
                             wgmma::Swizzle::b128);
}
template <Major MAJOR> constexpr u32 K_STEP = MAJOR == Major::k ? 32 : 16 * 128;

struct Out {
    void* base;
    i64 row, column, batch;  // strides in elements
    i32 M, N;
};

// Straight from registers, with bounds: pairs where rows are contiguous and even.
template <class OUT, int REGS>
__device__ __forceinline__ void store_direct(const Out& out, const f32 (&d)[REGS], i32 m0, i32 n0,
                                             i32 z) {
    const int lane = warp::lane();
    const i32 m = m0 + threadIdx.x / 32 % 4 * 16 + lane / 4, n = n0 + lane % 4 * 2;
    OUT* c = static_cast<OUT*>(out.base) + z * out.batch + m * out.row + n * out.column;
#pragma unroll
    for (int i = 0; i < REGS; i++) {
        const i32 dm = i / 2 % 2 * 8, dn = i / 4 * 8 + i % 2;
        if (m + dm < out.M && n + dn < out.N) c[dm * out.row + dn * out.column] = from_f32<OUT>(d[i]);
    }
}

// Extras on columns [FIRST, FIRST + COLS) of a 64-row block. Indices are clamped into C: what lies
// outside is computed, not stored.
template <Act ACT, int COLS, class OUT, int REGS>
__device__ __forceinline__ void finish(f32 (&d)[REGS], int first, const Extras<OUT>& extras,
                                       f32 alpha, i32 m0, i32 n0, i32 z, i32 M, i32 N) {
    const int lane = warp::lane();
    const i32 row = m0 + threadIdx.x / 32 % 4 * 16 + lane / 4, column = n0 + lane % 4 * 2;
    const i32 m[2] = {min(row, M - 1), min(row + 8, M - 1)};
    const RowTerms<OUT> rows[2] = {extras.row(m[0], z, alpha), extras.row(m[1], z, alpha)};
#pragma unroll
    for (int i = first / 2; i < (first + COLS) / 2; i += 4) {
#pragma unroll
        for (int c = 0; c < 2; c++) {
            const i32 n = min(column + i * 2 + c, N - 1);
            const ColumnTerms terms = extras.column(n);
#pragma unroll
            for (int h = 0; h < 2; h++) {
                f32& x = d[i + 2 * h + c];
                x = extras.template apply<ACT>(x, rows[h], terms, n);
            }
        }
        __syncwarp();  // keeps the loads of later columns, and their registers, from moving up here
    }
}

// Registers to shared memory and from a peer's, a thread to the same thread: four at a time, so that
// a warp's accesses are contiguous.
template <int REGS> __device__ __forceinline__ void put_partial(f32* mine, const f32 (&d)[REGS]) {
#pragma unroll
    for (int i = 0; i < REGS; i += 4)
        *reinterpret_cast<float4*>(mine + i * warp::GROUP) =
            make_float4(d[i], d[i + 1], d[i + 2], d[i + 3]);
}

template <int REGS>
__device__ __forceinline__ void add_partial(f32 (&d)[REGS], const f32* mine, u32 peer) {
    const u32 remote = cluster::map(mbarrier::address(mine), peer);
#pragma unroll
    for (int i = 0; i < REGS; i += 4) {
        const float4 v = cluster::load4(remote + i * warp::GROUP * 4);
        d[i] += v.x, d[i + 1] += v.y, d[i + 2] += v.z, d[i + 3] += v.w;
        if (i % 16 == 12) __syncwarp();  // bounds the loads, and their registers, in flight
    }
}

template <class T, class OUT, int BM, int BN, int STAGES, int CM, int CN, int SPLIT, bool PINGPONG,
          Major AM, Major BMAJ, Store STORE, Act ACT, bool EXTRAS>
__global__ void __cluster_dims__(CM * CN * SPLIT, 1, 1) __launch_bounds__(384, 1)
gemm(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
     const __grid_constant__ TensorMap map_c, OUT* C, i64 c_row, i64 c_column, i64 c_batch, i32 M,
     i32 N, i32 K, i32 batch, i32 group, f32 alpha, const OUT* bias, i64 bias_m, i64 bias_n,
     const OUT* residual, i64 residual_m, i64 residual_n, i64 residual_batch, const f32* scale_m,
     const f32* scale_n, i32 scale_m_step, i32 scale_n_step) {
    using S = Shape<T, BM, BN, STAGES, CM, CN, SPLIT, PINGPONG, BMAJ>;
    extern __shared__ __align__(1024) u8 shared[];
    u8* pieces = shared + S::RING_BYTES;
    Barrier* full = reinterpret_cast<Barrier*>(pieces + 4 * S::PIECE_BYTES);
    const Ring<S, STAGES> ring{shared, full, full + STAGES};

    const int role = warp::group();  // 0 produces, 1 and 2 consume
    const u32 rank = S::CLUSTER > 1 ? cluster::rank() : 0;
    const u32 rank_m = CM > 1 ? rank : 0, rank_n = CN > 1 ? rank : 0;

    if (threadIdx.x == 0) {
        tma::prefetch(map_a), tma::prefetch(map_b);
        if (STORE != Store::direct) tma::prefetch(map_c);
        for (int i = 0; i < STAGES; i++) {
            mbarrier::init(&ring.full[i], 1);
            mbarrier::init(&ring.empty[i], (PINGPONG ? 1 : S::WARPGROUPS) * S::SHARERS);
        }
        mbarrier::fence_init();
    }
    if constexpr (S::CLUSTER > 1) cluster::meet();
    else __syncthreads();

    const auto ceil_div = [](i32 a, i32 b) { return (a + b - 1) / b; };
    const tiles::Schedule schedule{ceil_div(M, BM * CM), ceil_div(N, BN * CN), batch, group};
    const i32 count = schedule.count(), first = blockIdx.x / S::CLUSTER,
              step = gridDim.x / S::CLUSTER;
    const i32 all_k = ceil_div(K, S::BK);
    const i32 k_first = SPLIT > 1 ? all_k * rank / SPLIT : 0;
    const i32 k_blocks = SPLIT > 1 ? all_k * (rank + 1) / SPLIT - k_first : all_k;

    if (role == 0) {
        warp::give_registers<24>();
        Cursor<STAGES> at;
        for (i32 t = first; t < count; t += step) {
            const tiles::Tile tile = schedule.at(t);
            const i32 m = (tile.m * CM + rank_m) * BM, n = (tile.n * CN + rank_n) * BN;
            if (threadIdx.x == 0) {
                for (i32 k = k_first; k < k_first + k_blocks; k++, at.next()) {
                    mbarrier::wait(&ring.empty[at.stage], at.parity ^ 1);
                    Barrier* landed = &ring.full[at.stage];
                    mbarrier::arrive_and_expect(landed, S::STAGE_BYTES);
                    constexpr u16 ALL = (1 << S::SHARERS) - 1;
                    load_operand<T, BM, CN, AM>(ring.a(at.stage), map_a, landed, k * S::BK, m,
                                                tile.z, rank_n, ALL);
                    load_operand<T, BN, CM, BMAJ>(ring.b(at.stage), map_b, landed, k * S::BK, n,
                                                  tile.z, rank_m, ALL);
                }
            }
            __syncwarp();
            if constexpr (SPLIT > 1) cluster::sync(), cluster::sync();  // partial sums there, read
        }
    } else {
        warp::take_registers<240>();
        const int wg = role - 1, thread = threadIdx.x % warp::GROUP;
        u8* my_pieces = pieces + wg * 2 * S::PIECE_BYTES;
        const auto release = [&](u32 stage) {
            if constexpr (S::SHARERS == 1) {
                if (thread == 0) mbarrier::arrive(&ring.empty[stage]);
            } else if (thread < S::SHARERS) {
                mbarrier::arrive_remote(&ring.empty[stage], thread);
            }
        };
        Cursor<STAGES> at;
        if (PINGPONG && wg == 1) at.skip(k_blocks);
        u32 piece = 0;
        for (i32 t = first + (PINGPONG ? wg * step : 0); t < count;
             t += step * (PINGPONG ? 2 : 1)) {
            const tiles::Tile tile = schedule.at(t);
            const i32 m = (tile.m * CM + rank_m) * BM + (PINGPONG ? 0 : wg * S::WG_ROWS);
            const i32 n = (tile.n * CN + rank_n) * BN;
            f32 d[S::BLOCKS][BN / 2];

            if (PINGPONG && t != first) warp::sync(1 + wg, 2 * warp::GROUP);
            u32 before = 0;
            for (i32 k = 0; k < k_blocks; k++, at.next()) {
                mbarrier::wait(&ring.full[at.stage], at.parity);
                const u64 b = operand<BMAJ>(ring.b(at.stage), 0);
                wgmma::fence();
#pragma unroll
                for (int kk = 0; kk < 4; kk++) {
#pragma unroll
                    for (int i = 0; i < S::BLOCKS; i++) {
                        const u64 a = operand<AM>(ring.a(at.stage),
                                                  (PINGPONG ? 0 : wg * S::WG_ROWS) + i * 64);
                        wgmma::mma<T, BN, AM, BMAJ>(d[i], wgmma::advance(a, kk * K_STEP<AM>),
                                                    wgmma::advance(b, kk * K_STEP<BMAJ>),
                                                    (k | kk) != 0);
                    }
                }
                wgmma::commit();
                wgmma::wait<1>();
                if (k > 0) release(before);
                before = at.stage;
            }
            if (PINGPONG) {
                if (t + step < count) warp::arrive(1 + (1 - wg), 2 * warp::GROUP);
                at.skip(k_blocks);
            }
            wgmma::wait<0>();
            release(before);
            if constexpr (SPLIT > 1) {
                static_assert(SPLIT == S::WARPGROUPS && S::BLOCKS == 1, "each warpgroup's rows");
                // CTA r finishes the rows of warpgroup r: the other's go through the ring, which
                // nobody fills before the next tile.
                f32* partial = reinterpret_cast<f32*>(shared) + thread * 4;
                warp::sync(5, 2 * warp::GROUP);  // the other warpgroup has read the ring too
                if (wg != rank) put_partial(partial, d[0]);
                cluster::sync();
                if (wg == rank) add_partial(d[0], partial, rank ^ 1);
                cluster::arrive();
                if (wg != rank) {
                    cluster::wait();
                    continue;
                }
            }

            const auto finished = [&](auto columns, int i, int from) {
                constexpr int COLS = decltype(columns)::value;
                if constexpr (EXTRAS) {
                    const Extras<OUT> extras{bias, bias_m, bias_n, residual, residual_m, residual_n,
                        residual_batch, scale_m, scale_n, scale_m_step, scale_n_step};
                    finish<ACT, COLS>(d[i], from, extras, alpha, m + i * 64, n, tile.z, M, N);
                } else {
#pragma unroll
                    for (int j = from / 2; j < (from + COLS) / 2; j++)
                        d[i][j] = act::apply<ACT>(d[i][j] * alpha);
                }
            };
#pragma unroll
            for (int i = 0; i < S::BLOCKS; i++) {
                if constexpr (STORE == Store::direct) {
                    finished(Count<BN>{}, i, 0);
                    store_direct<OUT>(Out{C, c_row, c_column, c_batch, M, N}, d[i], m + i * 64, n,
                                      tile.z);
                } else {
                    constexpr int COLS = STORE == Store::columns ? (BN < 64 ? BN : 64)
                        : (BN * int(sizeof(OUT)) % 128 == 0 ? 128
                           : BN * int(sizeof(OUT)) % 64 == 0 ? 64 : 32) / int(sizeof(OUT));
                    static_assert(BN % COLS == 0, "the tile is whole pieces");
#pragma unroll
                    for (int c = 0; c < BN; c += COLS, piece ^= 1) {
                        u8* to = my_pieces + piece * S::PIECE_BYTES;
                        finished(Count<COLS>{}, i, c);
                        if (thread == 0) tma::wait_read<1>();
                        warp::sync(3 + wg, warp::GROUP);
                        if constexpr (STORE == Store::rows)
                            staging::write_rows<OUT, COLS>(to, d[i], c);
                        else staging::write_columns<OUT, COLS>(to, d[i], c);
                        tma::fence_shared();
                        warp::sync(3 + wg, warp::GROUP);
                        if (thread == 0) {
                            if constexpr (STORE == Store::rows)
                                tma::store(map_c, to, n + c, m + i * 64, tile.z);
                            else tma::store(map_c, to, m + i * 64, n + c, tile.z);
                            tma::commit();
                        }
                    }
                }
            }
            if constexpr (SPLIT > 1) cluster::wait();
        }
        if (STORE != Store::direct && thread == 0) tma::wait_read<0>();  // the end of the grid waits
        __syncwarp();
    }
    if constexpr (S::CLUSTER > 1) cluster::meet();  // peers may still signal barriers here
}
