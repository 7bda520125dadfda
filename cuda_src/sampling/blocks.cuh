// A row as blocks of 1024 tokens, or a multiple, each read by one warp.
//
// Lane and block make a group of 32 tokens (or the multiple). Which tokens these are depends on V and
// the type alone, so that maxima and sums per block and per group are the same however a row is shared
// out and wherever it lies.
#pragma once

#include "common/bulk.cuh"
#include "common/vec.cuh"
#include "common/warp.cuh"
#include "sampling/key.cuh"

constexpr int ROUND = 1024;  // tokens that a warp reads at once, 32 per lane

struct Blocks {
    i32 V, rounds, count;  // rounds of a block, blocks of the row: at most MOST

    static constexpr int MOST = 256;

    __device__ __forceinline__ explicit Blocks(i32 V) : Blocks(V, (V - 1) / (ROUND * MOST) + 1) {}
    __device__ __forceinline__ Blocks(i32 V, i32 rounds)
        : V(V), rounds(rounds), count((V - 1) / (ROUND * rounds) + 1) {}
    __device__ __forceinline__ u32 first(int block, int round) const {
        return (u32(block) * u32(rounds) + u32(round)) * ROUND;
    }
};

// A row of logits of which a bitmask may forbid some: bit t % 32 of word t / 32, 1: allowed.
template <class T, int VEC> struct Logits {
    static constexpr int RUN = 16 / sizeof(T), STEPS = 32 / RUN;  // consecutive tokens of a lane

    const T* row;
    const u32* mask;
    u32 V;

    // Where the lane's i-th token of a round is.
    __device__ __forceinline__ static u32 at(int lane, int i) {
        return u32((i / RUN * 32 + lane) * RUN + i % RUN);
    }

    __device__ __forceinline__ f32 one(u32 token) const {
        if (token >= V || (mask && !(mask[token / 32] >> token % 32 & 1))) return -INF;
        return to_f32(row[token]);
    }

    // N raw logits of this lane, of a round those from `base` on: all 32, or whole runs.
    template <int N> __device__ __forceinline__ void read(u32 base, f32 (&x)[N]) const {
        if (u64(base) + 32 * N <= V) {
            read_whole(row + base, x);
        } else {
#pragma unroll
            for (int i = 0; i < N; ++i) {
                const u32 token = base + at(warp::lane(), i);
                x[i] = token < V ? to_f32(row[token]) : -INF;
            }
        }
    }

    template <int N> __device__ __forceinline__ void read_whole(const T* from, f32 (&x)[N]) const {
        using Piece = Vec<T, VEC>;
        Piece pieces[N / VEC];
#pragma unroll
        for (int i = 0; i < N; i += VEC)
            pieces[i / VEC] = load<Cache::normal>(
                reinterpret_cast<const Piece*>(from + at(warp::lane(), i)));
#pragma unroll
        for (int i = 0; i < N; ++i) x[i] = to_f32(pieces[i / VEC].lane[i % VEC]);
    }

    template <int N> __device__ __forceinline__ void forbid(u32 base, f32 (&x)[N]) const {
        if (!mask) return;
#pragma unroll
        for (int step = 0; step < N / RUN; ++step) {
            const u32 token = base + at(warp::lane(), step * RUN);
            const u32 bits = token < V ? mask[token / 32] >> token % 32 : 0;
#pragma unroll
            for (int j = 0; j < RUN; ++j)
                if (!(bits >> j & 1)) x[step * RUN + j] = -INF;
        }
    }
};

__device__ __forceinline__ f32 largest(const f32 (&x)[32]) {
    f32 best[4] = {-INF, -INF, -INF, -INF};  // fmaxf drops a NaN
#pragma unroll
    for (int i = 0; i < 32; ++i) best[i % 4] = fmaxf(best[i % 4], x[i]);
    return fmaxf(fmaxf(best[0], best[1]), fmaxf(best[2], best[3]));
}

__device__ __forceinline__ f32 warp_largest(f32 x) {
#pragma unroll
    for (int i = 16; i; i /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffff, x, i));
    return x;
}

// A block's logits on their way into shared memory while the warp looks at those before. Rows aligned
// to 16 bytes come by bulk copies, a block at a time; what is left of 16 bytes at the row's end, and
// rows that are not aligned, are read directly.
template <class T, int VEC> struct Stage {
    using Source = Logits<T, VEC>;
    static constexpr int RUN = Source::RUN;
    static constexpr bool COPIES = VEC == RUN;

    T* to;  // ROUND of them
    mbarrier::Barrier* full;
    u32 parity = 0;

    __device__ __forceinline__ static u32 whole(const Source& from, u32 base) {
        return base < from.V ? min(u32(ROUND), from.V - base) / RUN * RUN : 0;
    }

    __device__ __forceinline__ void start() const {
        if (COPIES && warp::lane() == 0) mbarrier::init(full, 1), mbarrier::fence_init();
        __syncwarp();
    }

    __device__ __forceinline__ void fetch(const Source& from, u32 base) const {
        const u32 n = whole(from, base);
        if (!COPIES || n == 0 || warp::lane() != 0) return;
        mbarrier::arrive_and_expect(full, n * sizeof(T));
        bulk::load(to, from.row + base, n * sizeof(T), full);
    }

    // What was fetched last, forbidden tokens as -infinity.
    __device__ __forceinline__ void take(const Source& from, u32 base, f32 (&x)[32]) {
        const u32 n = COPIES ? whole(from, base) : 0;
        if (n) mbarrier::wait(full, parity), parity ^= 1;
        if (n < ROUND) fill(from, base, n);
        if (from.mask) forbid(from, base);
        using Run = Vec<T, RUN>;
#pragma unroll
        for (int i = 0; i < 32; i += RUN) {
            const Run run = *reinterpret_cast<const Run*>(to + Source::at(warp::lane(), i));
#pragma unroll
            for (int j = 0; j < RUN; ++j) x[i + j] = to_f32(run.lane[j]);
        }
        __syncwarp();
    }

    __device__ __forceinline__ void fill(const Source& from, u32 base, u32 n) const {
#pragma unroll 4
        for (u32 i = n + warp::lane(); i < ROUND; i += 32)
            to[i] = base + i < from.V ? from.row[base + i] : from_f32<T>(-INF);
        __syncwarp();
    }

    __device__ __forceinline__ void forbid(const Source& from, u32 base) const {
        const u32 word = base + warp::lane() * 32 < from.V ? from.mask[base / 32 + warp::lane()] : 0;
        u32 some = __ballot_sync(0xffffffff, word != 0xffffffff);
        for (; some; some &= some - 1) {
            const int w = __ffs(some) - 1;
            const u32 bits = __shfl_sync(0xffffffff, word, w);
            if (!(bits >> warp::lane() & 1)) to[w * 32 + warp::lane()] = from_f32<T>(-INF);
        }
        __syncwarp();
    }
};
