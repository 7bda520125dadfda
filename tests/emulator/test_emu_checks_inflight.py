"""Reading shared memory that an asynchronous copy is still writing, under every schedule.

The report must name the copy, also where the bytes are still undefined.
"""

from __future__ import annotations

import pytest
from twins import reported, silent

from gpukit.emulator.errors import AsyncHazardError, UninitializedReadError

COPY = r"""
__device__ void copy(float* to, const float* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;"
               :: "r"(smem(to)), "l"(from) : "memory"); }
__device__ void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> __device__ void wait_group() {
  asm volatile("cp.async.wait_group %0;" :: "n"(N) : "memory"); }
__device__ void wait_all() { asm volatile("cp.async.wait_all;" ::: "memory"); }
__device__ void copies_arrive(u64* b) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" :: "r"(smem(b)) : "memory"); }
"""


def kernel(body, dims=""):
    return (
        COPY
        + f"""
extern "C" __global__ void {dims} k(const float* x, float* y) {{
  __shared__ alignas(128) float s[512]; __shared__ alignas(8) u64 full;
  int t = threadIdx.x;
  {body}
  wait_all();
}}"""
    )


def twins(template, good, bad, grid=1, threads=64):
    for text in good:
        silent(template.replace("HERE", text), grid, threads)
    for text in bad:
        reported(template.replace("HERE", text), grid, threads, AsyncHazardError,
                 r"cp_async of warp \d of CTA .* may still write; wait for it first")  # fmt: skip


@pytest.mark.parametrize("read", [
    "y[t] = s[t];",
    "y[t] = atomicAdd(s + t, 1.f);",
    "int v; asm volatile(\"ld.volatile.shared.u32 %0, [%1];\" : \"=r\"(v) : \"r\"(smem(s + t)));"
    " y[t] = v;",
    "if (t < 32) { u32 v; asm volatile(\"ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];\""
    " : \"=r\"(v) : \"r\"(smem(s + t % 8 * 4))); y[t] = v; }",
])  # fmt: skip
def test_missing_wait_group(read):
    template = kernel("copy(s + t, x + t); commit(); HERE " + read)
    twins(template, ["wait_group<0>();", "wait_all();"], ["", "wait_group<1>();"])


def test_a_barrier_alone_does_not_wait():
    template = kernel("copy(s + t, x + t); commit(); HERE y[t] = s[63 - t];")
    twins(template, ["wait_group<0>(); __syncthreads();"],
          ["__syncthreads();", "__syncthreads(); wait_group<0>();"])  # fmt: skip


def test_ring_waits_for_one_group_too_few():
    """Two copies ahead: the oldest of three groups must be done."""
    template = kernel("""
  for (int i = 0; i < 2; i++) { copy(s + i * 64 + t, x + i * 64 + t); commit(); }
  float sum = 0;
  for (int i = 0; i < 5; i++) {
    if (i < 3) copy(s + (i + 2) % 3 * 64 + t, x + (i + 2) * 64 + t);
    commit();
    HERE __syncthreads();
    sum += s[i % 3 * 64 + 63 - t];
    __syncthreads();
  }
  y[t] = sum;""")
    twins(template, ["wait_group<2>();", "wait_group<0>();"], ["wait_group<3>();", ""])


def test_missing_mbarrier_arrive():
    """An ordinary arrival says nothing about the copies; nor does one that comes before them."""
    template = kernel("""
  if (t == 0) { init(&full, 64); fence_init(); } __syncthreads();
  HERE
  wait(&full, 0); y[t] = s[63 - t];""")
    load = "copy(s + t, x + t);"
    twins(template, [load + "copies_arrive(&full);"],
          [load + "arrive(&full);", "copies_arrive(&full);" + load])  # fmt: skip


def test_a_peer_reads_too_early():
    template = kernel("""
  copy(s + t, x + blockIdx.x * 64 + t); commit(); HERE
  float v; u32 a = remote(s + t, cluster_rank() ^ 1);
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(v) : "r"(a) : "memory");
  y[blockIdx.x * 64 + t] = v; cluster_sync();""", "__cluster_dims__(2, 1, 1)")  # fmt: skip
    twins(template, ["wait_group<0>(); cluster_sync();"], ["cluster_sync();"], grid=2)


def test_bytes_that_nobody_writes_stay_uninitialized_reads():
    reported(kernel("copy(s + t, x + t); commit(); wait_group<0>(); y[t] = s[64 + t];"), 1, 64,
             UninitializedReadError)  # fmt: skip
