"""Thin CUDA wrappers of the asynchronous instructions, shared by the tests' kernels."""

from __future__ import annotations

WRAPPERS = r"""
typedef unsigned u32; typedef unsigned long long u64; typedef unsigned short u16;
__device__ inline u32 smem(const void* p) { return (u32)__cvta_generic_to_shared(p); }
__device__ inline void init(u64* b, u32 n) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(smem(b)), "r"(n) : "memory"); }
__device__ inline void arrive(u64* b) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(smem(b)) : "memory"); }
__device__ inline void expect(u64* b, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
               :: "r"(smem(b)), "r"(bytes) : "memory"); }
__device__ inline void wait(u64* b, u32 parity) {
  asm volatile("{ .reg .pred p; again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;"
               " @p bra done; bra again; done: }" :: "r"(smem(b)), "r"(parity) : "memory"); }
__device__ inline void bulk_load(void* to, const void* from, u32 bytes, u64* b) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
               " [%0], [%1], %2, [%3];"
               :: "r"(smem(to)), "l"(from), "r"(bytes), "r"(smem(b)) : "memory"); }
__device__ inline void bulk_store(void* to, const void* from, u32 bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
               :: "l"(to), "r"(smem(from)), "r"(bytes) : "memory"); }
__device__ inline void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
template <int N> __device__ inline void bulk_wait() {
  asm volatile("cp.async.bulk.wait_group %0;" :: "n"(N) : "memory"); }
template <int N> __device__ inline void bulk_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" :: "n"(N) : "memory"); }
__device__ inline void fence_async() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
__device__ inline void fence_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
__device__ inline void cluster_sync() {
  asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory"); }
__device__ inline u32 cluster_rank() {
  u32 r; asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r)); return r; }
__device__ inline u32 remote(const void* p, u32 rank) {
  u32 a; asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(a) : "r"(smem(p)), "r"(rank));
  return a; }
"""

TMA = r"""
struct alignas(64) TensorMap { char opaque[128]; };
__device__ inline u64 generic(const TensorMap& map) { return (u64)&map; }
__device__ inline void tma_load(void* to, const TensorMap& map, int x, int y, u64* b) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
               " [%0], [%1, {%2, %3}], [%4];" :: "r"(smem(to)), "l"(generic(map)), "r"(x), "r"(y),
               "r"(smem(b)) : "memory"); }
__device__ inline void tma_store(const TensorMap& map, int x, int y, const void* from) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];"
               :: "l"(generic(map)), "r"(x), "r"(y), "r"(smem(from)) : "memory"); }
"""

_ACCUMULATORS = ",".join(f"%{i}" for i in range(32))
_OUTPUTS = ",".join(f'"+f"(d[{i}])' for i in range(32))
#: Tiles of 64 rows of 128 bytes, 128B swizzle; replace SBO by 64, the stride of 8 rows / 16.
WGMMA = f"""
__device__ u64 desc(const void* p) {{
  return (u64)(smem(p) & 0x3FFFF) >> 4 | 1ull << 16 | (u64)SBO << 32 | 1ull << 62;
}}
__device__ __forceinline__ void mma(float (&d)[32], u64 a, u64 b, int add) {{
  asm volatile("{{ .reg .pred p; setp.ne.b32 p, %34, 0;\\n"
    "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {{{_ACCUMULATORS}}}, "
    "%32, %33, p, 1, 1, 0, 0; }}" : {_OUTPUTS} : "l"(a), "l"(b), "r"(add));
}}
"""
