"""Planted bugs in a warp-specialised TMA + mbarrier ring + tcgen05.mma matmul.

The correct kernel runs clean under every schedule; each planted bug is found under every schedule.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from async_kernels import TMA, WRAPPERS
from tcgen05_wrappers import TENSOR

from gpukit import emulator
from gpukit.emulator import errors
from gpukit.emulator.mma.descriptors import DescriptorError

BF16 = np.dtype(ml_dtypes.bfloat16)
SCHEDULES = [("random", 0), ("random", 1), ("early", 0), ("late", 0), ("starved", 0)]
KERNEL = (
    (WRAPPERS + TMA + TENSOR).replace("GROUP", "1")
    + r"""
// C[128, 64 * tiles] = A[128, K] * B[64 * tiles, K]^T. Warp 4 produces, warp 5 multiplies,
// warps 0-3 write out. Two accumulators of 64 columns take turns.
extern "C" __global__ void __launch_bounds__(192, 1)
k(const __grid_constant__ TensorMap A, const __grid_constant__ TensorMap B, float* C, int K,
  int tiles) {
  extern __shared__ __align__(1024) unsigned char ring[];
  __shared__ __align__(8) u64 full[4], empty[4], done[2], taken[2], extra;
  __shared__ u32 slot;
  const int t = threadIdx.x, lane = t % 32, warp = t / 32;
  if (t == 0) {
    for (int i = 0; i < 4; i++) { init(&full[i], 1); init(&empty[i], 1); }
    for (int i = 0; i < 2; i++) { init(&done[i], 1); init(&taken[i], ARRIVALS); }
    init(&extra, 1);
    fence_init();
  }
  BEFORE_ALLOC
  if (warp == 0) { alloc<128>(&slot); RELINQUISH }
  SYNC_AFTER_ALLOC
  const u32 tmem = slot;
  if (warp == 4) {
    int stage = 0, parity = 0;
    for (int step = 0; lane == 0 && step < tiles * K / 64; step++) {
      WAIT_EMPTY
      expect(&full[stage], BYTES);
      tma_load(ring + stage * 24576, A, step * 64 % K, 0, &full[stage]);
      tma_load(ring + stage * 24576 + 16384, B, step * 64 % K, step * 64 / K * 64, &full[stage]);
      if (++stage == STAGES) stage = 0, parity ^= 1;
    }
  } else if (warp == 5) {
    int stage = 0, parity = 0;
    for (int tile = 0; MMA_LANES && tile < tiles; tile++) {
      WAIT_TAKEN
      AFTER_TAKEN
      for (int k0 = 0; k0 < K; k0 += 64) {
        WAIT_FULL
        AFTER_FULL
        unsigned char* s = ring + stage * 24576;
        for (int j = 0; j < 4; j++)
          mma<128, 64>(tmem + tile % 2 * 64, desc(s) + 2 * j, desc(s + 16384) + 2 * j, FIRST);
        RELEASE
        if (++stage == STAGES) stage = 0, parity ^= 1;
      }
      DONE
    }
    LAST
  } else {
    for (int tile = 0; tile < tiles; tile++) {
      WAIT_DONE
      AFTER_DONE
      for (int column = 0; column < 64; column += 16) {
        float v[16];
        ld16(tmem + ((u32)LANES << 16) + tile % 2 * 64 + column, v);
        WAIT_LOAD
        for (int i = 0; i < 16; i++) C[(u64)t * 64 * tiles + tile * 64 + column + i] = v[i];
      }
      BEFORE_TAKEN
      TAKEN
    }
  }
  SYNC_AT_END
  if (warp == 0) { DEALLOC }
}"""
)

CORRECT = {
    "ARRIVALS": "128",
    "BEFORE_ALLOC": "__syncthreads();",
    "RELINQUISH": "relinquish();",
    "SYNC_AFTER_ALLOC": "before(); __syncthreads(); after();",
    "WAIT_EMPTY": "wait(&empty[stage], parity ^ 1);",
    "BYTES": "24576",
    "STAGES": "2",
    "MMA_LANES": "lane == 0",
    "WAIT_TAKEN": "wait(&taken[tile % 2], tile / 2 % 2 ^ 1);",
    "AFTER_TAKEN": "after();",
    "WAIT_FULL": "wait(&full[stage], parity);",
    "AFTER_FULL": "after();",
    "FIRST": "(k0 | j) != 0",
    "RELEASE": "commit(&empty[stage]);",
    "DONE": "commit(&done[tile % 2]);",
    "LAST": "",
    "WAIT_DONE": "wait(&done[tile % 2], tile / 2 % 2);",
    "AFTER_DONE": "after();",
    "LANES": "(warp * 32)",
    "WAIT_LOAD": "wait_ld();",
    "BEFORE_TAKEN": "before();",
    "TAKEN": "arrive(&taken[tile % 2]);",
    "SYNC_AT_END": "__syncthreads();",
    "DEALLOC": "dealloc<128>(tmem);",
}
VARIANTS = {
    "as it is": {},
    "three stages": {"STAGES": "3"},
    "no fence where no tcgen05 operation is behind the barrier": {"AFTER_FULL": ""},
    "a completed load needs no fence before the arrival": {"BEFORE_TAKEN": ""},
    "registers of a load are used at once, which waits for them": {
        "WAIT_LOAD": "", "BEFORE_TAKEN": "wait_ld(); before();"},
    "one thread of each warp says that the accumulator is free": {
        "ARRIVALS": "4", "TAKEN": "if (lane == 0) arrive(&taken[tile % 2]);"},
    "the number of the warp left out of the address": {"LANES": "0"},
    "relinquish at the end": {"RELINQUISH": "", "DEALLOC": "dealloc<128>(tmem); relinquish();"},
}  # fmt: skip
FENCE, HAZARD, RACE = (
    errors.MissingTensorFenceError, errors.AsyncHazardError, errors.DataRaceError,
)  # fmt: skip
UNWRITTEN, MEMORY = errors.UninitializedReadError, errors.TensorMemoryError
BUGS = {
    "no fence after waiting for the accumulator": ({"AFTER_DONE": ""}, FENCE),
    "no fence after waiting for the accumulator to be taken": (
        {"AFTER_TAKEN": "", "AFTER_FULL": ""}, FENCE),
    "loads not waited for before the accumulator is released": ({"WAIT_LOAD": ""}, HAZARD),
    "the epilogue does not wait for the accumulator": ({"WAIT_DONE": ""}, UNWRITTEN),
    "one warp of the epilogue does not wait": (
        {"WAIT_DONE": "if (warp != 2) wait(&done[tile % 2], tile / 2 % 2);"},
        (UNWRITTEN, HAZARD)),
    "the accumulator is overwritten before it was taken": ({"WAIT_TAKEN": ""}, RACE),
    "producer skips the empty wait": ({"WAIT_EMPTY": ""}, errors.BarrierError),
    "no wait for the full barrier": ({"WAIT_FULL": ""}, (HAZARD, DescriptorError)),
    "slot released by an arrival instead of a commit": (
        {"RELEASE": "arrive(&empty[stage]);"}, HAZARD),
    "accumulator announced by an arrival instead of a commit": (
        {"DONE": "arrive(&done[tile % 2]);"}, HAZARD),
    "slot released by a commit in front of the mmas": (
        {"AFTER_FULL": "after(); commit(&empty[stage]);", "RELEASE": ""}, HAZARD),
    "no commit for the slot": ({"RELEASE": ""}, errors.DeadlockError),
    "a commit by another thread than the one that issued": (
        {"MMA_LANES": "lane < 2", "mma<128, 64>(tmem": "if (lane == 0) mma<128, 64>(tmem",
         "RELEASE": "if (lane == 1) commit(&empty[stage]);",
         "DONE": "if (lane == 1) commit(&done[tile % 2]);"}, HAZARD),
    "a commit at the end that nobody waits for": (
        {"LAST": "if (lane == 0) commit(&extra);", "SYNC_AT_END": "__syncthreads();"},
        errors.PendingAsyncError),
    "every lane multiplies": ({"MMA_LANES": "true"}, errors.CollectiveError),
    "no dealloc": ({"DEALLOC": ""}, MEMORY),
    "dealloc of half": ({"DEALLOC": "dealloc<64>(tmem);"}, MEMORY),
    "dealloc twice": ({"DEALLOC": "dealloc<128>(tmem); dealloc<128>(tmem);"}, MEMORY),
    "dealloc while others may still load": ({"SYNC_AT_END": ""}, RACE),
    "alloc after relinquish": ({"BEFORE_ALLOC": "if (warp == 3) relinquish(); __syncthreads();"},
                               MEMORY),
    "no barrier behind the allocation": ({"SYNC_AFTER_ALLOC": ""}, (RACE, UNWRITTEN)),
    "the address is taken for granted, and nothing orders its use": (
        {"SYNC_AFTER_ALLOC": "", "const u32 tmem = slot": "const u32 tmem = 0"}, RACE),
    "a warp loads the lanes of another": ({"LANES": "(warp * 32 ^ 32)"}, MEMORY),
    "three warps load the lanes of the second": ({"LANES": "32"}, MEMORY),
    "columns beyond the allocation": (
        {"alloc<128>(&slot)": "alloc<64>(&slot)", "DEALLOC": "dealloc<64>(tmem);"},
        errors.OutOfBoundsError),
    "the first mma adds to what was never written": (
        {"FIRST": "1"}, UNWRITTEN),
    "expect_tx too small": ({"BYTES": "8192"}, (errors.BarrierError, errors.DeadlockError)),
    "arrivals of one elected thread where all are counted": (
        {"TAKEN": "if (lane == 0) arrive(&taken[tile % 2]);"}, errors.DeadlockError),
}  # fmt: skip


def source(change):
    text = KERNEL
    changes = {**CORRECT, **change}
    for name, value in sorted(changes.items(), key=lambda item: -len(item[0])):
        assert name in text, name
        text = text.replace(name, value)
    return text


def multiply(change, policy="random", seed=0, **options):
    """The kernel's product and the right one, of small integers."""
    rng = np.random.default_rng(1)
    tiles, k = 3, 128
    a, b = (rng.integers(-3, 4, (rows, k)).astype(BF16) for rows in (128, 64 * tiles))
    c = np.zeros((128, 64 * tiles), "f4")
    maps = [emulator.TensorMap(m, (64, rows), swizzle="128B") for m, rows in ((a, 128), (b, 64))]
    result = emulator.run(
        source(change), 1, 192, [*maps, c, np.int32(k), np.int32(tiles)], shared_bytes=3 * 24576,
        arch="sm_100a", policy=policy, seed=seed, budget=2_000_000, **options,
    )  # fmt: skip
    return c, a.astype("f4") @ b.astype("f4").T, result


@pytest.mark.parametrize("variant", VARIANTS)
def test_correct_kernels_run_clean(variant):
    for policy, seed in SCHEDULES:
        got, want, _ = multiply(VARIANTS[variant], policy, seed)
        assert (got == want).all()


@pytest.mark.parametrize("bug", BUGS)
def test_planted_bugs_are_reported(bug):
    change, error = BUGS[bug]
    for policy, seed in SCHEDULES:
        with pytest.raises(error):
            multiply(change, policy, seed)


def test_trace_has_the_tensor_core_and_tensor_memory():
    trace = emulator.Trace()
    multiply({}, listeners=[trace])
    tracks = [(span.track, span.name) for span in trace.spans]
    assert tracks.count(("MMA", "tcgen05.mma")) == 3 * 2 * 4
    assert tracks.count(("TMEM", "tcgen05.ld")) == 3 * 4 * 4
    assert tracks.count(("TMEM", "tcgen05.commit")) == 3 * 2 + 3


def test_counters_do_not_depend_on_the_schedule():
    """Four bytes per cell, 2 M N K operations."""
    results = [multiply({}, policy, seed)[2].counters for policy, seed in SCHEDULES]
    assert all(result.extra == results[0].extra for result in results)
    assert results[0].extra["tmem_load_bytes"] == 3 * 128 * 64 * 4
    assert results[0].extra["flops bf16"] == 2 * 128 * 192 * 128
