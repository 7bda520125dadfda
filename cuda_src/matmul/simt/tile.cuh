// Tiles of an f32 operand in shared memory: how they lie there, get there, and are read.
//
// A tile is BK of K by OUTER rows of A (columns of B), in lines along M / N whichever way the matrix
// runs: a thread reads a chunk of four neighbours, 16 bytes, for each of K. Lines are four elements
// longer than they need to be, which is what keeps copies of 8 of K by 4 neighbours from meeting a
// bank twice.
#pragma once

#include "common/cp_async.cuh"
#include "common/warp.cuh"

namespace simt {

// How a matrix is copied, by what neighbouring threads take: elements along K, which are transposed on
// their way; elements along M / N; or chunks along M / N, contiguous and aligned to 16 bytes.
enum class Copy { k, mn, chunks };

constexpr int BK = 16, CHUNK = 4;

template <int OUTER> struct Tile {
    static constexpr int PITCH = OUTER + CHUNK, SIZE = BK * PITCH;  // elements
};

// A matrix in memory, steps in elements, and where the part of it that a CTA works on starts.
struct Operand {
    const f32* data;
    i64 outer_step, k_step;
    i32 first, outers, K;
};

// What a thread copies of each tile in turn: DOWN pieces along M / N by ACROSS along K.
template <Copy COPY, int OUTER, int THREADS> struct Strip {
    static constexpr bool BY_K = COPY == Copy::k;
    static constexpr int VEC = COPY == Copy::chunks ? CHUNK : 1;
    static constexpr int WHOLE = OUTER / VEC, PER_LINE = BY_K ? 8 : WHOLE < THREADS ? WHOLE : THREADS;
    static constexpr int LINES = THREADS / PER_LINE;
    static constexpr int DOWN_STEP = BY_K ? LINES : PER_LINE * VEC, DOWN = OUTER / DOWN_STEP;
    static constexpr int ACROSS_STEP = BY_K ? PER_LINE : LINES, ACROSS = BK / ACROSS_STEP;
    static_assert(THREADS % PER_LINE == 0 && OUTER % DOWN_STEP == 0 && BK % ACROSS_STEP == 0,
                  "all threads the same");

    const f32* next;  // the first piece of the next tile
    i64 outer_step, k_step;
    i32 outer, k;  // of the first piece
    i32 outer_left, k_left;

    __device__ __forceinline__ explicit Strip(const Operand& x)
        : outer_step(x.outer_step), k_step(x.k_step),
          outer(BY_K ? threadIdx.x / PER_LINE : threadIdx.x % PER_LINE * VEC),
          k(BY_K ? threadIdx.x % PER_LINE : threadIdx.x / PER_LINE),
          outer_left(x.outers - x.first - outer), k_left(x.K - k) {
        next = x.data + i64(x.first + outer) * outer_step + k * k_step;
    }
    // Starts the copies of a tile. What the matrix does not have becomes zeros.
    __device__ __forceinline__ void fetch(f32* tile) {
        f32* to = tile + k * Tile<OUTER>::PITCH + outer;
#pragma unroll
        for (int j = 0; j < DOWN; j++) {
            const i32 elements = max(0, min(VEC, outer_left - j * DOWN_STEP));
#pragma unroll
            for (int i = 0; i < ACROSS; i++) {
                const u32 valid = i * ACROSS_STEP < k_left ? elements * sizeof(f32) : 0;
                cp_async::copy<VEC * sizeof(f32), VEC == 1>(
                    to + i * ACROSS_STEP * Tile<OUTER>::PITCH + j * DOWN_STEP,
                    next + j * DOWN_STEP * outer_step + i * ACROSS_STEP * k_step, valid);
            }
        }
        next += BK * k_step;
        k_left -= BK;
    }
};

// Eight rows of A or columns of B of a thread, in two chunks. LANES of them lie side by side in a warp.
template <int OUTER, int LANES> struct Fragment {
    static constexpr int WARP = 8 * LANES;  // rows or columns
    int first;                              // in the tile

    __device__ __forceinline__ Fragment(int warp, int lane) : first(warp * WARP + lane * CHUNK) {}
    __device__ __forceinline__ int index(int i) const {
        return first + i / CHUNK * LANES * CHUNK + i % CHUNK;
    }
    __device__ __forceinline__ void load(f32 (&v)[8], const f32* tile, int k) const {
#pragma unroll
        for (int i = 0; i < 8; i += CHUNK) {
            const float4 x =
                *reinterpret_cast<const float4*>(tile + k * Tile<OUTER>::PITCH + index(i));
            v[i] = x.x, v[i + 1] = x.y, v[i + 2] = x.z, v[i + 3] = x.w;
        }
    }
};

}  // namespace simt
