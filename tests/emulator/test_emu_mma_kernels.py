"""Whole matrix products in CUDA C++: ldmatrix with mma.sync, and a pipelined wgmma kernel."""

from __future__ import annotations

import time

import ml_dtypes
import numpy as np
import pytest

from gpukit import emulator
from gpukit.emulator.mma.register_use import WgmmaRegisterError
from gpukit.emulator.policies import POLICIES

BF16 = np.dtype(ml_dtypes.bfloat16)

MMA_SYNC = r"""
#include <cuda_bf16.h>
__device__ unsigned swz(unsigned row, unsigned chunk) {
  return row * 64 + ((chunk ^ (row >> 1 & 3)) * 16);
}

// C[M,N] = A[M,K] * B[N,K]^T; a CTA of 4 warps makes 64 x 64, a warp 32 x 32, K in steps of 32.
extern "C" __global__ void
k(const __nv_bfloat16* A, const __nv_bfloat16* B, float* C, int N, int K) {
  __shared__ __align__(128) unsigned char sa[64 * 64], sb[64 * 64];
  const unsigned t = threadIdx.x, lane = t & 31, wm = t >> 6, wn = t >> 5 & 1;
  const int m0 = blockIdx.y * 64, n0 = blockIdx.x * 64;
  const unsigned a0 = __cvta_generic_to_shared(sa), b0 = __cvta_generic_to_shared(sb);
  float acc[2][4][4] = {};
  for (int k0 = 0; k0 < K; k0 += 32) {
    for (unsigned i = t; i < 256; i += 128) {
      unsigned row = i >> 2, chunk = i & 3;
      *(uint4*)(sa + swz(row, chunk)) = *(const uint4*)(A + (m0 + row) * K + k0 + chunk * 8);
      *(uint4*)(sb + swz(row, chunk)) = *(const uint4*)(B + (n0 + row) * K + k0 + chunk * 8);
    }
    __syncthreads();
    for (unsigned kk = 0; kk < 2; kk++) {
      unsigned a[2][4], b[4][2];
      for (int i = 0; i < 2; i++)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
          : "=r"(a[i][0]), "=r"(a[i][1]), "=r"(a[i][2]), "=r"(a[i][3])
          : "r"(a0 + swz(wm * 32 + i * 16 + (lane & 15), kk * 2 + (lane >> 4))));
      for (int j = 0; j < 2; j++)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
          : "=r"(b[2*j][0]), "=r"(b[2*j][1]), "=r"(b[2*j+1][0]), "=r"(b[2*j+1][1])
          : "r"(b0 + swz(wn * 32 + j * 16 + (lane & 7) + (lane >> 4 << 3),
                         kk * 2 + (lane >> 3 & 1))));
      for (int i = 0; i < 2; i++) for (int j = 0; j < 4; j++)
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, "
          "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
          : "+f"(acc[i][j][0]), "+f"(acc[i][j][1]), "+f"(acc[i][j][2]), "+f"(acc[i][j][3])
          : "r"(a[i][0]), "r"(a[i][1]), "r"(a[i][2]), "r"(a[i][3]), "r"(b[j][0]), "r"(b[j][1]));
    }
    __syncthreads();
  }
  for (int i = 0; i < 2; i++) for (int j = 0; j < 4; j++) for (int e = 0; e < 4; e++)
    C[(size_t)(m0 + wm * 32 + i * 16 + lane / 4 + e / 2 * 8) * N
      + n0 + wn * 32 + j * 8 + lane % 4 * 2 + e % 2] = acc[i][j][e];
}"""


@pytest.mark.parametrize("policy", POLICIES)
def test_mma_sync_matmul(rng, policy):
    m, n, k = 128, 64, 96
    a, b = (rng.standard_normal((r, k)).astype(BF16) for r in (m, n))
    c = np.zeros((m, n), np.float32)
    counters = emulator.run(MMA_SYNC, (n // 64, m // 64), 128, [a, b, c, np.int32(n), np.int32(k)],
                            arch="sm_80", policy=policy).counters  # fmt: skip
    exact = a.astype(float) @ b.astype(float).T
    assert np.abs(c - exact).max() < k * 2**-24 * np.abs(exact).max() * 4
    assert counters.extra["flops bf16"] == 2 * m * n * k
    assert counters.extra["mma.sync"] == m * n * k // (16 * 8 * 16)
    assert counters.shared_loads.conflicts == 0


WGMMA = r"""
#include <cuda_bf16.h>
typedef unsigned long long u64;
__device__ u64 desc(const void* p) {  // K-major, 128B swizzle: LBO unused, SBO 1024
  return ((u64)__cvta_generic_to_shared(p) & 0x3FFFF) >> 4 | 1ull << 16 | 64ull << 32 | 1ull << 62;
}
__device__ __forceinline__ void mma(float (&d)[32], u64 a, u64 b, int add) {
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %34, 0;\n"
    "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,"
    "%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, "
    "%32, %33, p, 1, 1, 0, 0; }"
    : "+f"(d[0]),"+f"(d[1]),"+f"(d[2]),"+f"(d[3]),"+f"(d[4]),"+f"(d[5]),"+f"(d[6]),"+f"(d[7]),
      "+f"(d[8]),"+f"(d[9]),"+f"(d[10]),"+f"(d[11]),"+f"(d[12]),"+f"(d[13]),"+f"(d[14]),"+f"(d[15]),
      "+f"(d[16]),"+f"(d[17]),"+f"(d[18]),"+f"(d[19]),"+f"(d[20]),"+f"(d[21]),"+f"(d[22]),"+f"(d[23]),
      "+f"(d[24]),"+f"(d[25]),"+f"(d[26]),"+f"(d[27]),"+f"(d[28]),"+f"(d[29]),"+f"(d[30]),"+f"(d[31])
    : "l"(a), "l"(b), "r"(add));
}
__device__ void load(unsigned char* to, const __nv_bfloat16* from, int K) {  // 64 rows of 64
  for (unsigned i = threadIdx.x; i < 512; i += 128) {
    unsigned row = i >> 3, chunk = i & 7;
    uint4 value = *(const uint4*)(from + row * K + chunk * 8);
    *(uint4*)(to + row * 128 + ((chunk ^ row & 7) << 4)) = value;
  }
}
// Two stages, one wgmma group in flight while the next stage is filled.
extern "C" __global__ void __launch_bounds__(128, 1)
k(const __nv_bfloat16* A, const __nv_bfloat16* B, float* C, int N, int K) {
  extern __shared__ __align__(1024) unsigned char s[];
  float d[32];
#ifdef ZERO
  for (int i = 0; i < 32; i++) d[i] = 0;
#endif
  A += blockIdx.y * 64 * K, B += blockIdx.x * 64 * K;
  for (int k0 = 0, stage = 0; k0 < K; k0 += 64, stage ^= 1) {
    unsigned char *sa = s + stage * 16384, *sb = sa + 8192;
    load(sa, A + k0, K), load(sb, B + k0, K);
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    FENCE
    for (int j = 0; j < 4; j++)
#ifdef ZERO
      mma(d, desc(sa) + 2 * j, desc(sb) + 2 * j, 1);
#else
      mma(d, desc(sa) + 2 * j, desc(sb) + 2 * j, (k0 | j) != 0);
#endif
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
    __syncthreads();
  }
  WAIT
  unsigned t = threadIdx.x;
  float* out = C + (size_t)(blockIdx.y * 64 + t / 32 * 16 + t % 32 / 4) * N;
  out += blockIdx.x * 64 + t % 4 * 2;
  for (int i = 0; i < 32; i++) out[(i >> 1 & 1) * 8 * N + (i >> 2) * 8 + (i & 1)] = d[i];
}"""
RIGHT = {
    "FENCE": 'asm volatile("wgmma.fence.sync.aligned;" ::: "memory");',
    "WAIT": 'asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");',
}


def wgmma_matmul(a, b, **options):
    (m, k), n = a.shape, b.shape[0]
    defines = {**RIGHT, **options.pop("defines", {})}
    c = np.zeros((m, n), np.float32)
    result = emulator.run(
        WGMMA, (n // 64, m // 64), 128, [a, b, c, np.int32(n), np.int32(k)], shared_bytes=32768,
        options=[f"-D{name}={value}" for name, value in defines.items()], **options,
    )  # fmt: skip
    return c, result.counters


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("defines", [{}, {"ZERO": "1"}])
def test_wgmma_matmul(rng, policy, defines):
    a, b = (rng.integers(-4, 5, (r, 320)).astype(BF16) for r in (128, 192))
    c, counters = wgmma_matmul(a, b, policy=policy, defines=defines)
    assert (c == a.astype(float) @ b.astype(float).T).all()
    assert counters.extra["wgmma"] == 2 * 3 * 320 // 16
    assert counters.extra["flops bf16"] == 2 * 128 * 192 * 320
    reads = 2 * 3 * 320 // 16 * (64 + 64) * 32 // 128
    assert counters.extra["wgmma shared wavefronts"] == reads
    assert counters.extra["wgmma shared wavefronts ideal"] == reads


@pytest.mark.parametrize("policy", POLICIES)
def test_planted_bugs_are_reported(rng, policy):
    a, b = (rng.standard_normal((64, 128)).astype(BF16) for _ in range(2))
    with pytest.raises(WgmmaRegisterError, match="first wgmma of a warp needs"):
        wgmma_matmul(a, b, policy=policy, defines={"FENCE": ""})
    with pytest.raises(WgmmaRegisterError, match=r"kernel\.cu:\d+ .*is touched while a wgmma"):
        wgmma_matmul(a, b, policy=policy, defines={"WAIT": ""})


def test_speed(rng):
    """512 x 512 x 256 in well under the second that the design allows."""
    a, b = (rng.standard_normal((512, 256)).astype(BF16) for _ in range(2))
    wgmma_matmul(a[:64], b[:64])  # compile and decode
    start = time.perf_counter()
    c, _ = wgmma_matmul(a, b)
    elapsed = time.perf_counter() - start
    exact = a.astype(float) @ b.astype(float).T
    assert np.abs(c - exact).max() < 256 * 2**-24 * np.abs(exact).max() * 4
    assert elapsed < 5  # typically 0.2 s; generous for a loaded machine
    print(f"512x512x256: {elapsed:.2f} s")
