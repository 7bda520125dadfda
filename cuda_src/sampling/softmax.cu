// Softmax of each row at its temperature, every warp with one or two blocks of the row in its registers.
//
// A cluster of CTAs takes a row, then the next: one read, one write, one exchange between them. Every
// warp finds the maximum of its logits and the sum of their exponentials relative to it; all warps learn
// all these pairs, combine them in the same order, and scale what they hold. With STAGES the logits of
// that many rows to come arrive by bulk copies meanwhile, so that reads and writes overlap.
//
// Temperatures up to 1e-5 put all on the first maximum, as does +infinity. A NaN counts as -infinity; a
// row of nothing else gives zeros.
//
// Limits: PER * CLUSTER * THREADS / 32 blocks of 1024; the row pitches and bases are aligned to VEC and
// OUT_VEC elements; with STAGES, VEC elements are 16 bytes.
#include "common/bulk.cuh"
#include "common/dsmem.cuh"
#include "sampling/blocks.cuh"
#include "sampling/mass.cuh"
#include "sampling/settings.cuh"

// Of each warp's blocks the maximum and the sum of exponentials, and the first maximum where it matters.
template <int WARPS, int CLUSTER> struct SoftmaxBoard {
    u64 pair[2][WARPS];  // two sets in turn where one CTA has the row
    u32 first[2][WARPS];
    mbarrier::Barrier arrived;

    __device__ __forceinline__ void start() {
        if (CLUSTER > 1 && threadIdx.x == 0) mbarrier::init(&arrived, 1), mbarrier::fence_init();
        if constexpr (CLUSTER > 1) cluster::sync(), cluster::arrive();
    }

    // Every warp's pair goes to every CTA; all of them, in this one. Stores that an mbarrier counts need
    // no fence: the cluster's barrier has one, which waits until what was written before is written.
    __device__ __forceinline__ const u64 (&exchange(int turn, int me, u64 mine))[WARPS] {
        if constexpr (CLUSTER == 1) {
            if (warp::lane() == 0) pair[turn & 1][me] = mine;
            __syncthreads();
            return pair[turn & 1];
        } else {
            cluster::wait();  // everyone has read the pairs of the row before
            if (threadIdx.x == 0) mbarrier::arrive_and_expect(&arrived, WARPS * sizeof(u64));
            if (const u32 to = warp::lane(); to < CLUSTER)
                dsmem::store_async(dsmem::at(&pair[0][me], to), mine, dsmem::at(&arrived, to));
            mbarrier::wait(&arrived, turn & 1);
            return pair[0];
        }
    }

    // This warp has read the pairs. The fence comes before the row is written: a row ago much was.
    __device__ __forceinline__ void done() const {
        if constexpr (CLUSTER > 1) cluster::arrive();
    }
    __device__ __forceinline__ void end() const {
        if constexpr (CLUSTER > 1) cluster::wait();
    }
};

__device__ __forceinline__ u64 pack(f32 most, f32 sum) {
    return u64(__float_as_uint(most)) << 32 | __float_as_uint(sum);
}

template <class T, int VEC> struct BlockOfRow {
    static constexpr int RUN = Logits<T, VEC>::RUN, BYTES = ROUND * sizeof(T);

    const u32 base;
    const i32 count;  // tokens, at most ROUND
    const bool all;   // not by way of `count`: ptxas 13.0 then compares wrongly (predicate of VIMNMX.RELU)

    __device__ __forceinline__ BlockOfRow(int block, i32 V)
        : base(u32(block) * ROUND), count(max(0, min(ROUND, V - block * ROUND))),
          all((block + 1) * ROUND <= V) {}

    __device__ __forceinline__ int whole() const { return count / RUN * RUN; }

    template <int KEEP>
    __device__ __forceinline__ void fetch(T* stage, const T* row, mbarrier::Barrier* full) const {
        if (whole() == 0) return;
        if constexpr (KEEP) bulk::load(stage, row + base, whole() * sizeof(T), full);
        else bulk::load_once(stage, row + base, whole() * sizeof(T), full);
    }

    // From the stage, but for what is left of 16 bytes at the row's end.
    __device__ __forceinline__ void read(const T* stage, const T* row, f32 (&x)[32]) const {
        if (all) return read<true>(stage, row, x);
        read<false>(stage, row, x);
    }
    template <bool WHOLE>
    __device__ __forceinline__ void read(const T* stage, const T* row, f32 (&x)[32]) const {
#pragma unroll
        for (int i = 0; i < 32; i += RUN) {
            const int at = Logits<T, VEC>::at(warp::lane(), i);
            Vec<T, RUN> run;
            if (WHOLE || at < whole()) run = *reinterpret_cast<const Vec<T, RUN>*>(stage + at);
            else run = tail(row + base, at);
#pragma unroll
            for (int j = 0; j < RUN; ++j) x[i + j] = to_f32(run.lane[j]);
        }
    }
    __device__ __forceinline__ Vec<T, RUN> tail(const T* from, int at) const {
        Vec<T, RUN> run;
#pragma unroll
        for (int j = 0; j < RUN; ++j) run.lane[j] = at + j < count ? from[at + j] : from_f32<T>(-INF);
        return run;
    }

    template <int OUT_VEC, Cache CACHE, class OUT>
    __device__ __forceinline__ void write(OUT* row, const f32 (&x)[32], f32 scale) const {
        if (all) return write<true, OUT_VEC, CACHE>(row, x, scale);
        write<false, OUT_VEC, CACHE>(row, x, scale);
    }
    template <bool WHOLE, int OUT_VEC, Cache CACHE, class OUT>
    __device__ __forceinline__ void write(OUT* row, const f32 (&x)[32], f32 scale) const {
        constexpr int PIECE = OUT_VEC < RUN ? OUT_VEC : RUN;
        using Piece = Vec<OUT, PIECE>;
        OUT* to = row + base + Logits<T, VEC>::at(warp::lane(), 0);
#pragma unroll
        for (int i = 0; i < 32; i += PIECE) {
            const int step = Logits<T, VEC>::at(0, i), at = Logits<T, VEC>::at(warp::lane(), i);
            Piece piece;
#pragma unroll
            for (int j = 0; j < PIECE; ++j) piece.lane[j] = from_f32<OUT>(x[i + j] * scale);
            if (WHOLE || at + PIECE <= count) {
                store<CACHE>(reinterpret_cast<Piece*>(to + step), piece);
            } else {
#pragma unroll
                for (int j = 0; j < PIECE; ++j)
                    if (at + j < count) to[step + j] = piece.lane[j];
            }
        }
    }
};

__device__ __forceinline__ f32 warp_added(f32 x) {
#pragma unroll
    for (int i = 16; i; i /= 2) x += __shfl_xor_sync(0xffffffff, x, i);
    return x;
}

// Replaces logits by their exponentials; this lane's sum. From `far` below the maximum on they are 0, as
// is that of NaN.
__device__ __forceinline__ f32 exponentials(f32 (&x)[32], const Weigh& weigh, f32 far) {
    f32 part[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
    for (int i = 0; i < 32; ++i) part[i % 4] += x[i] = weigh.at(fmaxf(x[i] - weigh.max, far));
    return (part[0] + part[1]) + (part[2] + part[3]);
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

// A warp's blocks of a row, and where the rows to come are staged.
template <class T, int VEC, int PER, int STAGES, int KEEP> struct RowWarp {
    using Block = BlockOfRow<T, VEC>;
    static constexpr int RING = STAGES ? STAGES : 1;

    const int me;
    const i32 V;
    T* stages;
    mbarrier::Barrier* full;

    __device__ __forceinline__ Block block(int p) const { return Block(me * PER + p, V); }
    __device__ __forceinline__ T* stage(int turn, int p) const {
        return stages + (turn % RING * PER + p) * ROUND;
    }

    __device__ __forceinline__ void fetch(int turn, const T* row) const {
        if (STAGES == 0 || warp::lane() != 0 || block(0).whole() == 0) return;
        mbarrier::Barrier* landed = &full[turn % RING];
        u32 tokens = 0;
        for (int p = 0; p < PER; ++p) tokens += block(p).whole();
        mbarrier::arrive_and_expect(landed, tokens * sizeof(T));
        for (int p = 0; p < PER; ++p) block(p).template fetch<KEEP>(stage(turn, p), row, landed);
    }

    __device__ __forceinline__ void read(int turn, const T* row, f32 (&x)[PER][32]) const {
        if constexpr (STAGES > 0)
            if (block(0).whole()) mbarrier::wait(&full[turn % RING], turn / RING & 1);
#pragma unroll
        for (int p = 0; p < PER; ++p) {
            const Block part = block(p);
            if constexpr (STAGES > 0) {
                part.read(stage(turn, p), row, x[p]);
            } else if (part.count) {
                auto& half = reinterpret_cast<f32 (&)[2][16]>(x[p]);  // fewer addresses at a time
                const Logits<T, VEC> logits = {row, nullptr, u32(V)};
                logits.read(part.base, half[0]);
                logits.read(part.base + ROUND / 2, half[1]);
            } else {
#pragma unroll
                for (int i = 0; i < 32; ++i) x[p][i] = -INF;
            }
        }
        __syncwarp();
    }

    __device__ __forceinline__ static f32 maximum(const f32 (&x)[PER][32]) {
        f32 most = largest(x[0]);
        if constexpr (PER > 1) most = fmaxf(most, largest(x[1]));
        return fminf(warp_largest(most), LARGEST);
    }

    __device__ __forceinline__ static f32 sum(f32 (&x)[PER][32], f32 most, f32 temperature) {
        const Weigh weigh(most, temperature);
        const f32 far = -139.0f * fminf(temperature, 1e30f);  // of 2^-200
        f32 sum = exponentials(x[0], weigh, far);
        if constexpr (PER > 1) sum += exponentials(x[1], weigh, far);
        return warp_added(sum);
    }

    // The first of this warp's tokens whose logit is `top`.
    __device__ __forceinline__ u32 first_of(const f32 (&x)[PER][32], f32 top) const {
        u32 first = 0xffffffff;
#pragma unroll
        for (int p = PER - 1; p >= 0; --p)
#pragma unroll
            for (int i = 31; i >= 0; --i)
                if (x[p][i] >= top) first = block(p).base + Logits<T, VEC>::at(warp::lane(), i);
        return __reduce_min_sync(0xffffffff, first);
    }

    // All on one token.
    __device__ __forceinline__ void one_hot(f32 (&x)[PER][32], u32 token) const {
#pragma unroll
        for (int p = 0; p < PER; ++p)
#pragma unroll
            for (int i = 0; i < 32; ++i)
                x[p][i] = block(p).base + Logits<T, VEC>::at(warp::lane(), i) == token;
    }
};

template <class T, class OUT, int VEC, int OUT_VEC, int THREADS, int CLUSTER, int STAGES, int BLOCKS,
          int PER, int KEEP>
__global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(THREADS, BLOCKS)
softmax(const T* logits, const f32* temperature, OUT* out, i64 pitch, i64 out_pitch, i32 V,
        f32 temperature0, i64 rows) {
    constexpr int WARPS = THREADS / 32, ALL = WARPS * CLUSTER;
    extern __shared__ __align__(128) u8 memory[];
    __shared__ SoftmaxBoard<ALL, CLUSTER> board;
    using Own = RowWarp<T, VEC, PER, STAGES, KEEP>;
    __shared__ mbarrier::Barrier full[WARPS][Own::RING];
    const u32 rank = CLUSTER > 1 ? cluster::rank() : 0;
    const int mine = warp::index(), me = int(rank) * WARPS + mine;
    const i64 teams = gridDim.x / CLUSTER, start = blockIdx.x / CLUSTER;
    const Own own = {me, V, reinterpret_cast<T*>(memory) + mine * Own::RING * PER * ROUND, full[mine]};
    auto meet = [] { CLUSTER > 1 ? cluster::sync() : __syncthreads(); };

    if constexpr (STAGES > 0) {
        if (warp::lane() == 0) {
            for (int i = 0; i < STAGES; ++i) mbarrier::init(&full[mine][i], 1);
            mbarrier::fence_init();
        }
        __syncwarp();
        for (int i = 0; i < STAGES; ++i)
            if (start + i * teams < rows) own.fetch(i, logits + (start + i * teams) * pitch);
    }
    board.start();
    i64 row = start;
    for (int turn = 0; row < rows; row += teams, ++turn) {
        f32 x[PER][32];
        own.read(turn, logits + row * pitch, x);
        if (STAGES && row + STAGES * teams < rows)
            own.fetch(turn + STAGES, logits + (row + STAGES * teams) * pitch);

        const f32 t = setting(temperature, row, temperature0);
        const f32 most = own.maximum(x);
        const bool raw = !(t > 1e-5f) || most == LARGEST;
        f32 sum = 1.0f;
        if (!raw && most > -INF) sum = own.sum(x, most, t);
        const auto& pairs = board.exchange(turn, me, pack(most, sum));
        f32 top;
        const f32 all = combine(pairs, t, top);
        f32 scale = most > -INF ? Weigh(top, t)(most) / all : 0.0f;
        if (top == -INF || !(t > 1e-5f) || top == LARGEST) {
            u32 first = top > -INF && most == top ? own.first_of(x, top) : 0xffffffff;
            if (warp::lane() < CLUSTER)
                dsmem::store(dsmem::at(&board.first[turn & 1][me], warp::lane()), first);
            meet();
            for (int w = 0; w < ALL; ++w) first = min(first, board.first[turn & 1][w]);
            own.one_hot(x, first);
            scale = 1.0f;
        } else if (most == -INF) {
            own.one_hot(x, 0xffffffff);
        }
        board.done();
#pragma unroll
        for (int p = 0; p < PER; ++p)
            own.block(p).template write<OUT_VEC, KEEP ? Cache::stream : Cache::normal>(
                out + row * out_pitch, x[p], scale);
    }
    board.end();
}
