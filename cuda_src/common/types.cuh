// Short names for the scalar types and exact conversions to and from f32.
//
// All arithmetic in gpukit's elementwise and naive kernels happens in f32 with one rounding at the
// end, so these two functions are all that a kernel needs to be generic over f32, f16 and bf16.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using i32 = int;
using i64 = long long;
using f32 = float;
using f16 = __half;
using bf16 = __nv_bfloat16;

__device__ __forceinline__ f32 to_f32(f32 x) { return x; }
__device__ __forceinline__ f32 to_f32(f16 x) { return __half2float(x); }
__device__ __forceinline__ f32 to_f32(bf16 x) { return __bfloat162float(x); }

template <class T> __device__ __forceinline__ T from_f32(f32 x);
template <> __device__ __forceinline__ f32 from_f32<f32>(f32 x) { return x; }
template <> __device__ __forceinline__ f16 from_f32<f16>(f32 x) { return __float2half_rn(x); }
template <> __device__ __forceinline__ bf16 from_f32<bf16>(f32 x) { return __float2bfloat16_rn(x); }
