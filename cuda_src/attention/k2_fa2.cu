// Attention kernel 2: FlashAttention-2 with mma.sync and cp.async, for Ampere and everything after it.
//
// Idea over kernel 1: scores never leave the registers. A CTA keeps a tile of queries and walks the keys,
// N at a time, with a running base and sum per row (online softmax); what was summed so far is rescaled
// when weights might overflow (lazy_softmax.cuh). The fragment in which mma leaves scores is the one in
// which it wants weights, so the second product follows without a trip through shared memory.
//
// One buffer of keys, one of values: values of this step arrive while scores are made, keys of the next
// while values are used. Two CTAs per SM (d up to 128) fill each other's gaps.
//
// A warp has 16 REPEAT rows: each fragment of keys or values that it loads from shared memory serves all
// of them, and shared memory would be the limit with 16 (a step of 64 keys at d 128 reads 64 KB for 8192
// x 64 FLOP/byte... twice what mma.sync can keep up with).
//
// Inside a warp instructions are issued in order: what is to overlap has to be interleaved. Fragments are
// loaded a product ahead, and exponentials of 16 keys stand between the products of the 16 before.
//
// Napkin: mma.sync reaches some 490 of an H200's 800 TFLOPS (wgmma). A step of a warp is 256 products of 8
// clk, and some 500 clk in which it has none: maxima, barriers, addresses. Two warps share a quarter of an
// SM, so it is products that limit, if the two are not in the same phase.
//
// Blocks of keys are walked from the right, where masks are. Any lengths and strides; rows start at
// multiples of 16 bytes. Grid: a CTA per tile, in the order of order.cuh.
#include "attention/lazy_softmax.cuh"
#include "attention/mask.cuh"
#include "attention/order.cuh"
#include "attention/output.cuh"
#include "attention/rows.cuh"
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
    // From the address of a row's chunk 0 or 1 to the one 2 `pairs` further on.
    static __device__ __forceinline__ u32 along(u32 address, int pairs) {
        return (address ^ pairs % 4 * 32) + pairs / 4 * 128;
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
#pragma unroll 8
    for (int i = 0; i < ROWS; i += STEP, at += STEP * from.step)
        cp_async::copy<CHUNK, false>(to + i * Rows<T, COLUMNS>::PITCH, i < rows ? at : from.data,
                                     i < rows ? CHUNK : 0);
}

template <class T, int D, int DV, int N, int WARPS, int REPEAT, Mask MASK, u32 TERMS> struct Walker {
    static constexpr int THREADS = WARPS * 32, ROWS = WARPS * 16 * REPEAT;
    static constexpr int Q_BYTES = ROWS * Rows<T, D>::PITCH, K_BYTES = N * Rows<T, D>::PITCH;

    f32 s[REPEAT][N / 2], o[REPEAT][DV / 2];
    LazySoftmax softmax[REPEAT];
    RowTerms<T, TERMS> terms[REPEAT][2];

    const Sequence& sequence;
    const Visible<MASK>& visible;
    i32 head, first_row;

    __device__ __forceinline__ Walker(const Sequence& sequence, const Visible<MASK>& visible,
                                      i32 head, i32 first_row)
        : sequence(sequence), visible(visible), head(head), first_row(first_row) {
#pragma unroll
        for (int m = 0; m < REPEAT; m++)
#pragma unroll
            for (int i = 0; i < DV / 2; i++) o[m][i] = 0.0f;
    }

    // Computed again wherever it is wanted: registers are short.
    __device__ __forceinline__ Row row(int m, int h) const {
        const i32 thread = threadIdx.x;
        const i32 query = first_row + (thread / 32 * REPEAT + m) * 16 + thread % 32 / 4 + 8 * h;
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
        using At = Rows<T, D>;
        constexpr int STEPS = (D + 15) / 16, COUNT = N / 16;
        const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        q = opaque(q) + At::offset(warp * REPEAT * 16 + lane % 16, lane / 16);
        k = opaque(k) + At::offset(lane / 16 * 8 + lane % 8, lane / 8 % 2);
        u32 a[2][REPEAT][4], b[2][4];  // fragments of this product and of the next
        const auto load_a = [&](int kk) {
#pragma unroll
            for (int m = 0; m < REPEAT; m++)
                mma::load_matrices<false>(a[kk % 2][m], At::along(q, kk) + m * 16 * At::PITCH);
        };
        const auto load_b = [&](int i) {
            mma::load_matrices<false>(b[i % 2], At::along(k, i / COUNT) + i % COUNT * 16 * At::PITCH);
        };
#pragma unroll
        for (int m = 0; m < REPEAT; m++)
#pragma unroll
            for (int i = 0; i < N / 2; i++) s[m][i] = 0.0f;
        load_a(0), load_b(0);
#pragma unroll
        for (int kk = 0; kk < STEPS; kk++)
#pragma unroll
            for (int n = 0; n < COUNT; n++) {
                const int i = kk * COUNT + n;
                if (i + 1 < STEPS * COUNT) load_b(i + 1);
                if (n == 0 && kk + 1 < STEPS) load_a(kk + 1);
#pragma unroll
                for (int m = 0; m < REPEAT; m++) multiply(s[m], n, a[kk % 2][m], b[i % 2]);
            }
    }
    // What is to be done to scores of block j; bases are raised where they have to be.
    __device__ __forceinline__ void settle(i32 j, const Terms<T>& of, f32 c) {
        Maxima top[REPEAT];
        bool outgrown = false;
#pragma unroll
        for (int m = 0; m < REPEAT; m++) {
            if constexpr (TERMS != 0)
                add_terms<T, TERMS>(s[m], terms[m], j * N, sequence.keys, of);
            if ((j + 1) * N > visible.of(opaque(first_row)).end ||
                j * N < visible.of(last_row()).first)
                hide<MASK>(s[m], {visible.of(row(m, 0).query), visible.of(row(m, 1).query)}, j * N);
            top[m] = Maxima::of(s[m]);
            outgrown |= softmax[m].outgrown(top[m], c);
        }
        if (!__any_sync(0xffffffff, outgrown)) return;
#pragma unroll
        for (int m = 0; m < REPEAT; m++) scale_rows(o[m], softmax[m].raise(top[m], c));
    }
    // O += P V; scores become weights just before they are wanted.
    __device__ __forceinline__ void values(u32 v, f32 c) {
        using At = Rows<T, DV>;
        constexpr int STEPS = N / 16, COUNT = (DV + 15) / 16;
        const u32 lane = threadIdx.x % 32;
        v = opaque(v) + At::offset(lane % 16, lane / 16);
        u32 a[2][REPEAT][4], b[2][4];
        const auto weigh = [&](int kk) {
#pragma unroll
            for (int m = 0; m < REPEAT; m++) {
                f32(&part)[8] = reinterpret_cast<f32(&)[8]>(s[m][8 * kk]);
                softmax[m].weigh(part, c);
                pack_all<T>(a[kk % 2][m], part);
            }
        };
        const auto load_b = [&](int i) {
            mma::load_matrices<true>(b[i % 2], At::along(v, i % COUNT) + i / COUNT * 16 * At::PITCH);
        };
        load_b(0), weigh(0);
#pragma unroll
        for (int kk = 0; kk < STEPS; kk++)
#pragma unroll
            for (int n = 0; n < COUNT; n++) {
                const int i = kk * COUNT + n;
                if (i + 1 < STEPS * COUNT) load_b(i + 1);
                if (n == 0 && kk + 1 < STEPS) weigh(kk + 1);
#pragma unroll
                for (int m = 0; m < REPEAT; m++) multiply(o[m], n, a[kk % 2][m], b[i % 2]);
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
template <class WALKER, int D, int DV, int N, class T>
__device__ __forceinline__ void walk(WALKER& walker, u8* memory, const Source<T>& from_q,
                                     const Source<T>& from_k, const Source<T>& from_v,
                                     const Terms<T>& terms, f32 c) {
    u8 *shared_q = memory, *shared_k = shared_q + WALKER::Q_BYTES, *shared_v = shared_k + WALKER::K_BYTES;
    const i32 begin = walker.begin(), end = walker.end();
    if (begin < end) {
        fetch<WALKER::ROWS, D, WALKER::THREADS>(shared_q, from_q, walker.first_row);
        fetch<N, D, WALKER::THREADS>(shared_k, from_k, (end - 1) * N);
        cp_async::commit();
    }
    for (i32 j = end - 1; j >= begin; j--) {
        cp_async::wait<0>();
        __syncthreads();  // keys are there, and nobody reads values any more
        fetch<N, DV, WALKER::THREADS>(shared_v, from_v, j * N);
        cp_async::commit();
        walker.scores(__cvta_generic_to_shared(shared_q), __cvta_generic_to_shared(shared_k));
        cp_async::wait<0>();
        __syncthreads();  // values are there, and nobody reads keys any more
        if (j > begin) fetch<N, D, WALKER::THREADS>(shared_k, from_k, (j - 1) * N);
        cp_async::commit();
        walker.settle(j, terms, c);
        walker.values(__cvta_generic_to_shared(shared_v), c);
    }
}

template <class T, int D, int DV, int N, int WARPS, int REPEAT, Mask MASK, u32 TERMS>
__global__ void __launch_bounds__(WARPS * 32, D <= 128 && DV <= 128 ? 2 : 1)
k2_fa2(const T* q, i64 q_token, i64 q_head, i64 q_batch, const T* k, i64 k_token, i64 k_head,
       i64 k_batch, const T* v, i64 v_token, i64 v_head, i64 v_batch, T* out, i64 out_token,
       i64 out_head, i64 out_batch, f32* lse, i64 lse_token, i64 lse_head, i64 lse_batch,
       i32 queries, i32 keys, i32 m_tiles, i32 heads, i32 batch, i32 section, i32 share, f32 scale,
       i32 top_left, i32 left, i32 right, i32 chunk, const f32* sinks, f32 softcap, const f32* slopes, i64 slopes_batch,
       const T* bias, i64 bias_batch, i64 bias_head, i64 bias_query, i64 bias_key,
       const T* relative, i64 relative_batch, i64 relative_query, i64 relative_head, i32 extent,
       const u32* q_offsets, const u32* q_lengths, const u32* k_offsets,
       const u32* k_lengths) {
    using WALKER = Walker<T, D, DV, N, WARPS, REPEAT, MASK, TERMS>;
    extern __shared__ __align__(128) u8 memory[];
    const Terms<T> terms{scale, softcap, slopes, slopes_batch, bias, bias_batch, bias_head,
                         bias_query, bias_key, relative, relative_batch, relative_query,
                         relative_head, extent};
    const Results<T> results{out, out_token, out_head, out_batch, lse, lse_token, lse_head,
                             lse_batch, sinks};
    const Lengths lengths{queries, keys, q_offsets, q_lengths, k_offsets, k_lengths};
    const Tile tile = Order{m_tiles, heads, batch, section}.at(blockIdx.x);
    const i32 head = tile.head, first_row = tile.m * WALKER::ROWS;
    const Sequence sequence = Sequence::of<true>(lengths, tile.batch);
    const i64 q_at = q_offsets ? 0 : tile.batch, k_at = k_offsets ? 0 : tile.batch;
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
    WALKER walker(sequence, visible, head, first_row);
    if constexpr (TERMS != 0) walker.start_terms(terms, tile.batch, q_at);
    walk<WALKER, D, DV, N>(walker, memory, from_q, from_k, from_v, terms, c);
#pragma unroll
    for (int m = 0; m < REPEAT; m++) {
        const i64 first = sequence.q_first;
        finish_row<0>(results, walker.row(m, 0), q_at, first, walker.o[m], walker.softmax[m], c);
        finish_row<1>(results, walker.row(m, 1), q_at, first, walker.o[m], walker.softmax[m], c);
    }
}
