// Decoding over a cache of 8-bit floats, one warp and a tile of 16 keys, transposed (forms.cuh).
//
// Every e4m3 is an f16, so tiles are widened in registers, between ldmatrix and an MMA of f16. For
// ldmatrix a pair of bytes is one element; which dims it brings to a lane is made up for by the
// order of the queries, and of the rows of the result:
//   K     a lane has dims 4c to 4c + 3 of a key, c = lane % 4, and those of the queries as well.
//   V^T   a lane has dims 2g and 2g + 1, g = lane / 4, as the MMA's rows g and g + 8.
//
// Queries become f16 too. So that their range does not matter a row is multiplied by a power of two
// which scores are divided by; likewise weights, which values are divided by at the end.
#pragma once

#include "attention/decode/forms.cuh"
#include "attention/decode/work.cuh"
#include "common/fp8.cuh"

namespace decode {

template <class T_, int DIM, int ROWS_> struct Narrow {
    using T = T_;
    using KV = e4m3;
    static constexpr int ROWS = ROWS_, N = ROWS / 8, ENTRIES = 2 * N;
    static constexpr int PITCH = Padded<DIM>::PITCH, QUERY_PITCH = Padded<DIM * 2>::PITCH;
    static constexpr int SCORES = N, SUMS = DIM / 16 * N;
    static constexpr u32 LANES = 28;
    static constexpr int CHAINS = N == 1 ? 2 : 1;  // then an MMA need not wait for the one before
    static constexpr f32 LIFT = 2048.0f;  // of weights: they stay below 2^15
    static_assert(ROWS % 8 == 0 && DIM % 32 == 0);

    uint2 q[HELD<DIM> ? DIM / 16 : 1][N];
    const u8* queries;
    f32 s[SCORES][4], o[SUMS][4], factor[ENTRIES];

    __device__ __forceinline__ f32& score(int n, int e) { return s[n][e]; }
    __device__ __forceinline__ f32& value(int n, int e) { return o[n][e]; }
    __device__ __forceinline__ f32 value(int n, int e) const { return o[n][e]; }
    __device__ __forceinline__ void clear() { memset(o, 0, sizeof(o)); }

    static __device__ __forceinline__ int entry(int n, int e) { return n % N * 2 + e % 2; }
    static __device__ __forceinline__ int row(int entry) {
        return entry / 2 * 8 + warp::lane() % 4 * 2 + entry % 2;
    }
    static __device__ __forceinline__ int key(int, int e) { return warp::lane() / 4 + e / 2 * 8; }
    static __device__ __forceinline__ int dim(int n, int e) {
        return n / N * 16 + warp::lane() / 4 * 2 + e / 2;
    }
    __device__ __forceinline__ void meet(f32 (&)[ENTRIES]) const {}
    __device__ __forceinline__ bool any(bool mine) const { return __any_sync(ALL_LANES, mine); }

    __device__ __forceinline__ void load_queries(const u8* rows) {
        queries = rows + warp::lane() / 4 * QUERY_PITCH + warp::lane() % 4 * 8;
        const f32* factors = reinterpret_cast<const f32*>(rows + ROWS * QUERY_PITCH);
#pragma unroll
        for (int i = 0; i < ENTRIES; i++) factor[i] = factors[row(i)];
        if constexpr (HELD<DIM>)
#pragma unroll
            for (int k = 0; k < DIM / 16; k++) load_query(q[k], k);
    }
    __device__ __forceinline__ void load_query(uint2 (&b)[N], int k) const {
#pragma unroll
        for (int n = 0; n < N; n++)
            b[n] = *reinterpret_cast<const uint2*>(queries + n * 8 * QUERY_PITCH + k * 32);
    }
    __device__ __forceinline__ void multiply_key(f32 (&sums)[SCORES][4], const u32 (&a)[4], int k) {
        uint2(&b)[N] = q[HELD<DIM> ? k : 0];
        if constexpr (!HELD<DIM>) load_query(b, k);
#pragma unroll
        for (int n = 0; n < N; n++) mma::m16n8k16<f16>(sums[n], a, b[n].x, b[n].y);
    }
    __device__ __forceinline__ void multiply_keys(u32 keys) {
        f32 sums[CHAINS][SCORES][4] = {};
#pragma unroll
        for (int k = 0; k < DIM / 16; k += 2) {
            u32 pairs[4];
            mma::load_matrices<false>(pairs, matrix_row<PITCH, true>(keys + k * 16));
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const u32 upper = pairs[2 * half], lower = pairs[2 * half + 1];
                const u32 a[4] = {fp8::widen(upper), fp8::widen(lower), fp8::widen(upper >> 16),
                                  fp8::widen(lower >> 16)};
                multiply_key(sums[half % CHAINS], a, k + half);
            }
        }
#pragma unroll
        for (int n = 0; n < SCORES; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                s[n][e] = sums[0][n][e];
                if (CHAINS > 1) s[n][e] += sums[CHAINS - 1][n][e];
                s[n][e] *= factor[entry(n, e)];
            }
    }
    __device__ __forceinline__ void add_values(u32 values) {
        u32 p[N][2];
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int i = 0; i < 2; i++)
                p[n][i] = movmatrix::transpose(
                    pack_pair(f16{}, s[n][2 * i] * LIFT, s[n][2 * i + 1] * LIFT));
#pragma unroll
        for (int m = 0; m < DIM / 16; m += 2) {
            u32 pairs[4];
            mma::load_matrices<true>(pairs, matrix_row<PITCH, true>(values + m * 16));
#pragma unroll
            for (int half = 0; half < 2; half++) {
                u32 a[4];
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    const u32 sorted = __byte_perm(pairs[2 * half + i], 0, 0x3120);
                    a[2 * i] = fp8::widen(sorted), a[2 * i + 1] = fp8::widen(sorted >> 16);
                }
#pragma unroll
                for (int n = 0; n < N; n++)
                    mma::m16n8k16<f16>(o[(m + half) * N + n], a, p[n][0], p[n][1]);
            }
        }
    }
};

// The power of two that makes the largest of a row 2^13 to 2^14; 1 for infinities and NaN.
__device__ __forceinline__ f32 lift_to_f16(f32 largest) {
    const i32 exponent = __float_as_int(largest) >> 23;
    return exponent == 255 ? 1.0f : __int_as_float(min(267 - exponent, 253) << 23);
}

// The query rows as f16 in shared memory, zeros where there are none, and behind them the factor of
// every row's scores. A warp has a row at a time.
template <class S, class A>
__device__ __forceinline__ void widen_queries(u8* to, const A& x, const Work<S>& work) {
    constexpr int COLUMNS = S::DIM / warp::SIZE;
    const f32 scale = x.q_scales.of(work) * x.k_scales.of(work);
    for (i32 row = warp::index(); row < S::Form::ROWS; row += S::WARPS) {
        const auto from = work.query_row(x, min(row, work.rows - 1)) + warp::lane();
        f32 values[COLUMNS], largest = 0.0f;
#pragma unroll
        for (int i = 0; i < COLUMNS; i++) {
            values[i] = row < work.rows ? to_f32(from[i * warp::SIZE]) : 0.0f;
            largest = fmaxf(largest, fabsf(values[i]));
        }
#pragma unroll
        for (int bit = 1; bit < warp::SIZE; bit *= 2)
            largest = fmaxf(largest, __shfl_xor_sync(ALL_LANES, largest, bit));
        const f32 lift = lift_to_f16(largest);
        f16* own = reinterpret_cast<f16*>(to + row * S::Queries::PITCH) + warp::lane();
#pragma unroll
        for (int i = 0; i < COLUMNS; i++) own[i * warp::SIZE] = from_f32<f16>(values[i] * lift);
        if (warp::lane() == 0) reinterpret_cast<f32*>(to + S::FACTORS)[row] = scale / lift;
    }
}

}  // namespace decode
