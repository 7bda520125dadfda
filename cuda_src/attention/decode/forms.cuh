// The two ways to lay decoding out for the tensor cores, for one warp and a tile of 16 keys.
//
// A KV head has 1 to 16 query rows; the MMA's M is 16, its N 8.
//   Plain       S = Q K^T, O = P V: queries on M, padded to 16. P's accumulators are A's fragments.
//   Transposed  S^T = K Q^T, O^T = V^T P^T: keys and dims on M, queries on N, 8 at a time: half the
//               MMAs and half the registers for up to 8 rows. P^T needs a transpose in registers.
//
// Both keep everything in registers: Q (of heads up to 128 wide), scores of the tile, sums. A lane
// holds statistics of ENTRIES query rows, shared by the lanes that differ in LANES (bits of the
// lane's number).
#pragma once

#include "attention/decode/cache.cuh"
#include "common/mma.cuh"
#include "common/movmatrix.cuh"

namespace decode {

constexpr u32 ALL_LANES = 0xffffffff;

__device__ __forceinline__ u32 pack_pair(bf16, f32 low, f32 high) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    u32 bits;
    memcpy(&bits, &pair, 4);
    return bits;
}
__device__ __forceinline__ u32 pack_pair(f16, f32 low, f32 high) {
    const __half2 pair = __floats2half2_rn(low, high);
    u32 bits;
    memcpy(&bits, &pair, 4);
    return bits;
}

// The shared address of the row that this lane names for four 8x8 matrices: 16 rows by 16 columns
// at `at`, counted down the rows first (DOWN) or along them.
template <int PITCH, bool DOWN> __device__ __forceinline__ u32 matrix_row(u32 at) {
    const int lane = warp::lane(), first = lane / 8 % 2, second = lane / 16;
    const int down = DOWN ? first : second, along = DOWN ? second : first;
    return at + (down * 8 + lane % 8) * PITCH + along * 16;
}

// Wider heads have their queries read from shared memory again for every tile.
template <int DIM> constexpr bool HELD = DIM <= 128;

template <class T_, int DIM> struct Plain {
    using T = T_;
    using KV = T_;
    static constexpr int ROWS = 16, ENTRIES = 2, PITCH = Padded<DIM * 2>::PITCH;
    static constexpr int SCORES = TILE / 8, SUMS = DIM / 8;  // fragments
    static constexpr u32 LANES = 3;

    u32 q[HELD<DIM> ? DIM / 16 : 1][4], queries;  // queries: their shared address
    f32 s[SCORES][4], o[SUMS][4];

    __device__ __forceinline__ f32& score(int n, int e) { return s[n][e]; }
    __device__ __forceinline__ f32& value(int n, int e) { return o[n][e]; }
    __device__ __forceinline__ f32 value(int n, int e) const { return o[n][e]; }
    __device__ __forceinline__ void clear() { memset(o, 0, sizeof(o)); }

    // Of element e of any fragment: the entry it belongs to, and its place.
    static __device__ __forceinline__ int entry(int, int e) { return e / 2; }
    static __device__ __forceinline__ int row(int entry) { return warp::lane() / 4 + entry * 8; }
    static __device__ __forceinline__ int key(int n, int e) {
        return n * 8 + warp::lane() % 4 * 2 + e % 2;
    }
    static __device__ __forceinline__ int dim(int n, int e) { return key(n, e); }
    // No other warp has these keys.
    __device__ __forceinline__ void meet(f32 (&)[ENTRIES]) const {}
    __device__ __forceinline__ bool any(bool mine) const { return __any_sync(ALL_LANES, mine); }

    __device__ __forceinline__ void load_queries(const u8* rows) {
        queries = static_cast<u32>(__cvta_generic_to_shared(rows));
        if constexpr (HELD<DIM>)
#pragma unroll
            for (int k = 0; k < DIM / 16; k++) load_query(q[k], k);
    }
    __device__ __forceinline__ void load_query(u32 (&a)[4], int k) const {
        mma::load_matrices<false>(a, matrix_row<PITCH, true>(queries + k * 32));
    }
    __device__ __forceinline__ void multiply_keys(u32 keys) {
        memset(s, 0, sizeof(s));
#pragma unroll
        for (int k = 0; k < DIM / 16; k++) {
            u32 b[4];
            mma::load_matrices<false>(b, matrix_row<PITCH, false>(keys + k * 32));
            u32(&a)[4] = q[HELD<DIM> ? k : 0];
            if constexpr (!HELD<DIM>) load_query(a, k);
            mma::m16n8k16<T>(s[0], a, b[0], b[1]);
            mma::m16n8k16<T>(s[1], a, b[2], b[3]);
        }
    }
    __device__ __forceinline__ void add_values(u32 values) {
        const u32 p[4] = {pack_pair(T{}, s[0][0], s[0][1]), pack_pair(T{}, s[0][2], s[0][3]),
                          pack_pair(T{}, s[1][0], s[1][1]), pack_pair(T{}, s[1][2], s[1][3])};
#pragma unroll
        for (int n = 0; n < DIM / 16; n++) {
            u32 b[4];
            mma::load_matrices<true>(b, matrix_row<PITCH, true>(values + n * 32));
            mma::m16n8k16<T>(o[2 * n], p, b[0], b[1]);
            mma::m16n8k16<T>(o[2 * n + 1], p, b[2], b[3]);
        }
    }
};

template <class T_, int DIM, int ROWS_> struct Transposed {
    using T = T_;
    using KV = T_;
    static constexpr int ROWS = ROWS_, N = ROWS / 8, ENTRIES = 2 * N;
    static constexpr int PITCH = Padded<DIM * 2>::PITCH;
    static constexpr int SCORES = N, SUMS = DIM / 16 * N;
    static constexpr u32 LANES = 28;
    static_assert(ROWS % 8 == 0);

    u32 q[HELD<DIM> ? DIM / 16 : 1][N][2], queries;
    f32 s[SCORES][4], o[SUMS][4];

    __device__ __forceinline__ f32& score(int n, int e) { return s[n][e]; }
    __device__ __forceinline__ f32& value(int n, int e) { return o[n][e]; }
    __device__ __forceinline__ f32 value(int n, int e) const { return o[n][e]; }
    __device__ __forceinline__ void clear() { memset(o, 0, sizeof(o)); }

    static __device__ __forceinline__ int entry(int n, int e) { return n % N * 2 + e % 2; }
    static __device__ __forceinline__ int row(int entry) {
        return entry / 2 * 8 + warp::lane() % 4 * 2 + entry % 2;
    }
    static __device__ __forceinline__ int key(int, int e) { return warp::lane() / 4 + e / 2 * 8; }
    static __device__ __forceinline__ int dim(int n, int e) { return n / N * 16 + key(n, e); }
    __device__ __forceinline__ void meet(f32 (&)[ENTRIES]) const {}
    __device__ __forceinline__ bool any(bool mine) const { return __any_sync(ALL_LANES, mine); }

    __device__ __forceinline__ void load_queries(const u8* rows) {
        queries = static_cast<u32>(__cvta_generic_to_shared(rows));
        if constexpr (HELD<DIM>)
#pragma unroll
            for (int k = 0; k < DIM / 16; k++) load_query(q[k], k);
    }
    __device__ __forceinline__ void load_query(u32 (&b)[N][2], int k) const {
        const int lane = warp::lane();
#pragma unroll
        for (int n = 0; n < N; n++) {
            u32 tile[4];  // two matrices, twice: there are no more than 8 rows
            mma::load_matrices<false>(tile, queries + (n * 8 + lane % 8) * PITCH + k * 32 +
                                                lane / 8 % 2 * 16);
            b[n][0] = tile[0], b[n][1] = tile[1];
        }
    }
    __device__ __forceinline__ void multiply_keys(u32 keys) {
        memset(s, 0, sizeof(s));
#pragma unroll
        for (int k = 0; k < DIM / 16; k++) {
            u32 a[4];
            mma::load_matrices<false>(a, matrix_row<PITCH, true>(keys + k * 32));
            u32(&b)[N][2] = q[HELD<DIM> ? k : 0];
            if constexpr (!HELD<DIM>) load_query(b, k);
#pragma unroll
            for (int n = 0; n < N; n++) mma::m16n8k16<T>(s[n], a, b[n][0], b[n][1]);
        }
    }
    __device__ __forceinline__ void add_values(u32 values) {
        u32 p[N][2];
#pragma unroll
        for (int n = 0; n < N; n++) {
            p[n][0] = movmatrix::transpose(pack_pair(T{}, s[n][0], s[n][1]));
            p[n][1] = movmatrix::transpose(pack_pair(T{}, s[n][2], s[n][3]));
        }
#pragma unroll
        for (int m = 0; m < DIM / 16; m++) {
            u32 a[4];  // V^T: dims down, keys along, from rows that are keys
            mma::load_matrices<true>(a, matrix_row<PITCH, false>(values + m * 32));
#pragma unroll
            for (int n = 0; n < N; n++) mma::m16n8k16<T>(o[m * N + n], a, p[n][0], p[n][1]);
        }
    }
};

}  // namespace decode
