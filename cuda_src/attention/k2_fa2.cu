// Attention kernel 2: FlashAttention-2 with mma.sync and cp.async, for Ampere and everything after it.
//
// Idea over kernel 1: scores never leave the registers. A CTA keeps a tile of queries and walks the keys,
// N at a time, with a running maximum and sum per row (online softmax); what was summed so far is
// rescaled when a maximum grows. The fragment in which mma leaves scores is the one in which it wants
// weights, so the second product follows without a trip through shared memory.
//
// One buffer of keys, one of values: values of this step arrive while scores are made, keys of the next
// while values are used. Two CTAs per SM (d up to 128) fill each other's gaps.
//
// A warp has 16 REPEAT rows: each fragment of keys or values that it loads from shared memory serves all
// of them, and shared memory would be the limit with 16 (a step of 64 keys at d 128 reads 64 KB for 8192
// x 64 FLOP/byte... twice what mma.sync can keep up with).
//
// Napkin: mma.sync reaches some 490 of an H200's 800 TFLOPS (wgmma), and softmax does not overlap with it
// inside a warp: about 350 is to be expected of 16,384 FLOPs per exponential and 4 warps an SM quarter.
//
// Blocks of keys are walked from the right, where masks are. Any lengths and strides; rows start at
// multiples of 16 bytes. Grid: a CTA per tile, longest tiles first.
#include "attention/mask.cuh"
#include "attention/output.cuh"
#include "attention/rows.cuh"
#include "attention/softmax.cuh"
#include "attention/terms.cuh"
#include "common/cp_async.cuh"
#include "common/mma.cuh"
#include "common/opaque.cuh"

using namespace attention;

constexpr int CHUNK = 16;  // bytes of a copy, and of a row of ldmatrix

// Rows of COLUMNS elements in shared memory, padded to whole 128 bytes; the eight chunks of such a line
// are permuted by the row, so that ldmatrix finds eight rows in different banks.
template <class T, int COLUMNS> struct Rows {
    static constexpr int PITCH = (COLUMNS * int(sizeof(T)) + 127) / 128 * 128;

    static __device__ __forceinline__ u32 offset(u32 row, u32 chunk) {
        return row * PITCH + (chunk ^ row % 8) * CHUNK;
    }
};

// A matrix of rows in global memory, of which `rows` exist.
template <class T> struct Source {
    const T* data;
    i64 step;
    i32 rows;
};

// The lowest power of two that is not below n.
__host__ __device__ constexpr int whole(int n) { return n <= 1 ? 1 : 2 * whole((n + 1) / 2); }

// ROWS rows from `first` on; those past the end become zeros, like the columns that pad the last 16. A
// thread copies the same chunk of every eighth row or so: where it lies in a line does not change.
template <int ROWS, int COLUMNS, int THREADS, class T>
__device__ __forceinline__ void fetch(u8* to, const Source<T>& from, i32 first) {
    constexpr int CHUNKS = (COLUMNS + 15) / 16 * 2, STEP = THREADS / whole(CHUNKS);
    static_assert(STEP % 8 == 0 && ROWS % STEP == 0);
    const i32 row = threadIdx.x / whole(CHUNKS), chunk = threadIdx.x % whole(CHUNKS);
    if (chunk >= CHUNKS) return;
    const T* at = from.data + (first + row) * from.step + chunk * 8;
    to += Rows<T, COLUMNS>::offset(row, chunk);
    const i32 rows = chunk < COLUMNS / 8 ? from.rows - first - row : 0;
#pragma unroll (COLUMNS <= 64 ? 8 : 4)
    for (int i = 0; i < ROWS; i += STEP, at += STEP * from.step)
        cp_async::copy<CHUNK, false>(to + i * Rows<T, COLUMNS>::PITCH, i < rows ? at : from.data,
                                     i < rows ? CHUNK : 0);
}

template <class T, int D, int DV, int N, int WARPS, int REPEAT, Mask MASK, u32 TERMS> struct Tile {
    static constexpr int THREADS = WARPS * 32, ROWS = WARPS * 16 * REPEAT;
    static constexpr int Q_BYTES = ROWS * Rows<T, D>::PITCH, K_BYTES = N * Rows<T, D>::PITCH;

    f32 s[REPEAT][N / 2], o[REPEAT][DV / 2];
    u32 p[REPEAT][N / 4];
    Softmax softmax[REPEAT];
    RowTerms<T, TERMS> terms[REPEAT][2];

    const Sequence& sequence;
    const Visible<MASK>& visible;
    i32 head, first_row;

    __device__ __forceinline__ Tile(const Sequence& sequence, const Visible<MASK>& visible, i32 head,
                                    i32 first_row)
        : sequence(sequence), visible(visible), head(head), first_row(first_row) {
#pragma unroll
        for (int m = 0; m < REPEAT; m++)
#pragma unroll
            for (int i = 0; i < DV / 2; i++) o[m][i] = 0.0f;
    }

    // Computed again wherever it is wanted: registers are short.
    __device__ __forceinline__ Row row(int m, int h) const {
        const i32 query = first_row + (threadIdx.x / 32 * REPEAT + m) * 16 +
                          threadIdx.x % 32 / 4 + 8 * h;
        return {head, query, query < sequence.queries};
    }
    __device__ __forceinline__ i32 last_row() const {
        return min(first_row + ROWS, sequence.queries) - 1;
    }
    __device__ __forceinline__ i32 begin() const { return visible.of(first_row).first / N; }
    __device__ __forceinline__ i32 end() const {
        return (visible.of(last_row()).end + N - 1) / N;
    }
    __device__ __forceinline__ void start_terms(const Terms<T>& of, i32 batch, i64 q_at) {
#pragma unroll
        for (int i = 0; i < 2 * REPEAT; i++) {
            const Row r = row(i / 2, i % 2);
            if (r.exists)
                terms[i / 2][i % 2].start(of, batch, head, r.query, q_at,
                                          sequence.q_first + r.query, visible.shift);
        }
    }

    // S = Q K^T from shared memory.
    __device__ __forceinline__ void scores(u32 q, u32 k) {
        q = opaque(q), k = opaque(k);
        const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
        for (int m = 0; m < REPEAT; m++)
#pragma unroll
            for (int i = 0; i < N / 2; i++) s[m][i] = 0.0f;
#pragma unroll
        for (int kk = 0; kk < (D + 15) / 16; kk++) {
            u32 a[REPEAT][4];
#pragma unroll
            for (int m = 0; m < REPEAT; m++)
                mma::load_matrices<false>(a[m], q + Rows<T, D>::offset(
                    (warp * REPEAT + m) * 16 + lane % 16, 2 * kk + lane / 16));
#pragma unroll
            for (int n = 0; n < N / 16; n++) {
                u32 b[4];
                mma::load_matrices<false>(b, k + Rows<T, D>::offset(
                    n * 16 + lane / 16 * 8 + lane % 8, 2 * kk + lane / 8 % 2));
#pragma unroll
                for (int m = 0; m < REPEAT; m++) multiply(s[m], n, a[m], b);
            }
        }
    }
    // Scores of block j become weights.
    __device__ __forceinline__ void weigh(i32 j, const Terms<T>& of, f32 c) {
#pragma unroll
        for (int m = 0; m < REPEAT; m++) {
            if constexpr (TERMS != 0)
                add_terms<T, TERMS>(s[m], terms[m], j * N, sequence.keys, of);
            if ((j + 1) * N > visible.of(first_row).end || j * N < visible.of(last_row()).first)
                hide<MASK>(s[m], {visible.of(row(m, 0).query), visible.of(row(m, 1).query)}, j * N);
            scale_rows(o[m], softmax[m].step(s[m], c));
            pack_all<T>(p[m], s[m]);
        }
    }
    // O += P V.
    __device__ __forceinline__ void values(u32 v) {
        v = opaque(v);
        const u32 lane = threadIdx.x % 32;
#pragma unroll
        for (int kk = 0; kk < N / 16; kk++) {
            u32 a[REPEAT][4];
#pragma unroll
            for (int m = 0; m < REPEAT; m++)
#pragma unroll
                for (int i = 0; i < 4; i++) a[m][i] = p[m][4 * kk + i];
#pragma unroll
            for (int n = 0; n < (DV + 15) / 16; n++) {
                u32 b[4];
                mma::load_matrices<true>(b, v + Rows<T, DV>::offset(
                    kk * 16 + lane % 16, 2 * n + lane / 16));
#pragma unroll
                for (int m = 0; m < REPEAT; m++) multiply(o[m], n, a[m], b);
            }
        }
    }
    // Two n tiles of mma: columns 16 n to 16 n + 15, as far as the fragment goes.
    template <int REGS>
    static __device__ __forceinline__ void multiply(f32 (&d)[REGS], int n, const u32 (&a)[4],
                                                    const u32 (&b)[4]) {
        mma::m16n8k16<T>(reinterpret_cast<f32(&)[4]>(d[8 * n]), a, b[0], b[1]);
        if (8 * n + 4 < REGS)
            mma::m16n8k16<T>(reinterpret_cast<f32(&)[4]>(d[8 * n + 4]), a, b[2], b[3]);
    }
};

// All blocks of keys, from the right.
template <class TILE, int D, int DV, int N, class T>
__device__ __forceinline__ void walk(TILE& tile, u8* memory, const Source<T>& from_q,
                                     const Source<T>& from_k, const Source<T>& from_v,
                                     const Terms<T>& terms, f32 c) {
    u8 *shared_q = memory, *shared_k = shared_q + TILE::Q_BYTES, *shared_v = shared_k + TILE::K_BYTES;
    const i32 begin = tile.begin(), end = tile.end();
    if (begin < end) {
        fetch<TILE::ROWS, D, TILE::THREADS>(shared_q, from_q, tile.first_row);
        fetch<N, D, TILE::THREADS>(shared_k, from_k, (end - 1) * N);
        cp_async::commit();
    }
    for (i32 j = end - 1; j >= begin; j--) {
        cp_async::wait<0>();
        __syncthreads();  // keys are there, and nobody reads values any more
        fetch<N, DV, TILE::THREADS>(shared_v, from_v, j * N);
        cp_async::commit();
        tile.scores(__cvta_generic_to_shared(shared_q), __cvta_generic_to_shared(shared_k));
        cp_async::wait<0>();
        __syncthreads();  // values are there, and nobody reads keys any more
        if (j > begin) fetch<N, D, TILE::THREADS>(shared_k, from_k, (j - 1) * N);
        cp_async::commit();
        tile.weigh(j, terms, c);
        tile.values(__cvta_generic_to_shared(shared_v));
    }
}

template <class T, int D, int DV, int N, int WARPS, int REPEAT, Mask MASK, u32 TERMS>
__global__ void __launch_bounds__(WARPS * 32, D <= 128 && DV <= 128 ? 2 : 1)
k2_fa2(const T* q, i64 q_token, i64 q_head, i64 q_batch, const T* k, i64 k_token, i64 k_head,
       i64 k_batch, const T* v, i64 v_token, i64 v_head, i64 v_batch, T* out, i64 out_token,
       i64 out_head, i64 out_batch, f32* lse, i64 lse_token, i64 lse_head, i64 lse_batch,
       i32 queries, i32 keys, i32 m_tiles, i32 heads, i32 share, f32 scale, i32 top_left, i32 left,
       i32 right, i32 chunk, const f32* sinks, f32 softcap, const f32* slopes, i64 slopes_batch,
       const T* bias, i64 bias_batch, i64 bias_head, i64 bias_query, i64 bias_key,
       const T* relative, i64 relative_batch, i64 relative_query, i64 relative_head, i32 extent,
       const u32* q_offsets, const u32* q_lengths, const u32* k_offsets,
       const u32* k_lengths) {
    using TILE = Tile<T, D, DV, N, WARPS, REPEAT, MASK, TERMS>;
    extern __shared__ __align__(128) u8 memory[];
    const Terms<T> terms{scale, softcap, slopes, slopes_batch, bias, bias_batch, bias_head,
                         bias_query, bias_key, relative, relative_batch, relative_query,
                         relative_head, extent};
    const Results<T> results{out, out_token, out_head, out_batch, lse, lse_token, lse_head,
                             lse_batch, sinks};
    const Lengths lengths{queries, keys, q_offsets, q_lengths, k_offsets, k_lengths};
    const i32 pair = blockIdx.x % (gridDim.x / m_tiles), head = pair % heads, batch = pair / heads;
    const i32 first_row = (m_tiles - 1 - i32(blockIdx.x) / (gridDim.x / m_tiles)) * TILE::ROWS;
    const Sequence sequence = Sequence::of<true>(lengths, batch);
    const i64 q_at = q_offsets ? 0 : batch, k_at = k_offsets ? 0 : batch;
    const Source<T> from_q{q + q_at * q_batch + head * q_head + sequence.q_first * q_token, q_token,
                           sequence.queries};
    const Source<T> from_k{k + k_at * k_batch + head / share * k_head + sequence.k_first * k_token,
                           k_token, sequence.keys};
    const Source<T> from_v{v + k_at * v_batch + head / share * v_head + sequence.k_first * v_token,
                           v_token, sequence.keys};
    if (first_row >= sequence.queries) return;
    const Visible<MASK> visible{sequence.keys, top_left ? 0 : sequence.keys - sequence.queries,
                                left, right, chunk};
    const f32 c = TERMS ? LOG2E : scale * LOG2E;
    TILE tile(sequence, visible, head, first_row);
    if constexpr (TERMS != 0) tile.start_terms(terms, batch, q_at);
    walk<TILE, D, DV, N>(tile, memory, from_q, from_k, from_v, terms, c);
#pragma unroll
    for (int m = 0; m < REPEAT; m++) {
        const i64 first = sequence.q_first;
        finish_row<0>(results, tile.row(m, 0), q_at, first, tile.o[m], tile.softmax[m], c);
        finish_row<1>(results, tile.row(m, 1), q_at, first, tile.o[m], tile.softmax[m], c);
    }
}
