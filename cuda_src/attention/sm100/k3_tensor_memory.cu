// Attention kernel 3, Blackwell: scores and sums live in Tensor Memory, a thread has a row of them.
//
// Idea over kernel 2: nothing large stays in registers from one block of keys to the next. TMA brings
// blocks of 128 keys and values; one thread starts S = Q K^T, and the tensor core leaves S in Tensor
// Memory. Each of 128 threads fetches the row of its query, finds its maximum and sum without a word to
// its neighbours, and puts the weights back in the place of S, as operand A of O += P V, whose sums stay
// where they are. Where a maximum has grown, O is fetched, rescaled and put back.
//
// A step, for block j of the keys (from the right, where masks are):
//     S = Q K_j^T, and wait               tensor core
//     P = 2^(S - max), rescale O          threads
//     O += P V_j, and wait                tensor core
//
// Napkin (d 128, N 128), clk per block: 2 x 512 of products, then everything else one after the other:
// 16384 ex2 at 16 a clk are 1024, and two trips to the tensor core and back some 300 (60 ns each on an
// H200). At least 2300 for 1024 of products: 44 %. Two CTAs share an SM (half of Tensor Memory, 96 KB of
// shared memory each) and cover some of each other by chance: kernel 4 makes that a plan.
//
// Limits: one block of keys and one of values in flight. O is rescaled whenever a maximum has grown.
//
// State: emulator-verified, not hardware-verified.
//
// Any lengths; rows start at multiples of 16 bytes. Grid: (tiles of queries, heads, batch); 128 threads.
#include "attention/sm100/row_softmax.cuh"
#include "attention/sm100/shape.cuh"

using namespace attention;

// Queries, a block of keys, one of values; barriers; the address of Tensor Memory.
template <class S> struct Buffers {
    u8* base;

    __device__ __forceinline__ u8* q() const { return base; }
    __device__ __forceinline__ u8* k() const { return q() + S::Q_BYTES; }
    __device__ __forceinline__ u8* v() const { return k() + S::K_SLABS * S::SLAB; }
    __device__ __forceinline__ Barrier* q_full() const {
        return reinterpret_cast<Barrier*>(v() + S::V_SLABS * S::SLAB);
    }
    __device__ __forceinline__ Barrier* k_full() const { return q_full() + 1; }
    __device__ __forceinline__ Barrier* v_full() const { return q_full() + 2; }
    __device__ __forceinline__ Barrier* scored() const { return q_full() + 3; }  // S is complete
    __device__ __forceinline__ Barrier* summed() const { return q_full() + 4; }  // O is complete
    __device__ __forceinline__ u32* tmem() const {
        return reinterpret_cast<u32*>(q_full() + 5);
    }
};

template <class S, Mask MASK> struct Tile128 {
    using From = Source<S, Keys::dense, 1>;

    const Buffers<S>& shared;
    const Job<S, MASK, Keys::dense, 1>& job;
    Columns<S> columns;
    From keys, values;
    u32 parity = 0;  // of all barriers but the queries': they take part in every step

    // By the first warp: one request may follow as soon as the one before has been used.
    __device__ __forceinline__ void load_keys(i32 j) const {
        if (warp::index() == 0 && j >= job.first)
            keys.template fetch<S::K_SLABS>(shared.k(), shared.k_full(), j * S::N, 0);
    }
    __device__ __forceinline__ void load_values(i32 j) const {
        if (warp::index() == 0 && j >= job.first)
            values.template fetch<S::V_SLABS>(shared.v(), shared.v_full(), j * S::N, 0);
    }

    __device__ __forceinline__ void multiply_keys() const {
        if (threadIdx.x == 0) {
            mbarrier::wait(shared.k_full(), parity);
            tcgen05::fence_after();
            multiply_scores<S>(columns.scores(0), shared.q(), shared.k());
            tcgen05::commit<1>(shared.scored());
        }
        mbarrier::wait(shared.scored(), parity);
        tcgen05::fence_after();
    }
    __device__ __forceinline__ void multiply_weights(bool add) const {
        tcgen05::wait_store();
        tcgen05::fence_before();
        __syncthreads();  // all rows of P are written, and of O rescaled
        if (threadIdx.x == 0) {
            mbarrier::wait(shared.v_full(), parity);
            tcgen05::fence_after();
            multiply_values<S>(columns.sums(0), columns.weights(0), shared.v(), add);
            tcgen05::commit<1>(shared.summed());
        }
        mbarrier::wait(shared.summed(), parity);
        tcgen05::fence_after();
    }

    __device__ __forceinline__ void rescale(f32 factor) const {
        if (!__any_sync(0xffffffff, factor != 1.0f)) return;
        const u32 sums = columns.sums(0) + columns.lanes();
#pragma unroll 1
        for (int i = 0; i < S::DV_PAD; i += tcgen05::ROW_COLUMNS) {
            f32 o[tcgen05::ROW_COLUMNS];
            tcgen05::load_row(o, sums + i);
            tcgen05::wait_load();
#pragma unroll
            for (int k = 0; k < tcgen05::ROW_COLUMNS; k++) o[k] *= factor;
            tcgen05::store_row(sums + i, o);
        }
    }

    __device__ __forceinline__ void block(RowSoftmax<0, 0>& softmax, const Interval& seen, f32 c,
                                          i32 j) {
        f32 s[S::N];
        multiply_keys();
        load_keys(j - 1);
        const u32 scores = columns.scores(0) + columns.lanes();
#pragma unroll
        for (int i = 0; i < S::N; i += tcgen05::ROW_COLUMNS) tcgen05::load_row(s + i, scores + i);
        tcgen05::wait_load();
        hide_row<MASK>(s, seen, j * S::N);
        const f32 factor = softmax.rise(top_of(s), c);
        const bool first = j == job.end - 1;
        if (!first) rescale(factor);
#pragma unroll
        for (int i = 0; i < S::N; i += 32) {
            u32 w[16];
            softmax.template weigh<typename S::T>(s + i, c, w);
            tcgen05::store_row(scores + i / 2, w);
        }
        multiply_weights(!first);
        load_values(j - 1);
        parity ^= 1;
    }

    // This thread's row of the output; 32 columns at a time.
    template <class T> __device__ __forceinline__ void store(T* to, f32 factor) const {
#pragma unroll 1
        for (int i = 0; i < S::DV_PAD; i += tcgen05::ROW_COLUMNS) {
            f32 o[tcgen05::ROW_COLUMNS] = {};
            if (!job.empty()) {
                tcgen05::load_row(o, columns.sums(0) + columns.lanes() + i);
                tcgen05::wait_load();
            }
#pragma unroll
            for (int k = 0; k < tcgen05::ROW_COLUMNS; k += 8)
                if (to != nullptr && i + k < S::DV)
                    *reinterpret_cast<uint4*>(to + i + k) = make_uint4(
                        pack<T>(o[k] * factor, o[k + 1] * factor),
                        pack<T>(o[k + 2] * factor, o[k + 3] * factor),
                        pack<T>(o[k + 4] * factor, o[k + 5] * factor),
                        pack<T>(o[k + 6] * factor, o[k + 7] * factor));
        }
    }
};

// Boxes of 64 queries; one thread.
template <class S, class JOB>
__device__ __forceinline__ void load_queries(const Buffers<S>& shared, const TensorMap& map,
                                             const JOB& job) {
    mbarrier::arrive_and_expect(shared.q_full(), S::Q_BYTES);
    for (int row = 0; row < S::ROWS; row += 64)
        for (int slab = 0; slab < S::K_SLABS; slab++)
            tma::load(shared.q() + slab * S::Q_SLAB + row * S::ROW, map, shared.q_full(),
                      {slab * S::COLS, 0, job.row + row, job.head, job.batch});
}

template <class S> __device__ __forceinline__ void set_up(const Buffers<S>& shared) {
    constexpr int COLUMNS = 256;  // half of Tensor Memory: another CTA may have the rest
    if (warp::index() == 0) {
        tcgen05::alloc<1>(shared.tmem(), COLUMNS);
        tcgen05::relinquish<1>();
    }
    if (threadIdx.x == 0) {
        for (int i = 0; i < 5; i++) mbarrier::init(shared.q_full() + i, 1);
        mbarrier::fence_init();
    }
    tcgen05::fence_before();
    __syncthreads();
    tcgen05::fence_after();
}

template <class T, int D, int DV, int N, Mask MASK>
__global__ void __launch_bounds__(128, 2)
k3_tensor_memory(const __grid_constant__ TensorMap map_q, const __grid_constant__ TensorMap map_k,
                 const __grid_constant__ TensorMap map_v, T* out, i64 out_token, i64 out_head,
                 i64 out_batch, f32* lse, i64 lse_token, i64 lse_head, i64 lse_batch, i32 queries,
                 i32 keys, i32 share, f32 scale, i32 top_left, i32 left, i32 right, i32 chunk) {
    using S = TensorShape<T, D, DV, N, 1, 1>;
    extern __shared__ __align__(1024) u8 memory[];
    const Buffers<S> shared{memory};
    const Call call = Call::dense(queries, keys, share, top_left, left, right, chunk);
    // The last queries see most keys under a causal mask: they start first.
    const Job<S, MASK, Keys::dense, 1> job(
        call, {i32(gridDim.x - 1 - blockIdx.x), i32(blockIdx.y), i32(blockIdx.z)}, 0);
    set_up(shared);
    const i32 head = job.head / share;
    Tile128<S, MASK> tile{shared, job, {*shared.tmem()}, {&map_k, head, job.batch, 0, keys, {}},
                          {&map_v, head, job.batch, 0, keys, {}}};

    const Row row = row_at(call, job, job.row + threadIdx.x);
    const Interval seen = job.visible.of(row.query);
    const f32 c = scale * LOG2E;
    RowSoftmax<0, 0> softmax;
    if (!job.empty()) {
        if (threadIdx.x == 0) load_queries(shared, map_q, job);
        __syncwarp();
        tile.load_keys(job.end - 1), tile.load_values(job.end - 1);
        mbarrier::wait(shared.q_full(), 0);
        for (i32 j = job.end - 1; j >= job.first; j--) tile.block(softmax, seen, c, j);
    }
    const Ending ending(softmax.max, softmax.sum, c, minus_infinity());
    T* to = out + job.batch * out_batch + row.head * out_head + row.query * out_token;
    tile.store(row.exists ? to : nullptr, ending.factor);
    if (lse != nullptr && row.exists)
        lse[job.batch * lse_batch + row.head * lse_head + row.query * lse_token] = ending.lse;

    tcgen05::fence_before();
    __syncthreads();  // all have read their sums
    if (warp::index() == 0) tcgen05::dealloc<1>(tile.columns.base, 256);
}
