// What the two matrix-vector kernels share: unpacking, sums over lanes, and x in shared memory.
#pragma once

#include "common/cp_async.cuh"
#include "common/once.cuh"

namespace gemv {

// N elements of T as the machine word that one instruction loads. They stay packed until the moment
// they are used: unpacking is an instruction that waits for the load.
template <class T, int N> using Packed = typename Word<N * sizeof(T)>::type;

__device__ __forceinline__ void split(u32 pair, f32 (&out)[2], bf16) {
    out[0] = __uint_as_float(pair << 16), out[1] = __uint_as_float(pair & 0xffff0000u);
}
__device__ __forceinline__ void split(u32 pair, f32 (&out)[2], f16) {
    const float2 both = __half22float2(reinterpret_cast<const __half2&>(pair));
    out[0] = both.x, out[1] = both.y;
}

// The elements of a packed word as f32.
template <class T, int N>
__device__ __forceinline__ void widen(const Packed<T, N>& word, f32 (&out)[N]) {
    if constexpr (sizeof(T) == 4 || N == 1) {
#pragma unroll
        for (int i = 0; i < N; ++i) out[i] = to_f32(reinterpret_cast<const T*>(&word)[i]);
    } else {
#pragma unroll
        for (int i = 0; i < N; i += 2)
            split(reinterpret_cast<const u32*>(&word)[i / 2],
                  reinterpret_cast<f32(&)[2]>(out[i]), T{});
    }
}

// The sums of N values over the lanes of a warp that differ in the bits FIRST, FIRST / 2 ... LAST of
// their number. While the count is even, a step halves it: a lane keeps the sums of one half and
// gives away those of the other, which takes half the shuffles of summing everything everywhere.
//
// run() leaves the sums of values [result, result + KEPT) in v[0 .. KEPT). Lanes that differ only in
// the bits COPIES hold the same ones.
template <int N, int FIRST, int LAST, bool STEPS = (FIRST >= LAST)> struct Fold {
    static constexpr bool HALVE = N % 2 == 0;
    static constexpr int LEFT = HALVE ? N / 2 : N;
    using Next = Fold<LEFT, FIRST / 2, LAST>;
    static constexpr int KEPT = Next::KEPT, COPIES = (HALVE ? 0 : FIRST) | Next::COPIES;

    static __device__ __forceinline__ int run(f32* v, int lane) {
        const bool upper = HALVE && lane & FIRST;
#pragma unroll
        for (int i = 0; i < LEFT; ++i) {
            const f32 other = v[HALVE ? i + LEFT : i];
            const f32 keep = upper ? other : v[i], give = upper ? v[i] : other;
            v[i] = keep + __shfl_xor_sync(0xffffffff, give, FIRST);
        }
        return (upper ? LEFT : 0) + Next::run(v, lane);
    }
};

template <int N, int FIRST, int LAST> struct Fold<N, FIRST, LAST, false> {
    static constexpr int KEPT = N, COPIES = 0;
    static __device__ __forceinline__ int run(f32*, int) { return 0; }
};

__device__ __forceinline__ i32 round_up(i32 x, i32 multiple) {
    return (x + multiple - 1) / multiple * multiple;
}

// Starts to copy `length` elements of each of M rows of x to rows of PITCH elements in shared memory,
// with zeros after them up to `padded`: weights beyond the end are zeros too, and add nothing.
// Complete after staged(). x is aligned to VEC elements.
template <int M, int VEC, int PITCH, class T>
__device__ __forceinline__ void stage(T* shared, const T* x, i64 row, i32 length, i32 padded) {
    for (i32 k = threadIdx.x * VEC; k < padded; k += blockDim.x * VEC) {
        const i32 valid = max(0, min(VEC, length - k)) * i32(sizeof(T));
#pragma unroll
        for (int m = 0; m < M; ++m) {
            const T* from = valid > 0 ? x + m * row + k : x;
            T* to = shared + m * PITCH + k;
            if constexpr (VEC * sizeof(T) >= 4) cp_async::copy<VEC * sizeof(T)>(to, from, valid);
            else *to = valid > 0 ? *from : T(0.0f);
        }
    }
}

// Waits for stage() in the whole CTA. The warp barrier keeps loads issued in between in front of the
// wait: the assembler would move some of them behind it.
__device__ __forceinline__ void staged() {
    __syncwarp();
    cp_async::wait_all();
    __syncthreads();
}

}  // namespace gemv
