// Matrix-vector product with column-major weights: C[M, N] = A[M, K] B[K, N], N running fastest.
//
// As gemv_nk.cu (read its header first), but here a lane owns VEC neighbouring columns and walks down
// K, so its sums need no lane but its own until the end. Few columns are left to share out: a CTA
// takes LANES x VEC of them, its 32 WARPS / LANES groups of lanes take turns at the rows, UNROLL rows
// at a time, and the CLUSTER CTAs of a cluster divide K. Narrow tiles (LANES = 4: 64 bytes of a row)
// give enough CTAs without a cluster; wide ones read longer runs.
//
// Sums: f32 in each lane, over the groups of a warp by shuffles, over the warps through shared
// memory, over the cluster through distributed shared memory; always in the same order.
//
// x waits in shared memory, the part that the CTA needs, as packed as it came: a group reads the
// UNROLL elements of its rows at once and all its lanes share them.
//
// Limits: VEC divides N and the row pitch of B, which is aligned to VEC elements, as XVEC divides A's
// row pitch; the CTA's share of K, rounded up to a batch, fits STAGE; K < 2^31. Grid: CLUSTER CTAs for
// every tile.
#include "common/cluster.cuh"
#include "matmul/epilogue.cuh"
#include "matmul/gemv.cuh"

// One thread's part of the products of M rows of A with VEC columns of B.
template <class T, int M, int VEC, int GROUPS, int UNROLL, int STAGE, Hint HINT> struct ColumnProduct {
    static constexpr int BATCH = GROUPS * UNROLL;
    using W = gemv::Packed<T, VEC>;

    const T *b, *x;  // where the thread's next rows of B begin, and the elements of A for them
    const i64 b_row;
    i32 left;  // rows of B from there to the end of the CTA's share; none for columns beyond N
    W w[UNROLL];
    f32 sum[VEC][M];

    __device__ __forceinline__ ColumnProduct(const T* b, i64 b_row, const T* x, i32 left)
        : b(b), x(x), b_row(b_row), left(left) {
#pragma unroll
        for (int i = 0; i < VEC * M; ++i) (&sum[0][0])[i] = 0.0f;
    }

    __device__ __forceinline__ void fetch() {
#pragma unroll
        for (int u = 0; u < UNROLL; ++u)
            w[u] = once::load_if<HINT>(u < left, reinterpret_cast<const W*>(b + u * b_row));
        b += BATCH * b_row, left -= BATCH;
    }

    __device__ __forceinline__ void multiply() {
        Shared xs[M];
#pragma unroll
        for (int m = 0; m < M; ++m) xs[m].load(x + m * STAGE);
        x += BATCH;
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            f32 ws[VEC];
            gemv::widen<T, VEC>(w[u], ws);
#pragma unroll
            for (int m = 0; m < M; ++m) {
                const f32 xu = xs[m].at(u);
#pragma unroll
                for (int i = 0; i < VEC; ++i) sum[i][m] = fmaf(ws[i], xu, sum[i][m]);
            }
        }
    }

    // The elements of a row of A that belong to a batch's rows of B: read 16 bytes at a time, and
    // packed until each is used.
    struct Shared {
        static constexpr int PIECE = UNROLL * sizeof(T) < 16 ? UNROLL : 16 / sizeof(T);
        static constexpr int WORD = PIECE * sizeof(T) < 4 ? PIECE : 4 / sizeof(T);
        gemv::Packed<T, WORD> word[UNROLL / WORD];

        __device__ __forceinline__ void load(const T* x) {
            using P = gemv::Packed<T, PIECE>;
#pragma unroll
            for (int i = 0; i < UNROLL / PIECE; ++i)
                reinterpret_cast<P*>(word)[i] = reinterpret_cast<const P*>(x)[i];
        }
        __device__ __forceinline__ f32 at(int u) const {
            f32 out[WORD];
            gemv::widen<T, WORD>(word[u / WORD], out);
            return out[u % WORD];
        }
    };
};

// Leaves in partial[0] the sums over the warps of each of COUNT values.
template <int COUNT, int WARPS> __device__ __forceinline__ void join_warps(f32 (*partial)[COUNT]) {
    __syncthreads();
    for (int j = threadIdx.x; j < COUNT; j += WARPS * 32) {
        f32 sum = partial[0][j];
#pragma unroll
        for (int w = 1; w < WARPS; ++w) sum += partial[w][j];
        partial[0][j] = sum;
    }
}

// Leaves in partial[1] the sums over the CTAs of the cluster, of every CLUSTER-th four values. Each
// thread uses only those that it added up itself.
template <int CLUSTER, int COUNT, int WARPS>
__device__ __forceinline__ void join_cluster(f32 (*partial)[COUNT], int mine) {
    cluster::sync();
    for (int j = mine; j < COUNT; j += 4 * WARPS * 32 * CLUSTER) {
        const u32 at = static_cast<u32>(__cvta_generic_to_shared(&partial[0][j]));
        float4 sum = cluster::load4(cluster::map(at, 0));
#pragma unroll
        for (int rank = 1; rank < CLUSTER; ++rank) {
            const float4 v = cluster::load4(cluster::map(at, rank));
            sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
        }
        *reinterpret_cast<float4*>(&partial[1][j]) = sum;
    }
    cluster::arrive();  // before anything is stored to C: the barrier would wait for that too
}

// Stores value j = column * M + token of a tile.
template <int M, class OUT, Act ACT>
__device__ __forceinline__ void put(OUT* C, i64 c_row, i64 tile, int j, i64 N, f32 sum,
                                    const Epilogue<OUT, ACT>& epilogue) {
    const i64 n = tile + j / M;
    const int m = j % M;
    if (n < N) C[m * c_row + n] = from_f32<OUT>(epilogue(sum, m, n));
}

template <class T, class OUT, int M, int VEC, int XVEC, int LANES, int UNROLL, int WARPS, int CLUSTER,
          int BLOCKS, int STAGE, Hint HINT, Act ACT>
__global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(WARPS * 32, BLOCKS)
gemv_kn(const T* A, const T* B, OUT* C, const OUT* bias, const OUT* residual, u32 terms, i64 N,
        i32 K, i64 a_row, i64 b_row, i64 c_row, i64 residual_row, f32 alpha) {
    constexpr int COLUMNS = LANES * VEC, COUNT = COLUMNS * M;
    using Product = ColumnProduct<T, M, VEC, WARPS * 32 / LANES, UNROLL, STAGE, HINT>;
    using Sums = gemv::Fold<VEC * M, 16, LANES>;
    extern __shared__ __align__(16) u8 shared[];
    T* x = reinterpret_cast<T*>(shared);
    auto partial = reinterpret_cast<f32 (*)[COUNT]>(shared);  // in x's place, once x is used up

    const i64 tile = i64(blockIdx.x / CLUSTER) * COLUMNS;
    const int rank = blockIdx.x % CLUSTER, lane = threadIdx.x % 32;
    const int column = threadIdx.x % LANES * VEC, first = threadIdx.x / LANES * UNROLL;
    const i32 share = gemv::round_up((K + CLUSTER - 1) / CLUSTER, 16), from = rank * share;
    const i32 rows = max(0, min(share, K - from));

    gemv::stage<M, XVEC, STAGE>(x, A + from, a_row, rows, gemv::round_up(rows, Product::BATCH));
    Product p(B + i64(from + first) * b_row + tile + column, b_row, x + first,
              tile + column < N ? rows - first : 0);
    p.fetch();
    gemv::staged();
    for (i32 k = 0; k < rows; k += Product::BATCH) {
        p.multiply();
        if (k + Product::BATCH < rows) p.fetch();
    }

    f32* sums = &p.sum[0][0];
    const int at = column * M + Sums::run(sums, lane);
    __syncthreads();
    if (!(lane & Sums::COPIES))
#pragma unroll
        for (int i = 0; i < Sums::KEPT; ++i) partial[threadIdx.x / 32][at + i] = sums[i];
    join_warps<COUNT, WARPS>(partial);

    const int mine = 4 * (threadIdx.x * CLUSTER + rank);
    if constexpr (CLUSTER > 1) join_cluster<CLUSTER, COUNT, WARPS>(partial, mine);
    else __syncthreads();
    const Epilogue<OUT, ACT> epilogue = {terms & 1 ? bias : nullptr, terms & 2 ? residual : nullptr,
                                         residual_row, alpha};
    for (int j = mine; j < COUNT; j += 4 * WARPS * 32 * CLUSTER)
#pragma unroll
        for (int i = j; i < j + 4; ++i)
            put<M>(C, c_row, tile, i, N, partial[CLUSTER > 1][i], epilogue);
    if constexpr (CLUSTER > 1) cluster::wait();  // nobody leaves while a peer still reads here
}
