"""CUDA sources and specs of small TMA copies, and the source folder that stands in for cuda_src."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpukit import sources
from gpukit.kernels.spec import KernelSpec, Param

COMMON = r"""
using u32 = unsigned; using u64 = unsigned long long;
struct alignas(64) TensorMap { char opaque[128]; };
__device__ inline u32 address(const void* p) { return (u32)__cvta_generic_to_shared(p); }
__device__ inline void load(void* to, const TensorMap& map, int x, int y, u64* barrier) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
               " [%0], [%1, {%2, %3}], [%4];"
               :: "r"(address(to)), "l"(&map), "r"(x), "r"(y), "r"(address(barrier)) : "memory"); }
__device__ inline void store(const TensorMap& map, int x, int y, const void* from) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];"
               :: "l"(&map), "r"(x), "r"(y), "r"(address(from)) : "memory");
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }
__device__ inline void init(u64* barrier) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(address(barrier)) : "memory");
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
__device__ inline void expect(u64* barrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
               :: "r"(address(barrier)), "r"(bytes) : "memory"); }
__device__ inline void wait(u64* barrier) {
  asm volatile("{ .reg .pred over; again: mbarrier.try_wait.parity.shared::cta.b64 over, [%0], 0;"
               " @!over bra again; }" :: "r"(address(barrier)) : "memory"); }
"""

# One CTA per 64 x 16 box of bf16. Scalars between the maps show that every slot is found; the
# third parameter names an array that the first one maps too.
COPY = COMMON + r"""
extern "C" __global__ void copy(const __grid_constant__ TensorMap from, int columns,
                                const unsigned short* head, const __grid_constant__ TensorMap to,
                                unsigned short* first) {
  __shared__ alignas(1024) unsigned short box[16 * 64];
  __shared__ u64 barrier;
  if (threadIdx.x != 0) return;
  int x = blockIdx.x % columns * 64, y = blockIdx.x / columns * 16;
  init(&barrier);
  expect(&barrier, sizeof(box));
  load(box, from, x, y, &barrier);
  wait(&barrier);
  store(to, x, y, box);
  if (blockIdx.x == gridDim.x - 1) first[0] = head[0];
}
"""

# As above in clusters of two; no tensor maps.
CLUSTER = r"""
extern "C" __global__ void __cluster_dims__(2, 1, 1) rank(int* out) {
  unsigned r; asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
  if (threadIdx.x == 0) out[blockIdx.x] = r;
}
"""

VECTOR = r"""
extern "C" __global__ void vector(const int4* x, int* out) {
  int4 v = x[0];
  out[0] = v.x + v.y + v.z + v.w;
}
"""


def _params(*pairs: tuple[str, str]) -> tuple[Param, ...]:
    return tuple(Param(name, kind, "") for name, kind in pairs)


def _spec(entry: str, params: tuple[Param, ...], arch: str = "sm_90") -> KernelSpec:
    return KernelSpec(name=f"test.{entry}", source=f"{entry}.cu", entry=entry, summary="",
                      archs=(arch,), tunables=(), params=params)


COPY_SPEC = _spec("copy", _params(("from", "tensor_map"), ("columns", "i32"), ("head", "pointer"),
                                  ("to", "tensor_map"), ("first", "pointer")))
CLUSTER_SPEC = _spec("rank", _params(("out", "pointer")))
VECTOR_SPEC = _spec("vector", _params(("x", "pointer"), ("out", "pointer")))


def write_all(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the sources into a folder and make it the source tree."""
    for name, text in (("copy", COPY), ("rank", CLUSTER), ("vector", VECTOR)):
        (folder / f"{name}.cu").write_text(text)
    monkeypatch.setattr(sources, "root", lambda: folder)
