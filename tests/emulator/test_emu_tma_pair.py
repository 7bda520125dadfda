"""TMA loads of a pair of CTAs (``.cta_group::2``): one mbarrier counts the bytes of both."""

from __future__ import annotations

import numpy as np
import pytest
from async_kernels import TMA, WRAPPERS

from gpukit import emulator
from gpukit.emulator import TensorMap
from gpukit.emulator.errors import (
    AsyncHazardError,
    BarrierError,
    DeadlockError,
    KernelFault,
    OutOfBoundsError,
    RemoteAccessError,
)
from gpukit.emulator.policies import POLICIES

# Clearing bit 24 of a shared::cluster address turns an odd rank into that of its even peer.
PAIR = (
    WRAPPERS
    + TMA
    + r"""
__device__ inline u32 leader(u64* b) { return smem(b) & 0xFEFFFFFF; }
__device__ inline void pair_load(void* to, const TensorMap& map, int x, int y, u64* b) {
  asm volatile("cp.async.bulk.tensor.2d.GROUP.shared::cluster.global.mbarrier::complete_tx::bytes"
               " [%0], [%1, {%2, %3}], [%4];" :: "r"(smem(to)), "l"(generic(map)), "r"(x), "r"(y),
               "r"(leader(b)) : "memory"); }
__device__ inline void expect_at_leader(u64* b, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.release.cluster.shared::cluster.b64 _, [%0], %1;"
               :: "r"(leader(b)), "r"(bytes) : "memory"); }
extern "C" __global__ void __cluster_dims__(CLUSTER, 1, 1) k(const __grid_constant__ TensorMap map,
                                                             int* y) {
  __shared__ __align__(1024) int tile[2][256];
  __shared__ u64 bar[2];
  int t = threadIdx.x; u32 rank = cluster_rank(); bool leads = rank % 2 == 0;
  if (t == 0) { init(&bar[0], COUNT); init(&bar[1], COUNT); fence_init(); }
  cluster_sync();
  for (int s = 0; s < 2; s++) {
    if (t == 0) { EXPECT pair_load(tile[s], map, 0, 8 * (2 * blockIdx.x + s), &bar[s]); }
  }
  if (leads) { wait(&bar[0], 0); wait(&bar[1], 0); }
  cluster_sync();
  for (int s = 0; s < 2; s++)
    for (int i = t; i < 256; i += 32) y[(2 * blockIdx.x + s) * 256 + i] = tile[s][i];
}"""
)
ONE_EXPECTS = "if (leads) expect(&bar[s], 2048);", "1"
EACH_EXPECTS = "expect_at_leader(&bar[s], 1024);", "2"


def load(expects=ONE_EXPECTS, *changes, cluster=2, group="cta_group::2", **options):
    source = PAIR.replace("EXPECT", expects[0]).replace("COUNT", expects[1])
    source = source.replace("CLUSTER", str(cluster)).replace(".GROUP", f".{group}" if group else "")
    for old, new in changes:
        assert old in source
        source = source.replace(old, new)
    x, y = np.arange(8 * 16 * 32, dtype="i4").reshape(128, 32), np.zeros((128, 32), "i4")
    grid = 8 - 8 % cluster
    emulator.run(source, grid, 32, [TensorMap(x, (32, 8)), y], arch="sm_100a", **options)
    assert (y[: 16 * grid] == x[: 16 * grid]).all()


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("expects", [ONE_EXPECTS, EACH_EXPECTS])
@pytest.mark.parametrize("cluster", [2, 4])
def test_both_report_to_the_even_cta(cluster, expects, policy):
    """The leader expects the bytes of both, or each CTA adds its own at the leader's barrier."""
    load(expects, cluster=cluster, policy=policy)


def test_destinations_in_the_own_cta_may_still_signal_the_peer():
    load(ONE_EXPECTS, ("2d.cta_group::2.shared::cluster", "2d.shared::cta"),
         ("complete_tx::bytes\"", "complete_tx::bytes.cta_group::2\""))  # fmt: skip


@pytest.mark.parametrize("group", ["", "cta_group::1"])
def test_without_the_pair_barrier_and_destination_are_in_one_cta(group):
    with pytest.raises(BarrierError, match="rank 0, the destination in rank 1") as fault:
        load(group=group)
    assert "pair" not in str(fault.value)


def test_the_barrier_is_in_the_same_pair():
    with pytest.raises(BarrierError, match=r"rank 0, the destination in rank 2; .*or pair"):
        load(ONE_EXPECTS, ("0xFEFFFFFF", "0xFCFFFFFF"), cluster=4)


def test_bytes_of_both_are_expected():
    with pytest.raises((BarrierError, DeadlockError), match=r"expect_tx is too small|tx-count"):
        load(("if (leads) expect(&bar[s], 1024);", "1"))
    with pytest.raises(DeadlockError, match="2048 bytes of tx-count"):
        load(("if (leads) expect(&bar[s], 4096);", "1"))


def test_the_peer_hears_of_its_bytes_through_the_leader():
    """The data is there in most schedules; without an order behind the wait it may not be."""
    late = "}\n  cluster_sync();\n  for", "}\n  if (leads) cluster_sync();\n  for"
    with pytest.raises((AsyncHazardError, DeadlockError), match=r"tma_load|cluster barrier"):
        load(ONE_EXPECTS, late)
    for policy in POLICIES:
        with pytest.raises((AsyncHazardError, RemoteAccessError), match=r"tma_load|exits"):
            load(ONE_EXPECTS, ("wait(&bar[1], 0); }\n  cluster_sync();", "wait(&bar[1], 0); }"),
                 policy=policy)  # fmt: skip


def test_a_cta_alone_has_no_peer():
    with pytest.raises(KernelFault, match=r"needs pairs of CTAs; the cluster has 1"):
        load(cluster=1)
    with pytest.raises(KernelFault, match=r"needs pairs of CTAs; the cluster has 3"):
        load(cluster=3)


def test_ranks_that_do_not_exist():
    with pytest.raises(OutOfBoundsError, match="no CTA of rank"):
        load(ONE_EXPECTS, ("smem(b) & 0xFEFFFFFF", "smem(b) | 0x02000000"))
