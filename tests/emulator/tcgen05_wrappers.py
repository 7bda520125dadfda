"""Thin CUDA wrappers of the tcgen05 instructions around Tensor Memory; replace GROUP by 1 or 2."""

from __future__ import annotations

from async_kernels import WRAPPERS

TENSOR = r"""
template <int N> __device__ inline void alloc(u32* slot) {
  asm volatile("tcgen05.alloc.cta_group::GROUP.sync.aligned.shared::cta.b32 [%0], %1;"
               :: "r"(smem(slot)), "n"(N) : "memory"); }
template <int N> __device__ inline void dealloc(u32 at) {
  asm volatile("tcgen05.dealloc.cta_group::GROUP.sync.aligned.b32 %0, %1;"
               :: "r"(at), "n"(N) : "memory"); }
__device__ inline void relinquish() {
  asm volatile("tcgen05.relinquish_alloc_permit.cta_group::GROUP.sync.aligned;" ::: "memory"); }
__device__ inline void before() {
  asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory"); }
__device__ inline void after() {
  asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory"); }
__device__ inline void wait_ld() { asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory"); }
__device__ inline void wait_st() { asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory"); }
__device__ inline void ld(u32 at, float* v) {
  asm volatile("tcgen05.ld.sync.aligned.32x32b.x4.b32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v[0]), "=f"(v[1]), "=f"(v[2]), "=f"(v[3]) : "r"(at) : "memory"); }
__device__ inline void st(u32 at, const float* v) {
  asm volatile("tcgen05.st.sync.aligned.32x32b.x4.b32 [%0], {%1, %2, %3, %4};"
               :: "r"(at), "f"(v[0]), "f"(v[1]), "f"(v[2]), "f"(v[3]) : "memory"); }
__device__ inline void ld16(u32 at, float* v) {
  asm volatile("tcgen05.ld.sync.aligned.32x32b.x16.b32 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9,"
               " %10, %11, %12, %13, %14, %15}, [%16];"
               : "=f"(v[0]), "=f"(v[1]), "=f"(v[2]), "=f"(v[3]), "=f"(v[4]), "=f"(v[5]),
                 "=f"(v[6]), "=f"(v[7]), "=f"(v[8]), "=f"(v[9]), "=f"(v[10]), "=f"(v[11]),
                 "=f"(v[12]), "=f"(v[13]), "=f"(v[14]), "=f"(v[15]) : "r"(at) : "memory"); }
__device__ inline void commit(u64* b) {
  asm volatile("tcgen05.commit.cta_group::GROUP.mbarrier::arrive::one.shared::cluster.b64 [%0];"
               :: "r"(smem(b)) : "memory"); }
__device__ inline void commit_to(u64* b, u16 ctas) {
  asm volatile("tcgen05.commit.cta_group::GROUP.mbarrier::arrive::one.shared::cluster"
               ".multicast::cluster.b64 [%0], %1;" :: "r"(smem(b)), "h"(ctas) : "memory"); }
// bf16, both along K with 128B swizzle, f32 sums
__device__ inline u64 desc(const void* p) {
  return (u64)(smem(p) & 0x3FFFF) >> 4 | 1ull << 16 | 64ull << 32 | 1ull << 46 | 2ull << 61; }
template <int M, int N> __device__ inline void mma(u32 d, u64 a, u64 b, int add) {
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %4, 0;\n"
               "tcgen05.mma.cta_group::GROUP.kind::f16 [%0], %1, %2, %3, p; }"
               :: "r"(d), "l"(a), "l"(b),
                  "n"(1 << 4 | 1 << 7 | 1 << 10 | N / 8 << 17 | M / 16 << 24), "r"(add)
               : "memory"); }
"""


def tensor_source(text, group=1):
    """CUDA source with all wrappers."""
    return (WRAPPERS + TENSOR + text).replace("GROUP", str(group))
