"""Cooperative groups: grids, clusters, tiles of warps and lanes, coalesced and labelled groups."""

from __future__ import annotations

import numpy as np
import pytest

from gpukit import emulator
from gpukit.emulator.errors import DataRaceError, LaunchError, TrapError
from gpukit.emulator.mem.allocations import GlobalMemory
from gpukit.emulator.policies import POLICIES

HEADERS = """
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
namespace cg = cooperative_groups;
"""
KERNELS = HEADERS + r"""
#ifndef SYNC
#define SYNC grid.sync()
#endif
extern "C" __global__ void reverse(int* x, int n) {  // twice: the barrier is used again
  auto grid = cg::this_grid();
  int i = grid.thread_rank();
  x[i] = i;
  for (int k = 0; k < 2; k++) {
    SYNC;
    int other = x[n - 1 - i];
    SYNC;
    x[i] = other + 1;
  }
  auto token = grid.barrier_arrive();
  grid.barrier_wait(static_cast<decltype(token)&&>(token));
  if (i == 0) x[n] = grid.is_valid() ? int(grid.num_blocks() * grid.num_threads()) : -1;
}
extern "C" __global__ void valid(int* x) {
  if (cg::this_grid().thread_rank() == 0) x[0] = cg::this_grid().is_valid();
}

extern "C" __global__ void neighbours(int* x, int* about) {
  __shared__ int mine[64];
  auto cluster = cg::this_cluster();
  int rank = cluster.block_rank();
  mine[threadIdx.x] = 100 * blockIdx.x + threadIdx.x;
  cluster.sync();
  int* theirs = cluster.map_shared_rank(mine, (rank + 1) % cluster.num_blocks());
  x[blockIdx.x * 64 + threadIdx.x] = theirs[63 - threadIdx.x];
  auto token = cluster.barrier_arrive();
  int* a = about + 4 * blockIdx.x;
  if (threadIdx.x == 0) {
    a[0] = rank, a[1] = cluster.num_blocks(), a[2] = cluster.query_shared_rank(theirs);
    a[3] = cluster.dim_threads().x;
  }
  cluster.barrier_wait(static_cast<decltype(token)&&>(token));
}

extern "C" __global__ void large_tiles(int* sum, int* shuffled, int* any, int* scan) {
  auto tile = cg::tiled_partition<64>(cg::this_thread_block());
  int t = threadIdx.x;
  sum[t] = cg::reduce(tile, t, cg::plus<int>());
  tile.sync();
  shuffled[t] = tile.shfl(t, 33);
  any[t] = tile.any(t == 70);
  scan[t] = cg::inclusive_scan(tile, t);
}
extern "C" __global__ void tiles(int* swapped, int* ballot, int* rank, int* scan) {
  auto tile = cg::tiled_partition<8>(cg::tiled_partition<32>(cg::this_thread_block()));
  int t = threadIdx.x;
  swapped[t] = tile.shfl_xor(t, 3);
  ballot[t] = tile.ballot(t % 3 == 0);
  rank[t] = 10 * tile.meta_group_rank() + tile.thread_rank();
  scan[t] = cg::exclusive_scan(tile, t);
}
extern "C" __global__ void parts(int* rank, int* most, int* label, int* half) {
  auto warp = cg::tiled_partition<32>(cg::this_thread_block());
  int t = threadIdx.x;
  if (t % 3 == 0) {
    auto active = cg::coalesced_threads();
    rank[t] = 100 * active.size() + active.thread_rank();
    most[t] = cg::reduce(active, t, cg::greater<int>());
    label[t] = cg::reduce(cg::labeled_partition(active, t % 4), t, cg::plus<int>());
    active.sync();
  }
  half[t] = cg::binary_partition(warp, t % 32 < 5).size();
}
extern "C" __global__ void copies(int* x) {
  __shared__ alignas(16) int tile[128];
  auto block = cg::this_thread_block();
  cg::memcpy_async(block, tile, x, sizeof tile);
  cg::wait(block);
  int y = tile[127 - threadIdx.x];
  cg::invoke_one(block, [&] { y = -1; });
  x[threadIdx.x] = y;
}
"""
TIDS = np.arange(128)


def run(kernel, grid, block, args, **options):
    return emulator.run(KERNELS, grid, block, args, kernel=kernel, **options)


def outputs(kernel, count=4, **options):
    arrays = [np.full(128, -7, "i4") for _ in range(count)]
    run(kernel, 1, 128, arrays, **options)
    return arrays


def grouped(values, size, reduce):
    """``reduce`` of each ``size`` consecutive values, for every member."""
    return np.repeat(reduce(values.reshape(-1, size), axis=1), size)


# Grids


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
@pytest.mark.parametrize("policy", POLICIES)
def test_grid_sync(policy, arch):
    n = 6 * 3 * 96
    x = np.zeros(n + 1, "i4")
    run("reverse", (6, 3), (32, 3), [x, np.int32(n)], cooperative=True, policy=policy, arch=arch)
    assert (x[:n] == np.arange(n) + 2).all()
    assert x[n] == 18 * n


def test_a_grid_that_only_fits_in_several_waves_is_resident_at_once():
    n = 130 * 256
    x = np.zeros(n + 1, "i4")
    run("reverse", 130, 256, [x, np.int32(n)], cooperative=True)
    assert (x[:n] == np.arange(n) + 2).all()


def test_the_grid_barrier_is_fit_for_the_next_launch_in_the_same_memory():
    memory, n = GlobalMemory(), 256
    x = np.zeros(n + 1, "i4")
    for _ in range(3):
        run("reverse", 4, 64, [x, np.int32(n)], cooperative=True, memory=memory)
    assert (x[:n] == np.arange(n) + 2).all()


def test_without_grid_sync_ctas_race():
    with pytest.raises(DataRaceError):
        run("reverse", 4, 64, [np.zeros(257, "i4"), np.int32(256)], cooperative=True,
            options=["-DSYNC=__syncthreads()"])  # fmt: skip


def test_ordinary_launches_cannot_synchronise_their_grid():
    x = np.full(1, -1, "i4")
    run("valid", 4, 32, [x])
    assert x[0] == 0
    with pytest.raises(TrapError, match="cooperative launches only: cooperative=True"):
        run("reverse", 4, 64, [np.zeros(257, "i4"), np.int32(256)])
    run("valid", 4, 32, [x], cooperative=True)
    assert x[0] == 1


def test_more_ctas_than_a_gpu_holds_are_refused():
    x = np.zeros(1, "i4")
    for grid, block, shared, most in ((265, 1024, 0, 264), (133, 32, 120 << 10, 132),
                                      (4225, 32, 0, 4224)):  # fmt: skip
        with pytest.raises(LaunchError, match=f"of sm_90a holds at most {most} CTAs at once"):
            run("valid", grid, block, [x], cooperative=True, shared_bytes=shared)
    run("valid", 132, 32, [x], cooperative=True, shared_bytes=120 << 10)
    with pytest.raises(LaunchError, match="of sm_100a holds at most 296 CTAs"):
        run("valid", 297, 1024, [x], cooperative=True, arch="sm_100a")


# Clusters


@pytest.mark.parametrize("policy", POLICIES)
def test_clusters_read_each_other(policy):
    x, about = np.zeros((8, 64), "i4"), np.zeros((8, 4), "i4")
    run("neighbours", 8, 64, [x, about], cluster=(4,), policy=policy)
    cta = np.arange(8)
    peer = cta // 4 * 4 + (cta + 1) % 4
    assert (x == 100 * peer[:, None] + 63 - np.arange(64)).all()
    assert (about == np.stack([cta % 4, 0 * cta + 4, peer % 4, 0 * cta + 256], axis=1)).all()


# Groups of a CTA


@pytest.mark.parametrize("policy", POLICIES)
def test_tiles_of_several_warps(policy):
    sums, shuffled, any_, scan = outputs("large_tiles", policy=policy)
    assert (sums == grouped(TIDS, 64, np.sum)).all()
    assert (shuffled == TIDS // 64 * 64 + 33).all()
    assert (any_ == TIDS // 64).all()
    assert (scan == TIDS.reshape(2, 64).cumsum(axis=1).ravel()).all()


def test_tiles_of_some_lanes():
    swapped, ballot, rank, scan = outputs("tiles")
    assert (swapped == TIDS ^ 3).all()
    assert (ballot == grouped((TIDS % 3 == 0) << TIDS % 8, 8, np.sum)).all()
    assert (rank == TIDS % 32 // 8 * 10 + TIDS % 8).all()
    assert (scan == TIDS.reshape(-1, 8).cumsum(axis=1).ravel() - TIDS).all()


def test_coalesced_and_partitioned_groups():
    rank, most, label, half = outputs("parts")
    for warp in range(4):
        lanes = TIDS[warp * 32 : warp * 32 + 32]
        active = lanes[lanes % 3 == 0]
        assert (rank[active] == 100 * active.size + np.arange(active.size)).all()
        assert (most[active] == active.max()).all()
        for k in range(4):
            same = active[active % 4 == k]
            assert (label[same] == same.sum()).all()
    assert (half == np.where(TIDS % 32 < 5, 5, 27)).all()
    assert (rank[TIDS % 3 > 0] == -7).all()


def test_copies_of_a_block_and_one_thread_invoked():
    x = np.arange(128, dtype="i4")
    run("copies", 1, 128, [x])
    chosen = np.flatnonzero(x == -1)
    assert chosen.size == 1
    assert (np.delete(x, chosen) == np.delete(np.arange(128)[::-1], chosen)).all()
