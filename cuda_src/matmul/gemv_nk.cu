// Matrix-vector product with row-major weights: C[M, N] = A[M, K] B[N, K]^T, M a handful.
//
// Every weight is read once and used M times, so the time is the weights' size over the bandwidth of
// HBM, and the work is to never let HBM wait. Little's law asks for 4.8 TB/s x 0.8 us / 132 SMs =
// 29 KB of loads in flight on every SM of an H200; a thread keeps ROWS x UNROLL of 16 bytes each, in
// registers, so that 512 threads with 8 hold 64 KB, and asks for the first of them before it waits for
// anything. A batch is reloaded as soon as it is used up, across the ends of rows.
//
// A warp's lanes lie along K: one load is 512 consecutive bytes of a row. ROWS rows share what is
// read and unpacked of x. The rows are dealt out one warp at a time, SM by SM, so that the SMs end
// together although N / SMs is rarely whole. With SPLIT, a CTA's warps share rows and divide K: for
// N too small to give every warp rows of its own.
//
// Sums: f32 in each lane, then over the lanes by shuffles, then (SPLIT) over the warps, always in
// the same order. x waits in shared memory if STAGE (a number of elements) is not 0; else it is read
// through L1, which the weights bypass.
//
// Limits: VEC divides K and the row pitches of A and B, and both are aligned to VEC elements; STAGE
// holds K rounded up to a batch; K < 2^31. Any N, M and number of CTAs.
#include "matmul/epilogue.cuh"
#include "matmul/gemv.cuh"

// One thread's part of the products of ROWS rows of B with M rows of A.
template <class T, int M, int VEC, int ROWS, int UNROLL, int WARPS, int STAGE, Hint HINT>
struct RowProduct {
    static constexpr int STEP = WARPS * 32 * VEC;  // elements from one load of a thread to its next
    static constexpr int BATCH = STEP * UNROLL;
    static constexpr int SUMS = ROWS * M;
    using Sums = gemv::Fold<SUMS, 16, 1>;
    using W = gemv::Packed<T, VEC>;

    const T* x;
    const i64 x_row;
    const i32 K, first;  // first: where the thread's part of a batch begins
    const T* row[ROWS];
    W w[UNROLL][ROWS];
    f32 sum[ROWS][M];

    __device__ __forceinline__ RowProduct(const T* x, i64 x_row, i32 K, i32 first)
        : x(x), x_row(x_row), K(K), first(first) { clear(); }

    __device__ __forceinline__ void open(const T* B, i64 pitch, i64 tile, i64 N) {
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            const i64 n = tile * ROWS + r;
            row[r] = B + (n < N ? n : N - 1) * pitch + first;  // beyond N: read again, store never
        }
    }

    // Asks for the batch at k; batches of a row come in order.
    __device__ __forceinline__ void fetch(i32 k) {
#pragma unroll
        for (int u = 0; u < UNROLL; ++u)
#pragma unroll
            for (int r = 0; r < ROWS; ++r)
                w[u][r] = once::load_if<HINT>(k + first + u * STEP < K,
                                              reinterpret_cast<const W*>(row[r] + u * STEP));
#pragma unroll
        for (int r = 0; r < ROWS; ++r) row[r] += BATCH;
    }

    __device__ __forceinline__ W x_at(int m, i32 k) const {
        if constexpr (STAGE > 0) return *reinterpret_cast<const W*>(x + m * STAGE + k);
        return k < K ? __ldg(reinterpret_cast<const W*>(x + m * x_row + k)) : W{};
    }

    __device__ __forceinline__ void multiply(i32 k) {
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            f32 xs[M][VEC];
#pragma unroll
            for (int m = 0; m < M; ++m) gemv::widen<T, VEC>(x_at(m, k + first + u * STEP), xs[m]);
#pragma unroll
            for (int r = 0; r < ROWS; ++r) {
                f32 ws[VEC];
                gemv::widen<T, VEC>(w[u][r], ws);
#pragma unroll
                for (int i = 0; i < VEC; ++i)
#pragma unroll
                    for (int m = 0; m < M; ++m) sum[r][m] = fmaf(ws[i], xs[m][i], sum[r][m]);
            }
        }
    }

    __device__ __forceinline__ void clear() {
#pragma unroll
        for (int i = 0; i < SUMS; ++i) (&sum[0][0])[i] = 0.0f;
    }
};

// Stores value i = row * M + token of a tile.
template <int M, int ROWS, class OUT, Act ACT>
__device__ __forceinline__ void put(OUT* C, i64 c_row, i64 tile, int i, i64 N, f32 sum,
                                    const Epilogue<OUT, ACT>& epilogue) {
    const i64 n = tile * ROWS + i / M;
    const int m = i % M;
    if (n < N) C[m * c_row + n] = from_f32<OUT>(epilogue(sum, m, n));
}

// Adds what the warps of a CTA found. Two buffers take turns: the next tile's sums need not wait
// until all of this tile's are read.
template <int SUMS, int WARPS, class Sums>
__device__ __forceinline__ f32 join(const f32* v, int at, int lane, int warp, bool turn) {
    __shared__ f32 partial[2][WARPS][SUMS];
    if (!(lane & Sums::COPIES))
#pragma unroll
        for (int i = 0; i < Sums::KEPT; ++i) partial[turn][warp][at + i] = v[i];
    __syncthreads();
    f32 sum = 0.0f;
    if (threadIdx.x < SUMS)
#pragma unroll
        for (int w = 0; w < WARPS; ++w) sum += partial[turn][w][threadIdx.x];
    return sum;
}

template <class T, class OUT, int M, int VEC, int ROWS, int UNROLL, int WARPS, bool SPLIT, int BLOCKS,
          int STAGE, Hint HINT, Act ACT>
__global__ void __launch_bounds__(WARPS * 32, BLOCKS)
gemv_nk(const T* A, const T* B, OUT* C, const OUT* bias, const OUT* residual, u32 terms, i64 N,
        i32 K, i64 a_row, i64 b_row, i64 c_row, i64 residual_row, f32 alpha) {
    using Product = RowProduct<T, M, VEC, ROWS, UNROLL, SPLIT ? WARPS : 1, STAGE, HINT>;
    using Sums = typename Product::Sums;
    extern __shared__ __align__(16) u8 shared[];

    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const i64 tiles = (N + ROWS - 1) / ROWS;
    const i64 stride = i64(gridDim.x) * (SPLIT ? 1 : WARPS);
    i64 tile = SPLIT ? blockIdx.x : i64(warp) * gridDim.x + blockIdx.x;

    Product p(A, a_row, K, (SPLIT ? threadIdx.x : lane) * VEC);
    if constexpr (STAGE > 0) {
        gemv::stage<M, VEC, STAGE>(reinterpret_cast<T*>(shared), A, a_row, K,
                                   gemv::round_up(max(K, 1), Product::BATCH));
        p.x = reinterpret_cast<T*>(shared);
    }
    if (tile < tiles) p.open(B, b_row, tile, N), p.fetch(0);
    if constexpr (STAGE > 0) gemv::staged();

    const Epilogue<OUT, ACT> epilogue = {terms & 1 ? bias : nullptr, terms & 2 ? residual : nullptr,
                                         residual_row, alpha};
    bool turn = false;
    for (i32 k = 0; tile < tiles;) {
        p.multiply(k);
        k += Product::BATCH;
        const bool done = k >= K;
        const i64 next = done ? tile + stride : tile;
        if (done) k = 0, p.open(B, b_row, next, N);
        if (next < tiles) p.fetch(k);
        if (done) {
            f32* v = &p.sum[0][0];
            const int at = Sums::run(v, lane);
            if constexpr (SPLIT) {
                const f32 sum = join<Product::SUMS, WARPS, Sums>(v, at, lane, warp, turn ^= true);
                if (threadIdx.x < Product::SUMS)
                    put<M, ROWS>(C, c_row, tile, threadIdx.x, N, sum, epilogue);
            } else if (!(lane & Sums::COPIES)) {
#pragma unroll
                for (int i = 0; i < Sums::KEPT; ++i)
                    put<M, ROWS>(C, c_row, tile, at + i, N, v[i], epilogue);
            }
            p.clear();
        }
        tile = next;
    }
}
