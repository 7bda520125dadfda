"""A CTA must not end before its peers' last use of its shared memory and mbarriers.

Whether the use comes before the exit or after it is up to the schedule; the report is not.
"""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest
from async_kernels import TMA, WGMMA, WRAPPERS
from twins import SCHEDULES, arguments, reported, silent

from gpukit import emulator
from gpukit.emulator.errors import PendingAsyncError, RemoteAccessError

LIBRARY = r"""
__device__ void arrive_at(u32 barrier) {
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];"
               :: "r"(barrier) : "memory"); }
__device__ void relaxed_arrive_at(u32 barrier) {
  asm volatile("mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [%0];"
               :: "r"(barrier) : "memory"); }
__device__ void expect_at(u32 barrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.release.cluster.shared::cluster.b64 _, [%0], %1;"
               :: "r"(barrier), "r"(bytes) : "memory"); }
__device__ void only_expect_at(u32 barrier, int bytes) {
  asm volatile("mbarrier.expect_tx.relaxed.cluster.shared::cluster.b64 [%0], %1;"
               :: "r"(barrier), "r"(bytes) : "memory"); }
__device__ void complete_at(u32 barrier, u32 bytes) {
  asm volatile("mbarrier.complete_tx.relaxed.cluster.shared::cluster.b64 [%0], %1;"
               :: "r"(barrier), "r"(bytes) : "memory"); }
__device__ float load_from(u32 address) {
  float v; asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(v) : "r"(address) : "memory");
  return v; }
__device__ void store_to(u32 address, float v) {
  asm volatile("st.shared::cluster.f32 [%0], %1;" :: "r"(address), "f"(v) : "memory"); }
__device__ void add_to(u32 address, float v) {
  asm volatile("red.relaxed.cluster.shared::cluster.add.f32 [%0], %1;"
               :: "r"(address), "f"(v) : "memory"); }
__device__ void send(u32 address, float v, u32 barrier) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];"
               :: "r"(address), "f"(v), "r"(barrier) : "memory"); }
__device__ void send_sum(u32 address, int v, u32 barrier) {
  asm volatile("red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.s32"
               " [%0], %1, [%2];" :: "r"(address), "r"(v), "r"(barrier) : "memory"); }
__device__ void send_block(u32 to, const void* from, u32 bytes, u32 barrier) {
  asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes"
               " [%0], [%1], %2, [%3];" :: "r"(to), "r"(smem(from)), "r"(bytes), "r"(barrier)
               : "memory"); }
__device__ void multicast(void* to, const void* from, u32 bytes, u64* barrier, u16 mask) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
               ".multicast::cluster [%0], [%1], %2, [%3], %4;"
               :: "r"(smem(to)), "l"(from), "r"(bytes), "r"(smem(barrier)), "h"(mask)
               : "memory"); }
__device__ void work() { for (int i = 0; i < 200; i++) asm volatile("nanosleep.u32 20;"); }
"""


def kernel(peer, home, ctas=2, arrivals=1):
    """Rank 0 is at home; the others run ``peer`` with its addresses."""
    return (
        LIBRARY
        + f"""
extern "C" __global__ void __cluster_dims__({ctas}, 1, 1) k(const float* x, float* y) {{
  __shared__ alignas(128) float s[256]; __shared__ alignas(8) u64 bar, other;
  const int t = threadIdx.x; const bool first = t == 0; const u32 rank = cluster_rank();
  s[t] = t; s[t + 64] = 0;
  if (first) {{ init(&bar, {arrivals}); init(&other, 1); fence_init(); }}
  cluster_sync();
  const u32 at = remote(s + t, 0), barrier = remote(&bar, 0);
  if (rank == 0) {{ {home} }} else {{ {peer} }}
}}"""
    )


def pair(peer, good, bad=(), ctas=2, arrivals=1):
    """Each ``good`` and ``bad`` is what rank 0 does, and what the peers do afterwards."""
    for home, after in good:
        silent(kernel(peer + after, home, ctas, arrivals), ctas, 64)
    for home, after in bad:
        for reverse in (False, True):  # either side may be late
            late_home, late_peer = (home, f"work(); {peer}") if reverse else (f"work(); {home}",
                                                                              peer)  # fmt: skip
            reports = reported(kernel(late_peer + after, late_home, ctas, arrivals), ctas, 64,
                               RemoteAccessError, "exit")  # fmt: skip
            for report in reports:
                assert re.search(r"^k, kernel\.cu:\d+ .*: CTA \(\d, 0, 0\), warp \d", report)
                assert len(set(re.findall(r"CTA \((\d), 0, 0\)|rank (\d)", report))) >= 2


END = ("cluster_sync();", "cluster_sync();")
NOTHING = ("", "")
NO_WAIT = 'asm volatile("barrier.cluster.arrive;" ::: "memory");'
SYNC_OF_OTHERS = (NO_WAIT, "cluster_sync();")


@pytest.mark.parametrize("arrive", [
    "if (first) arrive_at(barrier);",
    "if (t == 40) arrive_at(barrier);",
    "if (first) relaxed_arrive_at(barrier);",
    "if (first) expect_at(barrier, 0);",
])  # fmt: skip
def test_remote_arrivals(arrive):
    wait = ("if (t == 32) wait(&bar, 0);", "")
    pair(arrive, [END, wait], [NOTHING, SYNC_OF_OTHERS])


def test_a_later_phase_is_another_matter():
    peer = "if (first) { arrive_at(barrier); wait(&other, 0); arrive_at(barrier); }"
    answer = "if (first) { wait(&bar, 0); arrive_at(remote(&other, 1)); }"
    pair(peer, [(answer + "if (first) wait(&bar, 1);", ""), (answer + END[0], END[1])],
         [(answer, "")])  # fmt: skip


def test_who_arrives_last_is_heard_of_through_another():
    """The arrival is ordered before what its CTA does next: a barrier, and a signal to wait for."""
    peer = "if (t == 40) arrive_at(barrier); HERE if (first) arrive_at(remote(&other, 0));"
    home = ("if (first) wait(&other, 0);", "")
    pair(peer.replace("HERE", "__syncthreads();"), [home], arrivals=2)
    pair(peer.replace("HERE", ""), [], [home], arrivals=2)


def test_remote_expectations():
    expect = "if (first) { only_expect_at(barrier, 16); complete_at(barrier, 16); HERE }"
    pair(expect.replace("HERE", ""), [END], [NOTHING])
    wait = ("if (first) wait(&bar, 0);", "")
    pair(expect.replace("HERE", "arrive_at(barrier);"), [wait], [NOTHING])


@pytest.mark.parametrize("use", [
    "y[rank * 64 + t] = load_from(at);",
    "store_to(at, 5);",
    "add_to(at, 1);",
    "if (t > 50) store_to(at, 5);",
])  # fmt: skip
def test_remote_accesses(use):
    told = "if (first) wait(&bar, 0);", "arrive_at(barrier);"
    half = "if (first) wait(&bar, 0);", "if (t < 32) { arrive_at(barrier); arrive_at(barrier); }"
    pair(use, [END, told], [NOTHING, SYNC_OF_OTHERS, half], arrivals=64)


@pytest.mark.parametrize("forgetful", [1, 2, 3])
def test_one_of_three_readers_is_not_waited_for(forgetful):
    peer = "y[rank * 64 + t] = load_from(at); __syncthreads();"
    home = ("if (first) wait(&bar, 0);", "if (first && rank != FORGETFUL) arrive_at(barrier);")
    pair(peer, [(home[0], home[1].replace("FORGETFUL", "9"))], ctas=4, arrivals=3)
    pair(peer, [], [(home[0], home[1].replace("FORGETFUL", str(forgetful)))], ctas=4, arrivals=2)


ARMED = "if (first) expect(&bar, 256); "
DONE = ARMED + "wait(&bar, 0);"


@pytest.mark.parametrize("push", ["send(at, t, barrier);", "send_sum(at + 256, t, barrier);"])
def test_remote_stores(push):
    pair(push, [(DONE, ""), (DONE + END[0], END[1])],
         [(ARMED, ""), (ARMED + NO_WAIT, "cluster_sync();")])  # fmt: skip


def test_remote_copies():
    """The sender too must stay until its bytes have been read, of which only the receiver knows."""
    push = "fence_async(); __syncthreads(); if (first) send_block(at, s, 256, barrier);"
    told = (DONE + "if (first) arrive_at(remote(&other, 1));", "wait(&other, 0);")
    pair(push, [told, (DONE + END[0], END[1])])
    for home in (ARMED, ARMED + "cluster_sync();", DONE):
        peer = push + ("cluster_sync();" if "sync" in home else "")
        for policy, seed in SCHEDULES:
            with pytest.raises((RemoteAccessError, PendingAsyncError), match="exits"):
                emulator.run(WRAPPERS + kernel(peer, home), 2, 64, arguments(), policy=policy,
                             seed=seed)  # fmt: skip


MULTICAST = (
    LIBRARY
    + """
extern "C" __global__ void __cluster_dims__(2, 1, 1) k(const float* x, float* y) {
  __shared__ alignas(128) float s[64]; __shared__ alignas(8) u64 bar;
  const int t = threadIdx.x; const u32 rank = cluster_rank();
  if (t == 0) { init(&bar, 1); fence_init(); expect(&bar, 256); }
  cluster_sync();
  if (rank == 1 && t == 0) { work(); multicast(s, x, 256, &bar, 3); }
  HERE
}"""
)


def test_multicast_is_waited_for_by_each_receiver():
    for good in ("wait(&bar, 0); y[rank * 64 + t] = s[t];",
                 "if (t == 0) wait(&bar, 0); cluster_sync();"):  # fmt: skip
        silent(MULTICAST.replace("HERE", good), 2, 64)
    for bad in ("if (rank == 1) wait(&bar, 0);",
                "if (rank == 1) wait(&bar, 0); cluster_sync();"):  # fmt: skip
        reported(MULTICAST.replace("HERE", bad), 2, 64, RemoteAccessError, r"CTA \(0, 0, 0\)")


def test_the_report_names_both_sides():
    source = kernel("if (t == 40) arrive_at(barrier);", "work();")
    arrives = source[: source.index("asm volatile")].count("\n") + 1
    with pytest.raises(RemoteAccessError) as caught:
        emulator.run(WRAPPERS + source, 2, 64, [np.zeros(64, "f4")] * 2, policy="starved", seed=1)
    text = str(caught.value)
    line = WRAPPERS.count("\n") + arrives
    head = r"^k, kernel\.cu:\d+ .*CTA \(0, 0, 0\), warp \d, lane \d+: CTA \(0, 0, 0\) exits "
    peer = rf"the signal of warp 1 of CTA \(1, 0, 0\) at kernel\.cu:{line} .* to its mbarrier"
    assert re.search(head + "although nothing orders that after " + peer, text)


# A matmul whose CTAs share B by multicast

MATMUL = (
    (WRAPPERS + TMA + WGMMA).replace("SBO", "64")
    + LIBRARY
    + r"""
__device__ void share(void* to, const TensorMap& map, int x, int y, u64* b) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
               ".multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;"
               :: "r"(smem(to)), "l"(generic(map)), "r"(x), "r"(y), "r"(smem(b)), "h"((u16)3)
               : "memory"); }
// C[128, 64] = A[128, K] * B[64, K]^T. Each of two CTAs makes 64 rows and loads half of B for both.
extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(160, 1)
k(const __grid_constant__ TensorMap A, const __grid_constant__ TensorMap B, float* C, int K) {
  extern __shared__ __align__(1024) unsigned char ring[];
  __shared__ __align__(8) u64 full[2], empty[2];
  const int t = threadIdx.x, lane = t % 32, warp = t / 32, rank = cluster_rank();
  if (t == 0) {
    for (int i = 0; i < 2; i++) { init(&full[i], 1); init(&empty[i], 8); }
    fence_init();
  }
  cluster_sync();
  int stage = 0, parity = 0;
  if (warp == 4) {
    for (int k = 0; lane == 0 && k < K; k += 64) {
      wait(&empty[stage], parity ^ 1);
      expect(&full[stage], 16384);
      tma_load(ring + stage * 16384, A, k, rank * 64, &full[stage]);
      share(ring + stage * 16384 + 8192 + rank * 4096, B, k, rank * 32, &full[stage]);
      if (++stage == 2) stage = 0, parity ^= 1;
    }
    for (int i = 0; lane == 0 && i < TAIL; i++) {
      wait(&empty[stage], parity ^ 1);
      if (++stage == 2) stage = 0, parity ^= 1;
    }
  } else {
    float d[32];
    for (int k = 0; k < K; k += 64) {
      wait(&full[stage], parity);
      unsigned char* s = ring + stage * 16384;
      asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
      for (int j = 0; j < 4; j++) mma(d, desc(s) + 2 * j, desc(s + 8192) + 2 * j, (k | j) != 0);
      asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
      asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
      if (lane < 2) arrive_at(remote(&empty[stage], lane));
      if (++stage == 2) stage = 0, parity ^= 1;
    }
    for (int i = 0; i < 32; i++) {
      const int row = rank * 64 + warp * 16 + lane / 4 + i / 2 % 2 * 8;
      C[row * 64 + i / 4 * 8 + lane % 4 * 2 + i % 2] = d[i];
    }
  }
  END
}"""
)


def multiply(tail, end, policy, seed, k=320):
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-3, 4, (rows, k)).astype(ml_dtypes.bfloat16) for rows in (128, 64))
    c = np.zeros((128, 64), "f4")
    maps = [emulator.TensorMap(a, (64, 64), swizzle="128B"),
            emulator.TensorMap(b, (64, 32), swizzle="128B")]  # fmt: skip
    source = MATMUL.replace("TAIL", str(tail)).replace("END", end)
    emulator.run(source, 2, 160, [*maps, c, np.int32(k)], shared_bytes=32768, policy=policy,
                 seed=seed)  # fmt: skip
    assert (c == a.astype("f4") @ b.astype("f4").T).all()


@pytest.mark.parametrize(("tail", "end"), [(2, ""), (0, "cluster_sync();"), (2, "cluster_sync();")])
def test_matmul_with_a_tail(tail, end):
    for policy, seed in SCHEDULES:
        multiply(tail, end, policy, seed)


@pytest.mark.parametrize(("tail", "end"), [
    (0, ""), (1, ""), (0, "if (rank == 0) " + NO_WAIT + " else cluster_sync();"),
])  # fmt: skip
def test_matmul_without_a_tail(tail, end):
    """The producer ends although consumers of the peer have yet to release its last stages."""
    for policy, seed in SCHEDULES:
        with pytest.raises(RemoteAccessError, match="mbarrier"):
            multiply(tail, end, policy, seed)
