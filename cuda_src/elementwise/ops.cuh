// The functors that unary.cu and binary.cu are instantiated with.
//
// Each op maps elements of T through f32 with one rounding at the end; `a` is the scalar operand of
// the ops that have one.
#pragma once

#include "common/math.cuh"
#include "common/vec.cuh"

namespace ops {

// Moves bits: the only op that is exact for every type and never flushes subnormals.
struct Copy {
    template <class T> static __device__ __forceinline__ T apply(T x, f32) { return x; }
};

// One function, in the grade that T deserves (see common/math.cuh).
#define GPUKIT_UNARY(Name, function)                                                       \
    struct Name {                                                                          \
        template <class T> static __device__ __forceinline__ T apply(T x, f32) {           \
            const f32 v = to_f32(x);                                                       \
            return from_f32<T>(sizeof(T) == 4 ? full::function(v) : narrow::function(v));  \
        }                                                                                  \
    }

GPUKIT_UNARY(Sqrt, sqrt);
GPUKIT_UNARY(Rsqrt, rsqrt);
GPUKIT_UNARY(Log, log);
GPUKIT_UNARY(Sin, sin);  // valid for narrow types below narrow::SIN_LIMIT only: see map()
GPUKIT_UNARY(Tanh, tanh);
GPUKIT_UNARY(Exp, exp);
GPUKIT_UNARY(Erf, erf);
#undef GPUKIT_UNARY

struct AddConst {
    template <class T> static __device__ __forceinline__ T apply(T x, f32 a) {
        return from_f32<T>(to_f32(x) + a);
    }
};

struct Scale {
    template <class T> static __device__ __forceinline__ T apply(T x, f32 a) {
        return from_f32<T>(to_f32(x) * a);
    }
};

struct Add {
    template <class T> static __device__ __forceinline__ T apply(T x, T y, f32) {
        return from_f32<T>(to_f32(x) + to_f32(y));
    }
};

// a x + y in one fused multiply-add.
struct Axpy {
    template <class T> static __device__ __forceinline__ T apply(T x, T y, f32 a) {
        return from_f32<T>(fmaf(a, to_f32(x), to_f32(y)));
    }
};

// Applies Op to every lane in place.
template <class Op, class T, int N>
__device__ __forceinline__ void map(Op, Vec<T, N>& v, f32 a) {
#pragma unroll
    for (int i = 0; i < N; ++i) v.lane[i] = Op::apply(v.lane[i], a);
}

template <class Op, class T, int N>
__device__ __forceinline__ void map(Op, Vec<T, N>& v, const Vec<T, N>& w, f32 a) {
#pragma unroll
    for (int i = 0; i < N; ++i) v.lane[i] = Op::apply(v.lane[i], w.lane[i], a);
}

// The narrow sine asks once per vector, not once per element, whether anything is too large for the
// fast reduction: eight branches per vector cost 8 % of the bandwidth, one costs nothing.
template <class T, int N>
__device__ __forceinline__ void map(Sin, Vec<T, N>& v, f32) {
    const Vec<T, N> x = v;
    bool wild = false;
#pragma unroll
    for (int i = 0; i < N; ++i) {
        wild |= sizeof(T) == 2 && !(fabsf(to_f32(x.lane[i])) < narrow::SIN_LIMIT);
        v.lane[i] = Sin::apply(x.lane[i], 0.0f);
    }
    if (wild) {
#pragma unroll
        for (int i = 0; i < N; ++i) v.lane[i] = from_f32<T>(narrow::sin_wild(to_f32(x.lane[i])));
    }
}

}  // namespace ops
