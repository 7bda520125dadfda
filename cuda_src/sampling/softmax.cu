// Softmax of each row at its temperature, every warp with a block of the row in its registers.
//
// A cluster of CTAs takes a row, then the next: one read, one write, one barrier of the cluster. Every
// warp finds the maximum of its 1024 logits and the sum of their exponentials relative to it; all warps
// learn all these pairs, combine them in the same order, and scale what they hold. With STAGES the next
// row's logits arrive by bulk copies meanwhile, so that reads and writes overlap.
//
// Temperatures up to 1e-5 put all on the first maximum, as does +infinity. A NaN counts as -infinity; a
// row of nothing else gives zeros.
//
// Limits: CLUSTER * THREADS / 32 blocks of 1024; the row pitches and bases are aligned to VEC and
// OUT_VEC elements; with STAGES, VEC elements are 16 bytes.
#include "common/bulk.cuh"
#include "common/dsmem.cuh"
#include "sampling/blocks.cuh"
#include "sampling/mass.cuh"
#include "sampling/settings.cuh"

// Of each block the maximum and the sum of exponentials, and the first maximum where it matters.
template <int WARPS> struct SoftmaxBoard {
    u64 pair[2][WARPS];
    u32 first[2][WARPS];
};

__device__ __forceinline__ u64 pack(f32 most, f32 sum) {
    return u64(__float_as_uint(most)) << 32 | __float_as_uint(sum);
}

template <class T, int VEC> struct BlockOfRow {
    static constexpr int RUN = Logits<T, VEC>::RUN, BYTES = ROUND * sizeof(T);

    const u32 base;
    const i32 count;  // tokens, at most ROUND

    __device__ __forceinline__ BlockOfRow(int block, i32 V)
        : base(u32(block) * ROUND), count(max(0, min(ROUND, V - block * ROUND))) {}

    __device__ __forceinline__ int whole() const { return count / RUN * RUN; }

    __device__ __forceinline__ void fetch(T* stage, const T* row, mbarrier::Barrier* full) const {
        if (warp::lane() != 0 || whole() == 0) return;
        mbarrier::arrive_and_expect(full, whole() * sizeof(T));
        bulk::load(stage, row + base, whole() * sizeof(T), full);
    }

    // From the stage, but for what is left of 16 bytes at the row's end.
    __device__ __forceinline__ void read(const T* stage, const T* row, f32 (&x)[32]) const {
        using Run = Vec<T, RUN>;
#pragma unroll
        for (int i = 0; i < 32; i += RUN) {
            const int at = Logits<T, VEC>::at(warp::lane(), i);
            Run run;
#pragma unroll
            for (int j = 0; j < RUN; ++j) run.lane[j] = from_f32<T>(-INF);
            if (at < whole()) run = *reinterpret_cast<const Run*>(stage + at);
            else if (at < count) tail(row + base + at, count - at, run);
#pragma unroll
            for (int j = 0; j < RUN; ++j) x[i + j] = to_f32(run.lane[j]);
        }
    }
    __device__ __forceinline__ static void tail(const T* from, int n, Vec<T, RUN>& run) {
#pragma unroll
        for (int j = 0; j < RUN; ++j)
            if (j < n) run.lane[j] = from[j];
    }

    template <int OUT_VEC, class OUT>
    __device__ __forceinline__ void write(OUT* row, const f32 (&x)[32], f32 scale) const {
        constexpr int PIECE = OUT_VEC < RUN ? OUT_VEC : RUN;
        using Piece = Vec<OUT, PIECE>;
#pragma unroll
        for (int i = 0; i < 32; i += PIECE) {
            const int at = Logits<T, VEC>::at(warp::lane(), i);
            Piece piece;
#pragma unroll
            for (int j = 0; j < PIECE; ++j) piece.lane[j] = from_f32<OUT>(x[i + j] * scale);
            if (at + PIECE <= count) {
                store<Cache::stream>(reinterpret_cast<Piece*>(row + base + at), piece);
            } else {
#pragma unroll
                for (int j = 0; j < PIECE; ++j)
                    if (at + j < count) row[base + at + j] = piece.lane[j];
            }
        }
    }
};

__device__ __forceinline__ f32 warp_added(f32 x) {
#pragma unroll
    for (int i = 16; i; i /= 2) x += __shfl_xor_sync(0xffffffff, x, i);
    return x;
}

// Replaces logits by their exponentials; their sum.
__device__ __forceinline__ f32 exponentials(f32 (&x)[32], const Weigh& weigh) {
    f32 part[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
    for (int i = 0; i < 32; ++i) part[i % 4] += x[i] = weigh(x[i]);
    return warp_added((part[0] + part[1]) + (part[2] + part[3]));
}

// What all the blocks' pairs come to: the row's maximum, and the sum relative to it.
template <int WARPS>
__device__ __forceinline__ f32 combine(const u64 (&pair)[WARPS], f32 temperature, f32& most) {
    constexpr int EACH = (WARPS + 31) / 32;
    f32 best = -INF;
#pragma unroll
    for (int i = 0; i < EACH; ++i)
        if (const int at = i * 32 + warp::lane(); at < WARPS)
            best = fmaxf(best, __uint_as_float(u32(pair[at] >> 32)));
    most = warp_largest(best);
    const Weigh weigh(most, temperature);
    f32 sum = 0.0f;
#pragma unroll
    for (int i = 0; i < EACH; ++i)
        if (const int at = i * 32 + warp::lane(); at < WARPS)
            if (const f32 m = __uint_as_float(u32(pair[at] >> 32)); m > -INF)
                sum += weigh(m) * __uint_as_float(u32(pair[at]));
    return warp_added(sum);
}

template <class T, class OUT, int VEC, int OUT_VEC, int THREADS, int CLUSTER, int STAGES, int BLOCKS>
__global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(THREADS, BLOCKS)
softmax(const T* logits, const f32* temperature, OUT* out, i64 pitch, i64 out_pitch, i32 V,
        f32 temperature0, i64 rows) {
    constexpr int WARPS = THREADS / 32, ALL = WARPS * CLUSTER;
    extern __shared__ __align__(128) u8 memory[];
    __shared__ SoftmaxBoard<ALL> board;
    __shared__ mbarrier::Barrier full[WARPS];
    const u32 rank = CLUSTER > 1 ? cluster::rank() : 0;
    const int mine = warp::index(), me = int(rank) * WARPS + mine;
    const i64 teams = gridDim.x / CLUSTER;
    const BlockOfRow<T, VEC> block(me, V);
    T* stage = reinterpret_cast<T*>(memory) + mine * ROUND;
    auto meet = [] { CLUSTER > 1 ? cluster::sync() : __syncthreads(); };

    i64 row = blockIdx.x / CLUSTER;
    if constexpr (STAGES > 0) {
        if (warp::lane() == 0) mbarrier::init(&full[mine], 1), mbarrier::fence_init();
        __syncwarp();
        block.fetch(stage, logits + row * pitch, &full[mine]);
    }
    if constexpr (CLUSTER > 1) cluster::sync();  // nobody writes into a CTA that has not started
    for (int turn = 0; row < rows; row += teams, ++turn) {
        const T* from = logits + row * pitch;
        f32 x[32];
        if constexpr (STAGES > 0) {
            if (block.whole()) mbarrier::wait(&full[mine], turn & 1);
            block.read(stage, from, x);
            __syncwarp();
            if (row + teams < rows) block.fetch(stage, from + teams * pitch, &full[mine]);
        } else if (block.count) {
            Logits<T, VEC>{from, nullptr, u32(V)}.read(block.base, x);
        } else {
#pragma unroll
            for (int i = 0; i < 32; ++i) x[i] = -INF;
        }
#pragma unroll
        for (int i = 0; i < 32; ++i) x[i] = key::clean(x[i]);

        const f32 t = setting(temperature, row, temperature0);
        const f32 most = warp_largest(largest(x));
        const bool raw = !(t > 1e-5f) || most == LARGEST;
        f32 sum = 1.0f;
        if (!raw && most > -INF) sum = exponentials(x, Weigh(most, t));
        const int parity = turn & 1;
        if (warp::lane() < CLUSTER)
            dsmem::store(dsmem::at(&board.pair[parity][me], warp::lane()), pack(most, sum));
        meet();

        f32 top;
        const f32 all = combine(board.pair[parity], t, top);
        f32 scale = most > -INF ? Weigh(top, t)(most) / all : 0.0f;
        if (top == -INF || !(t > 1e-5f) || top == LARGEST) {
            u32 first = 0xffffffff;
#pragma unroll
            for (int i = 31; i >= 0; --i)
                if (top > -INF && most == top && x[i] == top)
                    first = block.base + Logits<T, VEC>::at(warp::lane(), i);
            first = __reduce_min_sync(0xffffffff, first);
            if (warp::lane() < CLUSTER)
                dsmem::store(dsmem::at(&board.first[parity][me], warp::lane()), first);
            meet();
            for (int w = 0; w < ALL; ++w) first = min(first, board.first[parity][w]);
#pragma unroll
            for (int i = 0; i < 32; ++i)
                x[i] = block.base + Logits<T, VEC>::at(warp::lane(), i) == first;
            scale = 1.0f;
        } else if (most == -INF) {
#pragma unroll
            for (int i = 0; i < 32; ++i) x[i] = 0.0f;
        }
        block.template write<OUT_VEC>(out + row * out_pitch, x, scale);
    }
    if constexpr (CLUSTER > 1) cluster::sync();
}
