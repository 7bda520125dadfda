"""clusterlaunchcontrol: running clusters take over those of the grid that have not started."""

from __future__ import annotations

import numpy as np
import pytest
from async_kernels import WRAPPERS

from gpukit import emulator
from gpukit.emulator.errors import (
    AsyncHazardError,
    BarrierError,
    DataRaceError,
    DeadlockError,
    KernelFault,
    MisalignedError,
    MissingProxyFenceError,
    OutOfBoundsError,
    PendingAsyncError,
    RemoteAccessError,
    UnsupportedInstructionError,
)
from gpukit.emulator.policies import POLICIES

CLC = (
    WRAPPERS
    + r"""
__device__ inline void try_cancel(void* to, u64* b) {
  asm volatile("clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytesCAST"
               ".b128 [%0], [%1];" :: "r"(smem(to)), "r"(smem(b)) : "memory"); }
__device__ inline bool stolen(const void* from, int& x, int& y, int& z) {
  u32 ok, px = 0, py = 0, pz = 0;
  asm volatile("{ .reg .b128 a; .reg .pred p; ld.shared.b128 a, [%4];\n"
    "clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 p, a; selp.u32 %0, 1, 0, p;\n"
    "@p clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 {%1, %2, %3, _}, a; }"
    : "=r"(ok), "+r"(px), "+r"(py), "+r"(pz) : "r"(smem(from)) : "memory");
  FENCE
  if (ok) { x = px; y = py; z = pz; }
  return ok; }
__device__ inline u32 first_x(const void* from) {
  u32 x;
  asm volatile("{ .reg .b128 a; ld.shared.b128 a, [%1];\n"
    "clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 %0, a; }"
    : "=r"(x) : "r"(smem(from)) : "memory");
  FENCE
  return x; }
"""
)
FENCED = CLC.replace("FENCE", "fence_async();")  # read, before it may be written again
ALONE, TOGETHER = (FENCED.replace("CAST", to) for to in ("", ".multicast::cluster::all"))

PERSISTENT = (
    ALONE
    + r"""
extern "C" __global__ void k(int* y) {
  __shared__ __align__(16) char answer[32];
  __shared__ u64 bar;
  if (threadIdx.x == 0) { init(&bar, 1); fence_init(); }
  __syncthreads();
  int cx = blockIdx.x, cy = blockIdx.y, cz = blockIdx.z;
  for (int round = 0; ; round++) {
    if (threadIdx.x == 0) { expect(&bar, 16); try_cancel(answer, &bar); }
    int cta = (cz * gridDim.y + cy) * gridDim.x + cx;
    atomicAdd(&y[cta * 64 + threadIdx.x], round ? 100 : 1);
    wait(&bar, round & 1);
    if (!stolen(answer, cx, cy, cz)) break;
    __syncthreads();
  }
}"""
)


def persistent(source=PERSISTENT, grid=(3, 4, 2), **options):
    """How often each CTA of the grid ran: 1 if launched, 100 if taken over, for every thread."""
    count = int(np.prod(grid))
    y = np.zeros((count, 64), "i4")
    result = emulator.run(source, grid, 64, [y], arch="sm_100a", **options)
    assert (y == y[:, :1]).all()
    return y[:, 0], result.counters.extra


@pytest.mark.parametrize("policy", POLICIES)
def test_running_ctas_take_over_the_rest_of_the_grid(policy):
    """A quarter of 24 CTAs is launched, and does the work of all; each then hears of a failure."""
    runs, extra = persistent(policy=policy)
    assert (runs[:6] == 1).all()
    assert (runs[6:] == 100).all()
    assert (extra["cancelled_clusters"], extra["cancel_requests"]) == (18, 24)


def test_a_grid_that_runs_as_a_whole_leaves_nothing_to_cancel():
    runs, extra = persistent(grid=(1, 1, 1))
    assert runs.tolist() == [1]
    assert (extra["cancelled_clusters"], extra["cancel_requests"]) == (0, 1)


def test_ctas_that_nobody_took_over_start_later():
    """Each asks once: what is left of the grid starts when the first have ended."""
    source = PERSISTENT.replace("if (threadIdx.x == 0) { expect", "if (t == round) { expect")
    source = source.replace("wait(&bar", "if (round) break; wait(&bar")
    source = source.replace("int cx", "int t = threadIdx.x ? -1 : 0, cx")
    runs, extra = persistent(source)
    assert runs.tolist() == ([1] * 6 + [100] * 6) * 2
    assert (extra["cancelled_clusters"], extra["cancel_requests"]) == (12, 12)


CLUSTERED = (
    TOGETHER
    + r"""
extern "C" __global__ void __cluster_dims__(2, 2, 1) k(int* y) {
  __shared__ __align__(16) char answer[16];
  __shared__ u64 bar;
  if (threadIdx.x == 0) { init(&bar, 1); fence_init(); }
  cluster_sync();
  u32 rank = cluster_rank();
  int cx = blockIdx.x - rank % 2, cy = blockIdx.y - rank / 2, cz = 0;
  for (int round = 0; ; round++) {
    if (threadIdx.x == 0) expect(&bar, 16);
    if (threadIdx.x == 0 && rank == 0) try_cancel(answer, &bar);
    int cta = (cy + rank / 2) * gridDim.x + cx + rank % 2;
    atomicAdd(&y[cta * 64 + threadIdx.x], round ? 100 : 1);
    wait(&bar, round & 1);
    if (!stolen(answer, cx, cy, cz)) break;
    cluster_sync();
  }
}"""
)


@pytest.mark.parametrize("policy", POLICIES)
def test_one_cta_asks_for_its_whole_cluster(policy):
    """The multicast answer names the first CTA of the cancelled cluster, to all four."""
    runs, extra = persistent(CLUSTERED, (4, 8, 1), policy=policy)
    assert sorted(runs) == [1] * 8 + [100] * 24
    blocks = runs.reshape(4, 2, 2, 2)  # cluster y, y in the cluster, cluster x, x in the cluster
    assert (blocks == blocks[:, :1, :, :1]).all()
    assert (extra["cancelled_clusters"], extra["cancel_requests"]) == (6, 8)


# The example of the ISA (9.7.13.17): relaxed barriers between fences of the async proxy.
RELEASE = "fence.proxy.async::generic.release.sync_restrict::shared::cta.cluster;"
ACQUIRE = "fence.proxy.async::generic.acquire.sync_restrict::shared::cluster.cluster;"
RELAXED = "barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.aligned;"


def relaxed(release, acquire):
    end = f'asm volatile("{release} {RELAXED} {acquire}" ::: "memory");\n  }}'
    source = CLUSTERED.replace("cluster_sync();\n  }", end).replace("fence_async();", "")
    assert end in source
    return source


@pytest.mark.parametrize("policy", POLICIES)
def test_an_answer_is_read_before_the_next_is_written(policy):
    """The writes are the async proxy's, so the readers' fences must be those of that proxy."""
    runs, _ = persistent(relaxed(RELEASE, ACQUIRE), (4, 8, 1), policy=policy)
    assert sorted(runs) == [1] * 8 + [100] * 24
    for release in ("", "fence.release.sync_restrict::shared::cta.cluster;"):
        with pytest.raises((MissingProxyFenceError, DataRaceError), match="launch_cancel writes"):
            persistent(relaxed(release, ""), (4, 8, 1), policy=policy)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(("source", "grid"), [(PERSISTENT, (3, 4, 2)), (CLUSTERED, (4, 8, 1))])
def test_an_answer_read_without_a_proxy_fence(policy, source, grid):
    with pytest.raises(MissingProxyFenceError, match=r"launch_cancel writes .* read through"):
        persistent(source.replace("fence_async();", ""), grid, policy=policy)


def test_axes_of_a_position_one_by_one():
    source = PERSISTENT.replace(
        "__syncthreads();\n  }",
        """
      if (first_x(answer) != cx) y[0] = -1;
      __syncthreads(); }""",
    )
    runs, _ = persistent(source)
    assert (runs > 0).all()


# Misuse


@pytest.mark.parametrize(
    ("good", "bad", "error", "text"),
    [
        ("wait(&bar, round & 1);\n", "", (AsyncHazardError, PendingAsyncError), "launch_cancel"),
        ("    __syncthreads();\n  }", "  }", (AsyncHazardError, DataRaceError), "launch_cancel"),
        ("try_cancel(answer,", "try_cancel(answer + 8,", MisalignedError, "multiple of 16"),
        ("expect(&bar, 16)", "expect(&bar, 8)", DeadlockError, "-8 bytes of tx-count"),
        ("&bar); }\n", "(u64*)(answer + 16)); }\n", BarrierError, "no initialised mbarrier"),
        (
            "if (!stolen(answer, cx, cy, cz)) break;",
            "cx = first_x(answer);",
            KernelFault,
            "of a request that failed is undefined",
        ),
        (
            "if (!stolen(answer, cx, cy, cz)) break;",
            "if (!stolen(answer, cx, cy, cz) && round > 40) break;",
            KernelFault,
            "seen an earlier request fail",
        ),
        (
            "if (!stolen(answer, cx, cy, cz)) break;",
            "if (round == 30) break;",
            KernelFault,
            "seen an earlier request fail",
        ),
        (
            "wait(&bar, round & 1);\n",
            "wait(&bar, round & 1); ((int*)answer)[threadIdx.x % 4] = 7; __syncthreads();\n",
            (KernelFault, DataRaceError),
            "holds no answer of try_cancel|race",
        ),
    ],
)
def test_misuse(good, bad, error, text):
    assert good in PERSISTENT
    with pytest.raises(error, match=text):
        persistent(PERSISTENT.replace(good, bad))


def test_answers_stay_in_the_own_cta():
    source = CLUSTERED.replace(".multicast::cluster::all", "").replace("rank == 0)", "rank == 1)")
    source = source.replace(".shared::cta.mbarrier", ".mbarrier").replace(
        '"r"(smem(to)), "r"(smem(b))', '"l"(to), "l"(b)')  # fmt: skip
    away = source.replace("try_cancel(answer, &bar)", "try_cancel((char*)peer(answer), &bar)")
    away = away.replace('extern "C"', r"""__device__ inline u64 peer(const void* p) {
      u64 a; asm volatile("mapa.u64 %0, %1, 0;" : "=l"(a) : "l"(p)); return a; }
extern "C" """, 1)  # fmt: skip
    with pytest.raises(OutOfBoundsError, match="the answer goes to the own CTA's"):
        persistent(away, (4, 8, 1))
    with pytest.raises(UnsupportedInstructionError, match="own CTA"):
        persistent(PERSISTENT.replace("async.shared::cta", "async.shared::cluster"))


def test_a_multicast_answer_needs_the_whole_cluster():
    source = CLUSTERED.replace("int cta =", "if (rank == 3) return; int cta =")
    source = source.replace("if (threadIdx.x == 0 && rank == 0)", """
      for (int i = 0; i < 200; i++) __nanosleep(10);
      if (threadIdx.x == 0 && rank == 0)""")  # fmt: skip
    with pytest.raises((RemoteAccessError, PendingAsyncError, BarrierError), match="exit"):
        persistent(source, (4, 8, 1))
