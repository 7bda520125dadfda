// f32 matmul without tensor cores: exact products, f32 sums in the order of K.
//
// C[M, N] = act(alpha scale_m scale_n A B + bias) + residual for any strides of A and B. The FMA units
// are the limit, and everything else has to stay out of their way:
//   - A thread holds 8 x 8 sums: for each of K it reads 4 chunks of 16 bytes for 64 FMAs. In a warp, 4
//     threads along M and 8 along N read 32 rows and 64 columns, and neighbouring lanes the same
//     chunks: lanes i and i ^ 1 those of B, i and i ^ 2 those of A. So half a warp's chunks are 128
//     bytes at most, which shared memory can deliver at once: reading should take half its time.
//   - A ring of STAGES tiles is filled by cp.async, one barrier for each 16 of K. 16 bytes at a time
//     where a matrix runs along M / N and its lines start at multiples of 16 bytes. Along K elements
//     go one by one, since they are transposed; so they do at other addresses and strides, which is
//     the slower path: four times the copies beside the FMAs, 8 for every 1024.
//   - Tiles are numbered in groups of 8 rows of tiles, for the sake of L2.
//   - Where there are too few tiles for the GPU, K is divided in slices: sums of each go to a
//     workspace, and epilogue.cu adds them up in the order of K.
// No sum depends on which thread comes first: the same bits every time.
//
// Predicted: 64 FMAs come with 4 loads and some 3 to 6 instructions of copying and counting, so 87
// to 90 % of the FMA units' peak at best. Measured: results/h200/matmul_f32.md.
//
// K >= 1, a slice of it a multiple of 16. Launch: BM BN / 64 threads, a CTA per tile, slice and matrix.
#include "matmul/simt/tile.cuh"
#include "matmul/sm80/raster.cuh"
#include "matmul/sm90/extras.cuh"
#include "matmul/store_four.cuh"

using simt::Copy;

template <class OUT_, int BM_, int BN_, int STAGES_, Copy A, Copy B, Act ACT_, bool EXTRAS_>
struct Sgemm {
    using OUT = OUT_;
    static constexpr int BM = BM_, BN = BN_, STAGES = STAGES_, THREADS = BM * BN / 64;
    static constexpr Act ACT = ACT_;
    static constexpr bool EXTRAS = EXTRAS_;
    using StripA = simt::Strip<A, BM, THREADS>;
    using StripB = simt::Strip<B, BN, THREADS>;
    using Rows = simt::Fragment<BM, 4>;
    using Columns = simt::Fragment<BN, 8>;
    static constexpr int A_SIZE = simt::Tile<BM>::SIZE, STAGE = A_SIZE + simt::Tile<BN>::SIZE;
};

// A thread's 8 x 8 sums, and where they are in a tile of C.
template <class S> struct Sums {
    typename S::Rows rows;
    typename S::Columns columns;
    f32 d[8][8];

    __device__ __forceinline__ Sums()
        : rows(warp::index() % (S::BM / S::Rows::WARP), warp::lane() / 16 * 2 + warp::lane() % 2),
          columns(warp::index() / (S::BM / S::Rows::WARP), warp::lane() / 2 % 8) {
#pragma unroll
        for (int i = 0; i < 64; i++) d[i / 8][i % 8] = 0.0f;
    }
    __device__ __forceinline__ void add(const f32* stage, int k) {
        f32 a[8], b[8];
        rows.load(a, stage, k);
        columns.load(b, stage + S::A_SIZE, k);
#pragma unroll
        for (int i = 0; i < 64; i++) d[i / 8][i % 8] = fmaf(a[i / 8], b[i % 8], d[i / 8][i % 8]);
    }
};

// One barrier per tile: it shows the tile to all threads, and tells that all have read the one before,
// whose place is filled next.
template <class S>
__device__ __forceinline__ void multiply(Sums<S>& sums, typename S::StripA a, typename S::StripB b,
                                         f32* ring, i32 tiles) {
    const auto fetch = [&](i32 tile) {
        f32* stage = ring + tile % S::STAGES * S::STAGE;
        if (tile < tiles) a.fetch(stage), b.fetch(stage + S::A_SIZE);
        cp_async::commit();  // also where there is none left: what is waited for stays the same
    };
#pragma unroll
    for (int tile = 0; tile < S::STAGES - 1; tile++) fetch(tile);
    for (i32 tile = 0; tile < tiles; tile++) {
        cp_async::wait<S::STAGES - 2>();
        __syncthreads();
        fetch(tile + S::STAGES - 1);
        const f32* stage = ring + tile % S::STAGES * S::STAGE;
#pragma unroll
        for (int k = 0; k < simt::BK; k++) sums.add(stage, k);
    }
}

// What C needs besides the sums; the tile starts at row m, column n of matrix z.
template <class S> struct Result {
    using OUT = typename S::OUT;
    OUT* C;
    i64 row;
    i32 M, N, m, n, z;
    f32 alpha;
    Extras<OUT> extras;

    __device__ __forceinline__ void write(const Sums<S>& sums) const {
        ColumnTerms terms[8];
        if constexpr (S::EXTRAS) {
#pragma unroll
            for (int j = 0; j < 8; j++)
                terms[j] = extras.column(min(n + sums.columns.index(j), N - 1));
        }
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const i32 at = m + sums.rows.index(i);
            if (at < M) write_row(sums, i, terms, at);
        }
    }
    __device__ __forceinline__ void write_row(const Sums<S>& sums, int i,
                                              const ColumnTerms (&terms)[8], i32 at) const {
        RowTerms<OUT> mine;
        if constexpr (S::EXTRAS) mine = extras.row(at, z, alpha);
#pragma unroll
        for (int j = 0; j < 8; j += simt::CHUNK) {
            const i32 column = n + sums.columns.index(j);
            f32 x[simt::CHUNK];
#pragma unroll
            for (int e = 0; e < simt::CHUNK; e++) {
                const f32 sum = sums.d[i][j + e];
                if constexpr (S::EXTRAS)
                    x[e] = extras.template apply<S::ACT>(sum, mine, terms[j + e], column + e,
                                                         column + e < N);
                else x[e] = act::apply<S::ACT>(alpha * sum);
            }
            store_four(C + at * row + column, x, N - column);
        }
    }
};

template <class OUT, int BM, int BN, int STAGES, Copy A_COPY, Copy B_COPY, Act ACT, bool EXTRAS>
__global__ void __launch_bounds__(BM* BN / 64, 512 / (BM * BN / 64))
sgemm(const f32* A, const f32* B, OUT* C, i32 M, i32 N, i32 K, i32 slice, i64 a_m, i64 a_k,
      i64 a_batch, i64 b_n, i64 b_k, i64 b_batch, i64 c_row, i64 c_batch, i64 c_slice, f32 alpha,
      const OUT* bias, const OUT* residual, i64 residual_row, i64 residual_batch,
      const f32* scale_m, const f32* scale_n, i32 scale_m_step, i32 scale_n_step) {
    using S = Sgemm<OUT, BM, BN, STAGES, A_COPY, B_COPY, ACT, EXTRAS>;
    extern __shared__ __align__(128) f32 ring[];
    const u32 tiles_m = (M + BM - 1) / BM, tiles_n = (N + BN - 1) / BN, tiles = tiles_m * tiles_n;
    const auto tile = sm80::raster<8>(blockIdx.x % tiles, tiles_m, tiles_n);
    const i32 m = tile.m * BM, n = tile.n * BN;
    const i32 slices = (K + slice - 1) / slice, place = blockIdx.x / tiles;
    const i64 z = place / slices, k = i64(place % slices) * slice;
    const i32 depth = min(i64(slice), K - k);

    Sums<S> sums;
    multiply(sums, typename S::StripA({A + z * a_batch + k * a_k, a_m, a_k, m, M, depth}),
             typename S::StripB({B + z * b_batch + k * b_k, b_n, b_k, n, N, depth}), ring,
             (depth + simt::BK - 1) / simt::BK);
    OUT* c = C + z * c_batch + place % slices * c_slice;
    const Result<S> result{c, c_row, M, N, m, n, i32(z), alpha,
                           {bias, 0, 1, residual, residual_row, 1, residual_batch, scale_m,
                            scale_n, scale_m_step, scale_n_step}};
    result.write(sums);
}
