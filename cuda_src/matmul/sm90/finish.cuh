// What happens to accumulators before they leave: scales, the epilogue's arithmetic, partial sums that
// travel between the CTAs of a cluster.
#pragma once

#include "common/cluster.cuh"
#include "common/mbarrier.cuh"
#include "common/warp.cuh"
#include "matmul/sm90/extras.cuh"

// Where products are added up: in the tensor core (fp8 keeps about 14 bits there), or 128 bytes of K at
// a time, with the sum of those sums in f32 registers and (blocks) a scale for each.
enum class Sums { plain, promoted, blocks };

namespace finish {

// A thread's first row and column of a 64-row block of accumulators that starts at (m, n) of C.
struct Origin {
    i32 m, n, z;

    __device__ __forceinline__ Origin mine() const {
        const int lane = warp::lane();
        return {m + i32(threadIdx.x / 32 % 4) * 16 + lane / 4, n + lane % 4 * 2, z};
    }
};

template <int BLOCKS, int REGS> __device__ __forceinline__ void zero(f32 (&d)[BLOCKS][REGS]) {
#pragma unroll
    for (int i = 0; i < BLOCKS * REGS; i++) d[i / REGS][i % REGS] = 0.0f;
}

struct Unscaled {
    __device__ __forceinline__ void load(i32, const f32*) {}
    __device__ __forceinline__ f32 at(int, int, int) const { return 1.0f; }
    __device__ __forceinline__ f32 at(int) const { return 1.0f; }
};

// Scales of 1 x 128 (activations) by 128 x 128 (weights) blocks, DeepSeek-V3's: one factor per row,
// column block and K block. Those of the activations arrive in the stage, with the tile: fetched by the
// consumers themselves, even a K block ahead, they held up every step. Those of the weights are few:
// each lane of a warp keeps one of the next 32 K blocks.
struct WeightScales {
    const f32* first;
    i32 step, count;
    f32 now, next;

    // `count` factors of a row or column block `n`, of those that N has, `step` elements apart.
    __device__ __forceinline__ void start(const f32* scales, i32 n, i32 N, i32 n_step, i32 k_step,
                                          i32 k_blocks) {
        first = scales + i64(min(n, (N - 1) / 128)) * n_step;
        step = k_step, count = k_blocks;
        fetch(0);
    }
    __device__ __forceinline__ void fetch(i32 k) {
        next = first[i64(min(k + warp::lane(), count - 1)) * step];
    }
    // K block k's, to be asked for one after the other by a whole warp.
    __device__ __forceinline__ f32 at(i32 k) {
        if (k % 32 == 0) {
            now = next;
            fetch(k + 32);
        }
        return __shfl_sync(0xffffffff, now, k % 32);
    }
};

// For tiles of C: a thread's rows, and the two column blocks that a tile may touch.
template <int BLOCKS, int COLS> struct BlockScales {
    static constexpr int ROWS = 2 * BLOCKS, COLUMNS = 128 % COLS == 0 ? 1 : 2;
    i32 border, row;  // border: columns before the second column block
    WeightScales weights[COLUMNS];
    f32 factor[ROWS][COLUMNS];

    __device__ __forceinline__ BlockScales(const f32* b, i32 b_n, i32 b_k, i32 k_blocks, i32 n,
                                           i32 N, int first_row)
        : border(128 - n % 128), row(first_row + threadIdx.x / 32 % 4 * 16 + warp::lane() / 4) {
#pragma unroll
        for (int c = 0; c < COLUMNS; c++) weights[c].start(b, n / 128 + c, N, b_n, b_k, k_blocks);
    }
    __device__ __forceinline__ void load(i32 k, const f32* rows) {
#pragma unroll
        for (int c = 0; c < COLUMNS; c++) {
            const f32 b = weights[c].at(k);
#pragma unroll
            for (int i = 0; i < ROWS; i++) factor[i][c] = b * rows[row + i / 2 * 64 + i % 2 * 8];
        }
    }
    __device__ __forceinline__ f32 at(int block, int half, int column) const {
        if constexpr (COLUMNS == 1) return factor[2 * block + half][0];
        else return column < border ? factor[2 * block + half][0] : factor[2 * block + half][1];
    }
};

// For tiles of C^T that start at multiples of 16 rows: a warp's rows of weights share a factor, each
// of a thread's columns, two neighbours of every eight, has one.
template <int COLS> struct TokenScales {
    WeightScales weights;
    f32 factor[COLS / 4];

    __device__ __forceinline__ void load(i32 k, const f32* tokens) {
        const f32 b = weights.at(k);
#pragma unroll
        for (int i = 0; i < COLS / 8; i++) {
            const float2 pair =
                *reinterpret_cast<const float2*>(tokens + i * 8 + warp::lane() % 4 * 2);
            factor[2 * i] = b * pair.x, factor[2 * i + 1] = b * pair.y;
        }
    }
    __device__ __forceinline__ f32 at(int reg) const { return factor[reg / 4 * 2 + reg % 2]; }
};

// Extras on COLS columns from `first`. Indices are clamped into C: what lies outside is computed, not
// stored.
template <Act ACT, int COLS, class OUT, int REGS>
__device__ __forceinline__ void extras(f32 (&d)[REGS], int first, const Extras<OUT>& extras,
                                       f32 alpha, Origin block, i32 M, i32 N) {
    const Origin at = block.mine();
    const i32 m[2] = {min(at.m, M - 1), min(at.m + 8, M - 1)};
    RowTerms<OUT> rows[2] = {extras.row(m[0], at.z, alpha), extras.row(m[1], at.z, alpha)};
#pragma unroll
    for (int h = 0; h < 2; h++)
        if (at.m + 8 * h >= M) rows[h].residual = nullptr;
#pragma unroll
    for (int i = first / 2; i < (first + COLS) / 2; i += 4) {
#pragma unroll
        for (int c = 0; c < 2; c++) {
            const i32 n = at.n + i * 2 + c, inside = min(n, N - 1);
            const ColumnTerms terms = extras.column(inside);
#pragma unroll
            for (int h = 0; h < 2; h++) {
                f32& x = d[i + 2 * h + c];
                x = extras.template apply<ACT>(x, rows[h], terms, inside, n < N);
            }
        }
        __syncwarp();  // keeps the loads of later columns, and their registers, from moving up here
    }
}

// Registers to shared memory and from a peer's, a thread to the same thread: four at a time, so that
// a warp's accesses are contiguous.
template <int REGS> __device__ __forceinline__ void put_partial(f32* mine, const f32 (&d)[REGS]) {
#pragma unroll
    for (int i = 0; i < REGS; i += 4)
        *reinterpret_cast<float4*>(mine + i * warp::GROUP) =
            make_float4(d[i], d[i + 1], d[i + 2], d[i + 3]);
}

template <int REGS>
__device__ __forceinline__ void add_partial(f32 (&d)[REGS], const f32* mine, u32 peer) {
    const u32 remote = cluster::map(mbarrier::address(mine), peer);
#pragma unroll
    for (int i = 0; i < REGS; i += 4) {
        const float4 v = cluster::load4(remote + i * warp::GROUP * 4);
        d[i] += v.x, d[i + 1] += v.y, d[i + 2] += v.z, d[i + 3] += v.w;
        if (i % 16 == 12) __syncwarp();  // bounds the loads, and their registers, in flight
    }
}

}  // namespace finish
