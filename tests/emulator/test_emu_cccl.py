"""CUDA's C++ library compiles and runs: type traits, barriers, PTX wrappers, pipelines, CUB."""

from __future__ import annotations

import numpy as np
import pytest

from gpukit import emulator
from gpukit.emulator.errors import MissingProxyFenceError
from gpukit.emulator.policies import POLICIES

BULK = r"""
#include <cuda/barrier>
#include <cuda/ptx>
#include <cuda/std/type_traits>
namespace ptx = cuda::ptx;
using Barrier = cuda::barrier<cuda::thread_scope_block>;
static_assert(cuda::std::is_same_v<cuda::std::make_unsigned_t<int>, unsigned>);

extern "C" __global__ void increment(int* x) {
  __shared__ alignas(128) int tile[64];
  __shared__ Barrier loaded;
  if (threadIdx.x == 0) init(&loaded, blockDim.x);
  __syncthreads();
  Barrier::arrival_token token;
  if (threadIdx.x == 0) {
    cuda::device::memcpy_async_tx(tile, x, cuda::aligned_size_t<16>(sizeof tile), loaded);
    token = cuda::device::barrier_arrive_tx(loaded, 1, sizeof tile);
  } else {
    token = loaded.arrive();
  }
  loaded.wait(cuda::std::move(token));
  tile[threadIdx.x] += 1;
#ifndef NO_FENCE
  ptx::fence_proxy_async(ptx::space_shared);
#endif
  __syncthreads();
  if (threadIdx.x == 0) {
    ptx::cp_async_bulk(ptx::space_global, ptx::space_shared, x, tile, sizeof tile);
    ptx::cp_async_bulk_commit_group();
    ptx::cp_async_bulk_wait_group_read(ptx::n32_t<0>());
  }
}
"""
PIPELINE = r"""
#include <cooperative_groups.h>
#include <cuda/atomic>
#include <cuda/pipeline>
#include <cub/block/block_reduce.cuh>

// Sums 4 tiles of 64 through a pipeline of 2 stages.
extern "C" __global__ void sum(const int* x, int* total) {
  __shared__ alignas(16) int tiles[2][64];
  __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> stages;
  auto block = cooperative_groups::this_thread_block();
  auto pipeline = cuda::make_pipeline(block, &stages);
  auto load = [&](int tile) {
    pipeline.producer_acquire();
    if (tile < 4)
      cuda::memcpy_async(block, tiles[tile % 2], x + tile * 64, sizeof tiles[0], pipeline);
    pipeline.producer_commit();
  };
  load(0);
  int mine = 0;
  for (int tile = 0; tile < 4; tile++) {
    load(tile + 1);
    pipeline.consumer_wait();
    mine += tiles[tile % 2][threadIdx.x];
    pipeline.consumer_release();
  }
  using Reduce = cub::BlockReduce<int, 64>;
  __shared__ Reduce::TempStorage scratch;
  int all = Reduce(scratch).Sum(mine);
  if (threadIdx.x == 0) cuda::atomic_ref<int, cuda::thread_scope_device>(*total) += all;
}
"""


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
def test_barriers_and_ptx_wrappers(arch):
    x = np.arange(64, dtype="i4")
    emulator.run(BULK, 1, 64, [x], arch=arch)
    assert (x == np.arange(64) + 1).all()


def test_what_the_wrappers_compile_to_is_checked():
    with pytest.raises(MissingProxyFenceError):
        emulator.run(BULK, 1, 64, [np.zeros(64, "i4")], options=["-DNO_FENCE"])


@pytest.mark.parametrize("policy", POLICIES)
def test_pipelines_atomics_and_cub(rng, policy):
    x, total = rng.integers(-1000, 1000, 256).astype("i4"), np.array([5], "i4")
    emulator.run(PIPELINE, 1, 64, [x, total], policy=policy)
    assert total[0] == 5 + x.sum()
