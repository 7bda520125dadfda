"""Data races: each bad kernel trips exactly its check, its good twin passes, under every policy."""

from __future__ import annotations

import re

import numpy as np
import pytest

from gpukit import emulator
from gpukit.emulator.errors import DataRaceError, OutOfBoundsError, RemoteAccessError

POLICIES = ("random", "early", "late", "starved")
SCHEDULES = [(policy, seed) for policy in POLICIES for seed in range(2)]


def run(source, grid, block, *arrays, **options):
    emulator.run(source, grid, block, [a.copy() for a in arrays], **options)


def clean(source, grid, block, *arrays, **options):
    """Every schedule passes."""
    for policy, seed in SCHEDULES:
        run(source, grid, block, *arrays, policy=policy, seed=seed, **options)


def races(source, grid, block, *arrays, match=None, **options):
    """Every schedule reports; returns the last report."""
    for policy, seed in SCHEDULES:
        with pytest.raises(DataRaceError, match=match) as caught:
            run(source, grid, block, *arrays, policy=policy, seed=seed, **options)
        run(source, grid, block, *arrays, policy=policy, seed=seed, checks=False, **options)
    return caught.value


def kernel(body, params="int* x", before=""):
    return f'{before}\nextern "C" __global__ void k({params}) {{\n{body}\n}}'


X = np.zeros(4096, "i4")

# Shared memory and __syncthreads

NEIGHBOUR = """  __shared__ int s[128]; int i = threadIdx.x;
  s[i] = -1; __syncthreads();
  s[i] = i;
  {sync}
  x[blockIdx.x * 128 + i] = s[127 - i];"""


def test_read_after_write():
    clean(kernel(NEIGHBOUR.format(sync="__syncthreads();")), 4, 128, X)
    fault = races(kernel(NEIGHBOUR.format(sync="")), 4, 128, X, match="shared memory")
    text = str(fault)
    assert "s what warp" in text
    assert "kernel.cu:5" in text  # the store
    assert "kernel.cu:7" in text  # the load
    assert fault.address is not None
    assert "lane" in text
    assert "CTA (" in text


REUSE = """  __shared__ int s[128]; int i = threadIdx.x, sum = 0;
  for (int step = 0; step < 3; step++) {{
    s[i] = i + step;
    __syncthreads();
    sum += s[127 - i];
    {sync}
  }}
  x[i] = sum;"""


def test_write_after_read():
    clean(kernel(REUSE.format(sync="__syncthreads();")), 1, 128, X)
    races(kernel(REUSE.format(sync="")), 1, 128, X, match="on shared memory")


WINNER = """  __shared__ int s;
  if (threadIdx.x % 32 == 0) s = {value};
  __syncthreads();
  x[threadIdx.x] = s;"""


def test_write_after_write():
    races(kernel(WINNER.format(value="threadIdx.x")), 1, 64, X, match="writes what warp . .* wrote")
    one = WINNER.replace("threadIdx.x % 32 == 0", "threadIdx.x == 0")
    clean(kernel(one.format(value="threadIdx.x")), 1, 64, X)


def test_equal_values_race_too():
    races(kernel(WINNER.format(value="x[9]")), 1, 64, X, match="shared")


def test_only_one_late_reader_is_found():
    """Of eight readers one does not take part in the barrier that frees the buffer."""
    body = """  __shared__ int s[32]; int w = threadIdx.x / 32, l = threadIdx.x % 32, v = 0;
    if (w == 0) s[l] = l;
    __syncthreads();
    v = s[l];
    if (w != {odd}) asm volatile("barrier.sync 1, {count};" ::: "memory");
    if (w == 0) s[l] = -l;
    __syncthreads();
    x[threadIdx.x] = v + s[(l + 1) % 32];"""
    clean(kernel(body.format(odd=-1, count=256)), 1, 256, X)
    fault = races(kernel(body.format(odd=5, count=224)), 1, 256, X)
    assert "warp 5" in str(fault)


def test_neighbouring_bytes_do_not_race():
    body = """  __shared__ char s[256]; int i = threadIdx.x;
    s[i * 63 % 256] = i; __syncthreads(); x[i] = s[i];"""
    clean(kernel(body), 1, 256, X)
    half = """  __shared__ short s[70]; int w = threadIdx.x / 32, l = threadIdx.x % 32;
    s[w * 33 + l] = l; if (l == 0) s[w * 33 + 32] = {value};
    __syncthreads(); x[threadIdx.x] = s[threadIdx.x];"""
    clean(kernel(half.format(value=1)), 1, 64, X)
    races(kernel(half.format(value="1; s[33] = 2")), 1, 64, X)


def test_named_barriers_order_only_who_takes_part():
    body = """  __shared__ int s[128]; int w = threadIdx.x / 32, l = threadIdx.x % 32;
    s[threadIdx.x] = 0; __syncthreads(); s[threadIdx.x] = l;
    asm volatile("barrier.sync %0, 64;" :: "r"(1 + {pair}) : "memory");
    x[threadIdx.x] = s[threadIdx.x ^ 32];"""
    clean(kernel(body.format(pair="w / 2")), 1, 128, X)
    races(kernel(body.format(pair="w % 2")), 1, 128, X)


def test_producer_and_consumer_with_bar_arrive():
    body = """  __shared__ int s[32]; int w = threadIdx.x / 32, l = threadIdx.x % 32;
    for (int step = 0; step < 4; step++) {{
      if (w == 0) {{ {empty} s[l] = step; asm volatile("bar.arrive 2, 64;" ::: "memory"); }}
      else {{ asm volatile("bar.sync 2, 64;" ::: "memory"); x[l + 32 * step] = s[l]; {free} }}
    }}
    if (w == 0) asm volatile("bar.sync 1, 64;" ::: "memory");"""
    full = {
        "empty": 'if (step) asm volatile("bar.sync 1, 64;" ::: "memory");',
        "free": 'asm volatile("bar.arrive 1, 64;" ::: "memory");',
    }
    clean(kernel(body.format(**full)), 1, 64, X)
    late = body.replace("if (w == 0) asm", "if (w == 2) asm")
    for policy, seed in SCHEDULES[:4]:
        with pytest.raises(emulator.KernelFault):
            run(kernel(late.format(empty="", free="")), 1, 64, X, policy=policy, seed=seed)


def test_exited_warps_count_as_arrived():
    body = """  __shared__ int s[128]; s[threadIdx.x] = x[4000]; if (threadIdx.x >= 64) return;
    __syncthreads(); x[blockIdx.x * 64 + threadIdx.x] = s[threadIdx.x + 64];"""
    clean(kernel(body), 2, 128, X)


def test_exited_warps_do_not_count_where_a_barrier_names_its_threads():
    body = """  __shared__ int s[96]; int w = threadIdx.x / 32; s[threadIdx.x] = threadIdx.x;
    __syncthreads(); x[threadIdx.x] = s[READ]; if (w == 0) return;
    asm volatile("bar.sync 1, 64;" ::: "memory"); s[127 - threadIdx.x] = 1;"""
    clean(kernel(body.replace("READ", "threadIdx.x")), 1, 96, X)
    races(kernel(body.replace("READ", "(threadIdx.x + 32) % 96")), 1, 96, X)


# Global memory


def test_ctas_of_one_wave():
    body = "  x[{index}] = threadIdx.x;"
    clean(kernel(body.format(index="blockIdx.x * 64 + threadIdx.x")), 8, 64, X)
    overlapping = kernel(body.format(index="blockIdx.x * 63 + threadIdx.x"))
    races(overlapping, 8, 64, X, match="global memory")


def test_ctas_of_different_waves():
    """CTA 0 has ended when CTA 8 runs here; on a GPU nothing says so."""
    body = "  if (blockIdx.x % {n} == 0) x[threadIdx.x] = blockIdx.x;"
    clean(kernel(body.format(n=9)), 9, 256, X)
    fault = races(kernel(body.format(n=8)), 9, 256, X)
    assert "CTA (0, 0, 0)" in str(fault)
    assert "CTA (8, 0, 0)" in str(fault)
    body = """  int i = blockIdx.x * 256 + threadIdx.x;
    if (blockIdx.x < 9) x[i] = x[{index}] + 1;"""
    clean(kernel(body.format(index="i")), 9, 256, X)
    races(kernel(body.format(index="i < 2048 ? i + 256 : i")), 9, 256, X)


def test_syncthreads_orders_global_accesses_of_a_cta():
    body = """  int i = threadIdx.x, *p = x + blockIdx.x * 256;
    p[i] = i; {sync} int v = p[255 - i]; {sync} p[i] = v;"""
    clean(kernel(body.format(sync="__syncthreads();")), 3, 256, X)
    races(kernel(body.format(sync="")), 3, 256, X)


def test_atomics_do_not_race_but_plain_accesses_with_them_do():
    body = "  atomicAdd(&x[threadIdx.x % 16], 1); {more}"
    clean(kernel(body.format(more="")), 12, 256, X)
    clean(kernel(body.format(more="volatile int v = *(volatile int*)&x[3];")), 12, 256, X)
    races(kernel(body.format(more="x[100 + blockIdx.x] = x[3];")), 2, 32, X)
    races(kernel(body.format(more="if (blockIdx.x == 1) x[5] = 0;")), 2, 32, X)
    plain = "  if (blockIdx.x == 0) x[threadIdx.x] = 0; " + body
    races(kernel(plain.format(more="")), 2, 32, X)


REDUCTION = """
__device__ unsigned int count = 0;
__device__ int partial[64];
extern "C" __global__ void k(int* x) {{
  __shared__ bool last;
  __shared__ int s[256];
  s[threadIdx.x] = threadIdx.x + blockIdx.x;
  __syncthreads();
  for (int d = 128; d > 0; d /= 2) {{
    if (threadIdx.x < d) s[threadIdx.x] += s[threadIdx.x + d];
    __syncthreads();
  }}
  if (threadIdx.x == 0) {{
    partial[blockIdx.x] = s[0];
    {fence}
    last = atomicInc(&count, gridDim.x - 1) == gridDim.x - 1;
  }}
  __syncthreads();
  if (last && threadIdx.x < gridDim.x) {{ {after} x[threadIdx.x] = {read}; }}
}}"""


def test_threadfence_reduction():
    """The last CTA reads what all others, also of earlier waves, wrote before their fence."""
    good = {"fence": "__threadfence();", "after": "", "read": "partial[threadIdx.x]"}
    clean(REDUCTION.format(**good), 20, 256, X)
    x = X.copy()
    emulator.run(REDUCTION.format(**good), 20, 256, [x])
    assert (x[:20] == np.arange(256).sum() + 256 * np.arange(20)).all()
    fault = races(REDUCTION.format(**{**good, "fence": ""}), 20, 256, X)
    assert "reads what warp 0 of CTA" in str(fault)
    late = REDUCTION.format(**good).replace("last = ", "partial[blockIdx.x] = 0; last = ")
    races(late, 20, 256, X)


FLAG = """  volatile int* flag = x + 1024;
  if (blockIdx.x == 0) {{
    x[threadIdx.x] = threadIdx.x; {release}
  }} else {{
    {acquire}
    x[64 + threadIdx.x] = x[threadIdx.x];
  }}"""
ORDERS = {
    "volatile and fences": (
        "__threadfence(); if (threadIdx.x == 0) *flag = 1;", "while (!*flag) ; __threadfence();"),
    "atomics and fences": (
        "__threadfence(); if (threadIdx.x == 0) atomicExch((int*)flag, 1);",
        "while (!atomicAdd((int*)flag, 0)) ; __threadfence();"),
    "one thread spins, the barrier tells the others": (
        "__syncthreads(); if (threadIdx.x == 0) { __threadfence(); *flag = 1; }",
        "if (threadIdx.x == 0) { while (!*flag) ; __threadfence(); } __syncthreads();"),
    "release and acquire": (
        'asm volatile("st.release.gpu.global.s32 [%0], 1;" :: "l"(flag) : "memory");',
        'int v; do asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(v) : "l"(flag) : '
        '"memory"); while (!v);'),
    "relaxed and fence.acq_rel": (
        'asm volatile("fence.acq_rel.gpu; st.relaxed.gpu.global.s32 [%0], 1;" '
        ':: "l"(flag) : "memory");',
        'int v; do asm volatile("ld.relaxed.gpu.global.s32 %0, [%1];" : "=r"(v) : "l"(flag) : '
        '"memory"); while (!v); asm volatile("fence.acq_rel.gpu;" ::: "memory");'),
    "red.release": (
        'asm volatile("red.release.gpu.global.add.s32 [%0], 1;" :: "l"(flag) : "memory");',
        'int v; do asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(v) : "l"(flag) : '
        '"memory"); while (!v);'),
}  # fmt: skip


@pytest.mark.parametrize("how", ORDERS)
def test_message_passing(how):
    release, acquire = ORDERS[how]
    clean(kernel(FLAG.format(release=release, acquire=acquire)), 2, 32, X)


@pytest.mark.parametrize("how", ["volatile and fences", "release and acquire", "red.release"])
def test_message_passing_without_release_or_acquire(how):
    release, acquire = (
        re.sub(r"\.(release|acquire)\.", ".relaxed.", text.replace("__threadfence();", ""))
        for text in ORDERS[how]
    )
    good_release, good_acquire = ORDERS[how]
    races(kernel(FLAG.format(release=release, acquire=good_acquire)), 2, 32, X)
    races(kernel(FLAG.format(release=good_release, acquire=acquire)), 2, 32, X)


def test_what_comes_after_the_release_is_not_covered():
    release = "__threadfence(); if (threadIdx.x == 0) *flag = 1; x[threadIdx.x] = 5;"
    acquire = "while (!*flag) ; __threadfence();"
    races(kernel(FLAG.format(release=release, acquire=acquire)), 2, 32, X)


def test_lock():
    source = """__device__ int lock = 0;
    extern "C" __global__ void k(int* x) {
      if (threadIdx.x % 32 == 0) {
        while (atomicCAS(&lock, 0, 1) != 0) ;
        FENCE x[0] += 1; __threadfence(); atomicExch(&lock, 0);
      } }"""
    clean(source.replace("FENCE", "__threadfence();"), 3, 64, X)
    for policy, seed in SCHEDULES:
        with pytest.raises(DataRaceError):
            run(source.replace("FENCE", ""), 3, 64, X, policy=policy, seed=seed)


def test_grid_barrier():
    source = """__device__ unsigned int arrived = 0;
    extern "C" __global__ void k(int* x) {
      int i = blockIdx.x * blockDim.x + threadIdx.x, n = gridDim.x * blockDim.x;
      x[i] = i;
      __syncthreads();
      if (threadIdx.x == 0) { FENCE atomicAdd(&arrived, 1);
        while (*(volatile unsigned int*)&arrived < gridDim.x) ; __threadfence(); }
      __syncthreads();
      x[n + i] = x[n - 1 - i]; }"""
    clean(source.replace("FENCE", "__threadfence();"), 4, 64, X, cooperative=True)
    races(source.replace("FENCE", ""), 4, 64, X, cooperative=True)


def test_histogram_in_shared_memory():
    body = """  __shared__ int h[16]; if (threadIdx.x < 16) h[threadIdx.x] = 1; __syncthreads();
    if (threadIdx.x < 16) h[threadIdx.x] = 0; {sync}
    atomicAdd(&h[threadIdx.x % 16], 1); __syncthreads();
    if (threadIdx.x < 16) atomicAdd(&x[threadIdx.x], h[threadIdx.x]);"""
    clean(kernel(body.format(sync="__syncthreads();")), 3, 128, X)
    races(kernel(body.format(sync="")), 3, 128, X)


# Clusters


DISTRIBUTED = """
__device__ void cluster_sync() { asm volatile("barrier.cluster.arrive.aligned;\\n"
  "barrier.cluster.wait.aligned;" ::: "memory"); }
extern "C" __global__ void __cluster_dims__(2, 1, 1) k(int* x) {
  __shared__ int s[64]; unsigned a = (unsigned)__cvta_generic_to_shared(s + threadIdx.x), v;
  s[threadIdx.x] = blockIdx.x * 100 + threadIdx.x;
  cluster_sync();
  asm volatile("mapa.shared::cluster.u32 %0, %0, %1;" : "+r"(a) : "r"((blockIdx.x & 1) ^ 1));
  asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(v) : "r"(a) : "memory");
  AFTER x[blockIdx.x * 64 + threadIdx.x] = v; LAST }"""


def distributed(after, last):
    return DISTRIBUTED.replace("AFTER", after).replace("LAST", last)


def test_distributed_shared_memory():
    reuse = "s[threadIdx.x] = 0;"
    last = "cluster_sync(); if (v == 9999) x[0] = s[0];"
    clean(distributed("cluster_sync(); " + reuse, last), 4, 64, X)
    races(distributed(reuse, last), 4, 64, X)


def test_exit_while_a_peer_may_still_read():
    """Rank 1 reads; rank 0 works on for a while before it ends."""
    one = distributed("if (blockIdx.x & 1)", "WORK LAST").replace(
        'asm volatile("ld.shared', 'v = 0; if (blockIdx.x & 1) asm volatile("ld.shared'
    )
    work = 'if (!(blockIdx.x & 1)) for (int t = 0; t < 3000; t++) asm volatile("");'
    one = one.replace("WORK", work)
    clean(one.replace("LAST", "cluster_sync();"), 4, 64, X)
    for policy, seed in SCHEDULES:
        with pytest.raises((RemoteAccessError, OutOfBoundsError)):
            run(one.replace("LAST", ""), 4, 64, X, policy=policy, seed=seed)
    with pytest.raises(RemoteAccessError, match="cluster barrier is missing"):
        run(one.replace("LAST", ""), 4, 64, X, policy="starved", seed=1)


# Cost


def test_memory_follows_what_is_touched():
    """A gigabyte mapped, a kilobyte touched."""
    import resource

    big = np.zeros(1 << 28, "i4")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    emulator.run(kernel("  x[threadIdx.x] += 1;"), 1, 256, [big])
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # KiB
    assert big[:256].all()
