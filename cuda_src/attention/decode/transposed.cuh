// Decoding with wgmma: S^T = K Q^T and O^T = V^T P^T, keys and dims on the 64 rows of M.
//
// As in split.cuh a CTA has a KV head, up to ROWS query rows (the MMA's N, 8 to 64) and a slice of
// the keys, and each of its four warps fetches 16 keys of every 64. The MMAs are the warpgroup's:
// all read K and V from shared memory, V through a descriptor that transposes. P^T goes there too,
// which takes the four warps to agree on maxima. Three barriers a step:
//   keys are there - maxima are there, keys and values of the step before done with - values and P
//   are there.
#pragma once

#include "attention/decode/finish.cuh"
#include "attention/decode/upright.cuh"
#include "attention/decode/walk.cuh"
#include "common/stmatrix.cuh"
#include "common/tma.cuh"
#include "common/wgmma.cuh"

namespace decode {

constexpr int STEP_KEYS = 64;

// Scores and sums of a warpgroup: as Transposed, a warp having 16 of 64 keys and 16 of 64 dims.
template <class T_, int DIM, int ROWS_> struct Warpgroup {
    using T = T_;
    using Keys = Swizzled<STEP_KEYS>;
    using Queries = Swizzled<ROWS_>;
    static constexpr int ROWS = ROWS_, N = ROWS / 8, ENTRIES = 2 * N;
    static constexpr int SCORES = N, SLABS = (DIM + 63) / 64, SUMS = SLABS * N;
    static constexpr int SHARERS = 4;  // of a query row
    static constexpr int WEIGHTS = Queries::SLAB;  // bytes of shared memory
    static constexpr u32 LANES = 28;
    static_assert(DIM % 16 == 0 && ROWS % 8 == 0);

    f32 s[ROWS / 2], o[SLABS][ROWS / 2];
    f32* maxima;  // shared, [warps][ROWS]

    __device__ __forceinline__ f32& score(int n, int e) { return s[n * 4 + e]; }
    __device__ __forceinline__ f32& value(int n, int e) { return o[n / N][n % N * 4 + e]; }
    __device__ __forceinline__ f32 value(int n, int e) const { return o[n / N][n % N * 4 + e]; }
    __device__ __forceinline__ void clear() { memset(o, 0, sizeof(o)); }
    __device__ __forceinline__ void share(u8* memory) { maxima = reinterpret_cast<f32*>(memory); }

    // Not warp::index(), which takes all lanes.
    static __device__ __forceinline__ int own_warp() { return threadIdx.x / warp::SIZE; }
    static __device__ __forceinline__ int entry(int n, int e) { return n % N * 2 + e % 2; }
    static __device__ __forceinline__ int row(int entry) {
        return entry / 2 * 8 + warp::lane() % 4 * 2 + entry % 2;
    }
    static __device__ __forceinline__ int key(int, int e) {
        return own_warp() * 16 + warp::lane() / 4 + e / 2 * 8;
    }
    static __device__ __forceinline__ int dim(int n, int e) { return n / N * 64 + key(n, e); }

    // Whether this holds for any thread: also the barrier after which all warps are done with keys
    // and values that they multiplied.
    __device__ __forceinline__ bool any(bool mine) const { return warp::sync_any(1, 128, mine); }
    __device__ __forceinline__ void meet(f32 (&grown)[ENTRIES]) const {
        if (warp::lane() < 4)
#pragma unroll
            for (int i = 0; i < ENTRIES; i++) maxima[own_warp() * ROWS + row(i)] = grown[i];
        __syncthreads();
#pragma unroll
        for (int i = 0; i < ENTRIES; i++)
#pragma unroll
            for (int w = 0; w < 4; w++) grown[i] = fmaxf(grown[i], maxima[w * ROWS + row(i)]);
    }

    static __device__ __forceinline__ u64 operand(const u8* slab, u32 leading) {
        return wgmma::descriptor(mbarrier::address(slab), leading, 1024, wgmma::Swizzle::b128);
    }

    __device__ __forceinline__ void multiply_keys(const u8* keys, const u8* queries) {
        wgmma::fence();
#pragma unroll
        for (int k = 0; k < DIM / 16; k++) {
            const u64 a = operand(keys + k / 4 * Keys::SLAB, 16);
            const u64 b = operand(queries + k / 4 * Queries::SLAB, 16);
            wgmma::mma<T, ROWS>(s, wgmma::advance(a, k % 4 * 32), wgmma::advance(b, k % 4 * 32),
                                k > 0);
        }
        wgmma::commit();
        wgmma::wait<0>();  // for the values of the step before too
    }
    // P^T, [rows][keys]: what was two keys down becomes two keys along.
    __device__ __forceinline__ void store_weights(u8* weights) const {
        const int lane = warp::lane(), piece = own_warp() * 2 + lane / 8 % 2;
#pragma unroll
        for (int n = 0; n < N; n++) {
            const u32 at = mbarrier::address(weights + Queries::at(n * 8 + lane % 8, piece));
            stmatrix::x2_trans(at, pack_pair(T{}, s[n * 4], s[n * 4 + 1]),
                               pack_pair(T{}, s[n * 4 + 2], s[n * 4 + 3]));
        }
    }
    __device__ __forceinline__ void add_values(const u8* values, const u8* weights) {
        const u64 b = operand(weights, 16);
        wgmma::fence();
#pragma unroll
        for (int m = 0; m < SLABS; m++) {
            const u64 a = operand(values + m * Keys::SLAB, Keys::SLAB);
#pragma unroll
            for (int k = 0; k < STEP_KEYS / 16; k++)
                wgmma::mma<T, ROWS, Major::mn, Major::k>(o[m], wgmma::advance(a, k * 16 * 128),
                                                         wgmma::advance(b, k * 32), 1);
        }
        wgmma::commit();
    }
};

template <class FORM, int DIM_, int STAGES_, int CLUSTER_, Pages PAGES_, Extra EXTRA_, Cut CUT_>
struct Together {
    using Form = FORM;
    using T = typename FORM::T;
    using KV = T;
    static constexpr bool SCALED = false;
    static constexpr int DIM = DIM_, WARPS = 4, STAGES = STAGES_, CLUSTER = CLUSTER_;
    static constexpr Pages PAGES = PAGES_;
    static constexpr Extra EXTRA = EXTRA_;
    static constexpr Cut CUT = CUT_;
    using Queries = typename FORM::Queries;
    using Keys = Cache<T, DIM, PAGES, typename FORM::Keys>;
    using States = Board<FORM::ROWS, DIM, FORM::SHARERS, true>;

    static constexpr int SLOT = FORM::SLABS * FORM::Keys::SLAB;
    static constexpr int WARP_OFFSET = TILE * 128;
    static constexpr int ITEMS = DIM / 4;

    // Shared memory, in bytes: queries, weights, the ring (the board later, or behind it where
    // the ring is already filled again), maxima, table entries.
    static constexpr int WEIGHTS = FORM::SLABS * Queries::SLAB, RING = WEIGHTS + FORM::WEIGHTS;
    static constexpr int EXCHANGE = CLUSTER > 1 ? FORM::ROWS * ITEMS * 32 : 0;
    static constexpr int RING_BYTES = 2 * STAGES * SLOT, STATES = States::BYTES + EXCHANGE;
    static constexpr int BOARD = CUT == Cut::even ? RING + RING_BYTES : RING;
    static constexpr int ENDS[2] = {RING + RING_BYTES, BOARD + STATES};
    static constexpr int MAXIMA = ENDS[ENDS[0] < ENDS[1]];
    static constexpr int TABLE = MAXIMA + 4 * WARPS * FORM::ROWS;
    static constexpr int OPEN = TABLE + table_bytes(PAGES, WARPS, STAGES);  // of an even cut

    // All warps take part in the last step, though it may end before their tiles.
    static __device__ __forceinline__ i32 own(i32 tiles) { return (tiles + WARPS - 1) / WARPS; }
};

// Heads end within a slab: values that nobody fetches are read all the same, as zeros.
template <class S> __device__ __forceinline__ void clear_rest(u8* memory) {
    constexpr int USED = S::DIM % 64 / 8, REST = 8 - USED;  // pieces of a slab's row
    if constexpr (USED)
        for (i32 i = threadIdx.x; i < S::STAGES * STEP_KEYS * REST; i += S::WARPS * warp::SIZE) {
            const i32 row = i / REST % STEP_KEYS, stage = i / (REST * STEP_KEYS);
            const i32 piece = S::DIM / 64 * 8 + USED + i % REST;
            u8* slot = memory + S::RING + (2 * stage + 1) * S::SLOT;
            *reinterpret_cast<uint4*>(slot + S::Form::Keys::at(row, piece)) = uint4{};
        }
}

// What this thread copied is there for all, and for the MMAs.
template <int PENDING> __device__ __forceinline__ void landed() {
    cp_async::wait<PENDING>();
    tma::fence_shared();
    __syncthreads();
}

// A CTA's steps, one after another. A step's values are multiplied beside the next one's keys, and
// make room for others when all warps have agreed on that one's maxima.
template <class S>
__device__ __forceinline__ void attend_together(typename S::Form& form,
                                                Softmax<typename S::Form>& softmax, Walk<S>& walk,
                                                const Work<S>& work, const Rules& rules,
                                                const Query (&queries)[S::Form::ENTRIES],
                                                u8* memory) {
    const u32 mine = warp::index() * S::WARP_OFFSET;
    i32 stage = 0;
    for (i32 i = 0; i < walk.tiles; i++) {
        const i32 key = work.first + i * STEP_KEYS, before = (stage == 0 ? S::STAGES : stage) - 1;
        if (i > 0) landed<2 * S::STAGES - 2>();
        form.multiply_keys(walk.k_slot(stage) - mine, memory);
        if (key >= work.common.first && key + STEP_KEYS <= work.common.last)
            softmax.template weigh<false, S::EXTRA>(form, rules, queries, key);
        else
            softmax.template weigh<true, S::EXTRA>(form, rules, queries, key);
        if (i > 0) walk.fetch_v(i - 1 + S::STAGES, before);
        walk.fetch_k(i + S::STAGES, stage);
        cp_async::commit();
        form.store_weights(memory + S::WEIGHTS);
        landed<2 * S::STAGES - 1>();
        form.add_values(walk.v_slot(stage) - mine, memory + S::WEIGHTS);
        if constexpr (S::CUT == Cut::grid) wgmma::wait<0>();  // ptxas would wait after every MMA
        stage = stage + 1 == S::STAGES ? 0 : stage + 1;
    }
    wgmma::wait<0>();
}

template <class S, class A> __device__ __forceinline__ void decode_together(const A& x) {
    extern __shared__ __align__(1024) u8 memory[];
    using Form = typename S::Form;
    Pieces<S, S::CUT> pieces(x);
    if (!pieces.any()) return;
    clear_rest<S>(memory);
    Work<S> work(x, pieces.take(x));
    Walk<S> walk(x, work, memory);
    walk.fill(memory, x, work);
    Open<S> open(memory + S::OPEN);
    while (true) {
        Form form;
        form.share(memory + S::MAXIMA);
        Softmax<Form> softmax;
        softmax.clear(form);
        Query queries[Form::ENTRIES];
#pragma unroll
        for (int i = 0; i < Form::ENTRIES; i++) queries[i] = work.query(x, Form::row(i));
        landed<2 * S::STAGES - 1>();
        attend_together<S>(form, softmax, walk, work, x.rules, queries, memory);
        softmax.close();
        cp_async::wait_all();
        __syncthreads();  // the ring is free, for the next piece's tiles or as the board
        const bool more = pieces.more();
        const Work<S> done = work;
        if (more) {
            work = Work<S>(x, pieces.take(x));
            walk = Walk<S>(x, work, memory);
            walk.fill(memory, x, work);
        }
        const typename S::States board(memory + S::BOARD);
        board.put(form, softmax, warp::index() % Form::SHARERS, done.rows);
        __syncthreads();
        if constexpr (S::CUT == Cut::grid) return combine<S>(x, done, board, memory + S::BOARD);
        open.deliver(x, done, board);
        if (!more) return open.close(x);
    }
}

}  // namespace decode
