"""Traps of two-CTA kernels, planted in a matmul by pairs of CTAs.

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

BF16 = np.dtype(ml_dtypes.bfloat16)
SCHEDULES = [("random", 0), ("random", 1), ("early", 0), ("late", 0), ("starved", 0)]
STAGE = 16384 + 4096  # bytes of 128 rows of A and 32 of B, 64 columns of K
KERNEL = (
    (WRAPPERS + TMA + TENSOR).replace("GROUP", "2")
    + r"""
__device__ inline void arrive_at(u32 b) {
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" :: "r"(b)
               : "memory"); }
__device__ inline void tma_pair(void* to, const TensorMap& map, int x, int y, u32 b) {
  asm volatile("cp.async.bulk.tensor.2d.cta_group::2.shared::cluster.global"
               ".mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" :: "r"(smem(to)),
               "l"(generic(map)), "r"(x), "r"(y), "r"(b) : "memory"); }

// C[256 per pair, 64 * tiles] = A * B^T. In both CTAs warp 4 loads its half of A and B and warps
// 0-3 write their half of C; warp 5 of the even one multiplies. What both have loaded is counted
// by full[stage] of the even CTA, in one of two ways.
extern "C" __global__ void __launch_bounds__(224, 1)
k(const __grid_constant__ TensorMap A, const __grid_constant__ TensorMap B, float* C, int K,
  int tiles) {
  extern __shared__ __align__(1024) unsigned char ring[];
  __shared__ __align__(8) u64 loaded[4], full[4], empty[4], done[2], taken[2];
  __shared__ u32 slot;
  const int t = threadIdx.x, lane = t % 32, warp = t / 32, steps = K / 64;
  const u32 rank = cluster_rank(), odd = rank & 1, lead = rank & ~1u;
  const u16 both = 3 << lead;
  const int row = blockIdx.x * 128;
  if (t == 0) {
    for (int i = 0; i < 4; i++) { init(&loaded[i], 1); init(&full[i], FULL); init(&empty[i], 1); }
    for (int i = 0; i < 2; i++) { init(&done[i], 1); init(&taken[i], TAKERS); }
    fence_init();
  }
  if (warp == 0) { alloc<128>(&slot); relinquish(); }
  SYNC_AFTER_ALLOC
  const u32 tmem = slot;
  if (warp == 4) {
    int stage = 0, parity = 0;
    for (int step = 0; lane == 0 && step < PRODUCED * steps; step++) {
      unsigned char* s = ring + stage * 20480;
      int x = step % steps * 64, column = step / steps * 64 + odd * 32;
      WAIT_EMPTY
      LOAD
      if (++stage == STAGES) stage = 0, parity ^= 1;
    }
  } else if (warp == 6) {
    int stage = 0, parity = 0;
    for (int step = 0; lane == 0 && step < tiles * steps; step++) {
      MESSENGER
      if (++stage == STAGES) stage = 0, parity ^= 1;
    }
  } else if (warp == 5) {
    int stage = 0, parity = 0;
    for (int tile = 0; MULTIPLIER && lane == 0 && tile < tiles; tile++) {
      wait(&taken[tile % 2], tile / 2 % 2 ^ 1);
      after();
      for (int step = 0; step < steps; step++) {
        WAIT_FULL
        after();
        unsigned char* s = ring + stage * 20480;
        for (int j = 0; j < 4; j++)
          mma<256, 64>(tmem + tile % 2 * 64, desc(s) + 2 * j, desc(s + 16384) + 2 * j,
                       (step | j) != 0);
        RELEASE
        if (++stage == STAGES) stage = 0, parity ^= 1;
      }
      DONE
    }
  } else if (warp < 4) {
    for (int tile = 0; tile < tiles; tile++) {
      wait(&done[tile % 2], tile / 2 % 2);
      after();
      for (int column = 0; column < 64; column += 16) {
        float v[16];
        ld16(tmem + ((u32)warp * 32 << 16) + tile % 2 * 64 + column, v);
        wait_ld();
        for (int i = 0; i < 16; i++)
          C[(u64)(row + t) * 64 * tiles + tile * 64 + column + i] = v[i];
      }
      before();
      TAKE
    }
  }
  SYNC_AT_END
  if (warp == 0) dealloc<128>(tmem);
}"""
)

PAIR_BARRIER = {  # both CTAs' copies report to the even CTA, which expects the bytes of both
    "FULL": "1",
    "LOAD": """if (!odd) expect(&full[stage], EXPECTED);
      u32 bar = smem(&full[stage]) & 0xFEFFFFFF;
      tma_pair(s, A, x, row, bar);
      tma_pair(s + 16384, B, x, column, bar);""",
    "MESSENGER": "break;",
    "WAIT_FULL": "wait(&full[stage], parity);",
    "EXPECTED": "2 * 20480",
}
MESSENGERS = {  # each CTA waits for its own copies and then tells the even one
    "FULL": "2",
    "LOAD": """expect(&loaded[stage], 20480);
      tma_load(s, A, x, row, &loaded[stage]);
      tma_load(s + 16384, B, x, column, &loaded[stage]);""",
    "MESSENGER": "wait(&loaded[stage], parity); arrive_at(remote(&full[stage], lead));",
    "WAIT_FULL": "wait(&full[stage], parity);",
}
CORRECT = {
    **PAIR_BARRIER,
    "SYNC_AFTER_ALLOC": "before(); cluster_sync(); after();",
    "SYNC_AT_END": "before(); cluster_sync(); after();",
    "TAKERS": "256",
    "PRODUCED": "tiles",
    "MULTIPLIER": "!odd",
    "WAIT_EMPTY": "wait(&empty[stage], parity ^ 1);",
    "RELEASE": "commit_to(&empty[stage], both);",
    "DONE": "commit_to(&done[tile % 2], both);",
    "TAKE": "arrive_at(remote(&taken[tile % 2], lead));",
    "STAGES": "3",
}
VARIANTS = {
    "the pair's barrier": {},
    "messengers": MESSENGERS,
    "one stage": {"STAGES": "1"},
    "four stages": {"STAGES": "4", **MESSENGERS},
    "lanes counted through the pair": {"(u32)warp * 32": "odd * 128 + warp * 32"},
    "one arrival per warp": {
        "TAKERS": "8", "TAKE": "if (lane == 0) arrive_at(remote(&taken[tile % 2], lead));"},
}  # fmt: skip
HAZARD, MISUSED = errors.AsyncHazardError, errors.BarrierError
STUCK = errors.DeadlockError
#: Numbers are those of the list of known traps.
BUGS = {
    "3: one barrier for the loads of all stages": (
        {**MESSENGERS, "FULL": "2", "arrive_at(remote(&full[stage], lead))":
         "arrive_at(remote(&full[0], lead))", "wait(&full[stage], parity)":
         "wait(&full[0], (tile * steps + step) % 2)"}, (HAZARD, MISUSED)),
    "4: the bytes of one CTA expected": (
        {"EXPECTED": "20480"}, (HAZARD, MISUSED, STUCK)),
    "4: the bytes of twice the pair expected": ({"EXPECTED": "4 * 20480"}, STUCK),
    "5: the odd CTA has a tile less to load": (
        {"PRODUCED": "(tiles - odd)"}, STUCK),
    "7: producers run ahead": ({"WAIT_EMPTY": ""}, (HAZARD, MISUSED)),
    "7: producers run ahead in the odd CTA": (
        {"WAIT_EMPTY": "if (!odd) wait(&empty[stage], parity ^ 1);"}, (HAZARD, MISUSED)),
    "1, 10: the end does not wait for the peer": (
        {"SYNC_AT_END": "__syncthreads();"}, errors.RemoteAccessError),
    "11: accumulators are taken by one CTA's threads": ({"TAKERS": "128"}, MISUSED),
    "11: accumulators are given back to the own CTA": (
        {"TAKE": "arrive(&taken[tile % 2]);"}, STUCK),
    "11: only the even CTA hears of the accumulator": ({"DONE": "commit(&done[tile % 2]);"}, STUCK),
    "11: only the even CTA hears of the slot": ({"RELEASE": "commit(&empty[stage]);"}, STUCK),
    "lanes of the other CTA": (
        {"(u32)warp * 32": "128 - odd * 128 + warp * 32"}, errors.TensorMemoryError),
    "both CTAs multiply": ({"MULTIPLIER": "true"}, STUCK),
    "copies of the odd CTA report to itself": (
        {"& 0xFEFFFFFF": ""}, STUCK),
    "no barrier behind the allocation": (
        {"SYNC_AFTER_ALLOC": ""}, (errors.DataRaceError, errors.UninitializedReadError)),
}  # fmt: skip


def source(change):
    text = KERNEL
    changes = {**CORRECT, **change}
    ordered = sorted(changes.items(), key=lambda item: name_order(item[0]))
    for name, value in ordered * 2:  # texts may contain further names
        text = text.replace(name, value)
    return text


def name_order(name):
    """Code that is changed inside of a placeholder's text comes after the placeholders."""
    return (not name.isidentifier(), -len(name))


def multiply(change, policy="random", seed=0, pairs=1, cluster=2, steps=2):
    """The kernel's product and the right one, of small integers."""
    rng = np.random.default_rng(1)
    tiles, k = 3, 64 * steps
    a, b = (rng.integers(-3, 4, (rows, k)).astype(BF16) for rows in (256 * pairs, 64 * tiles))
    c = np.zeros((256 * pairs, 64 * tiles), "f4")
    maps = [emulator.TensorMap(m, (64, rows), swizzle="128B") for m, rows in ((a, 128), (b, 32))]
    emulator.run(
        source(change), 2 * pairs, 224, [*maps, c, np.int32(k), np.int32(tiles)],
        shared_bytes=4 * STAGE, arch="sm_100a", policy=policy, seed=seed, cluster=cluster,
        budget=2_000_000,
    )  # fmt: skip
    return c, a.astype("f4") @ b.astype("f4").T


@pytest.mark.parametrize("variant", VARIANTS)
def test_correct_kernels_run_clean(variant):
    for policy, seed in SCHEDULES:
        got, want = multiply(VARIANTS[variant], policy, seed)
        assert (got == want).all()


def test_two_pairs_of_a_cluster():
    got, want = multiply({}, pairs=2, cluster=4)
    assert (got == want).all()


@pytest.mark.parametrize("bug", BUGS)
def test_planted_bugs_are_reported(bug):
    change, error = BUGS[bug]
    for policy, seed in SCHEDULES:
        with pytest.raises(error):
            multiply(change, policy, seed)
