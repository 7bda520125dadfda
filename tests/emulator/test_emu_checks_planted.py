"""Planted bugs in a warp-specialised TMA + mbarrier ring + wgmma + TMA store matmul.

The correct kernel runs clean under every schedule; each planted bug is found under every schedule.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from async_kernels import TMA, WGMMA, WRAPPERS

from gpukit import emulator

BF16 = np.dtype(ml_dtypes.bfloat16)
POLICIES = ("random", "early", "late", "starved")
SCHEDULES = [(policy, seed) for policy in POLICIES for seed in range(2)]
KERNEL = WRAPPERS + TMA + WGMMA + r"""
// C[64, 64 * tiles] = A[64, K] * B[64 * tiles, K]^T. Warp 4 produces, warps 0-3 multiply.
extern "C" __global__ void __launch_bounds__(160, 1)
k(const __grid_constant__ TensorMap A, const __grid_constant__ TensorMap B,
  const __grid_constant__ TensorMap C, int K, int tiles) {
  extern __shared__ __align__(1024) unsigned char ring[];
  __shared__ __align__(128) float out[64 * 64];
  __shared__ __align__(8) u64 full[4], empty[4];
  const int t = threadIdx.x, lane = t % 32, warp = t / 32;
  if (t == 0) {
    for (int i = 0; i < 4; i++) { init(&full[i], 1); init(&empty[i], ARRIVALS); }
    fence_init();
  }
  SYNC_AFTER_INIT
  if (warp == 4) {
    int stage = 0, parity = 0;
    for (int step = 0; lane == 0 && step < tiles * K / 64; step++) {
      WAIT_EMPTY
      expect(&full[stage], BYTES);
      tma_load(ring + stage * 16384, A, step * 64 % K, 0, &full[stage]);
      tma_load(ring + stage * 16384 + 8192, B, step * 64 % K, step * 64 / K * 64, &full[stage]);
      if (++stage == PRODUCER_STAGES) stage = 0, parity ^= 1;
    }
    return;
  }
  int stage = 0, parity = 0;
  for (int tile = 0; tile < tiles; tile++) {
    float d[32];
    for (int k0 = 0; k0 < K; k0 += 64) {
      WAIT_FULL
      unsigned char* s = ring + stage * 16384;
      asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
      for (int j = 0; j < 4; j++) mma(d, desc(s) + 2 * j, desc(s + 8192) + 2 * j, (k0 | j) != 0);
      asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
      RELEASE_EARLY
      asm volatile(WAIT_WGMMA ::: "memory");
      READ_TILE
      RELEASE
      if (++stage == CONSUMER_STAGES) stage = 0, parity ^= 1;
    }
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    if (tile && t == 0) { WAIT_STORE }
    SYNC_BEFORE_EPILOGUE
    for (int i = 0; i < 32; i++)
      out[(warp * 16 + lane / 4 + i / 2 % 2 * 8) * 64 + i / 4 * 8 + lane % 4 * 2 + i % 2] = d[i];
    PROXY_FENCE
    SYNC_BEFORE_STORE
    if (t == 0) { tma_store(C, tile * 64, 0, out); bulk_commit(); }
  }
  if (t == 0) { WAIT_LAST_STORE }
}"""

CORRECT = {
    "SBO": "64",
    "ARRIVALS": "128",
    "SYNC_AFTER_INIT": "__syncthreads();",
    "WAIT_EMPTY": "wait(&empty[stage], parity ^ 1);",
    "BYTES": "16384",
    "PRODUCER_STAGES": "STAGES",
    "CONSUMER_STAGES": "STAGES",
    "WAIT_FULL": "wait(&full[stage], parity);",
    "RELEASE_EARLY": "",
    "WAIT_WGMMA": '"wgmma.wait_group.sync.aligned 0;"',
    "READ_TILE": "",
    "RELEASE": "arrive(&empty[stage]);",
    "WAIT_STORE": "bulk_wait_read<0>();",
    "SYNC_BEFORE_EPILOGUE": 'asm volatile("bar.sync 1, 128;" ::: "memory");',
    "PROXY_FENCE": "fence_async();",
    "SYNC_BEFORE_STORE": 'asm volatile("bar.sync 2, 128;" ::: "memory");',
    "WAIT_LAST_STORE": "bulk_wait_read<0>();",
    "STAGES": "2",
}
#: A wgmma-group is the whole warpgroup's, so one thread may say that its operands are free.
ONE_SIGNAL = {"ARRIVALS": "1", "RELEASE": "if (t == 0) arrive(&empty[stage]);"}
ORDINARY_READ = {"READ_TILE": 'if (lane == 0) asm volatile("{ .reg .u32 v;'
                 ' ld.shared.u32 v, [%0]; }" :: "r"(smem(s) + warp * 4) : "memory");'}  # fmt: skip
SYNC, FENCE = CORRECT["SYNC_BEFORE_STORE"], CORRECT["PROXY_FENCE"]
VARIANTS = {
    "as it is": {},
    "four stages": {"STAGES": "4"},
    "one thread of the warpgroup signals": ONE_SIGNAL,
    "another thread of the warpgroup signals": {
        **ONE_SIGNAL, "RELEASE": "if (t == 77) arrive(&empty[stage]);"},
    "one thread of each warp signals": {
        "ARRIVALS": "4", "RELEASE": "if (lane == 0) arrive(&empty[stage]);"},
    "one thread signals, four stages": {**ONE_SIGNAL, "STAGES": "4"},
    "every warp also reads the tile itself": ORDINARY_READ,
    "the storing thread fences": {"PROXY_FENCE": "", "SYNC_BEFORE_STORE": f"{SYNC} {FENCE}"},
    "the whole store is awaited": {"WAIT_LAST_STORE": "bulk_wait<0>();"},
    "a CTA barrier's worth of threads": {
        "SYNC_BEFORE_EPILOGUE": 'asm volatile("barrier.sync 3, 128;" ::: "memory");'},
}  # fmt: skip
BUGS = {
    "no fence.proxy.async before the TMA store": {"PROXY_FENCE": ""},
    "the fence comes after the barrier, from another thread": {
        "PROXY_FENCE": "", "SYNC_BEFORE_STORE": f"{SYNC} if (t == 32) {FENCE}"},
    "no barrier before the TMA store": {"SYNC_BEFORE_STORE": ""},
    "slot released before the wgmmas that read it are done": {
        "RELEASE_EARLY": "arrive(&empty[stage]);", "RELEASE": ""},
    "wgmmas not waited for before the slot is released": {
        "WAIT_WGMMA": '"wgmma.wait_group.sync.aligned 1;"'},
    "one thread signals before the warpgroup's wgmmas are done": {
        **ONE_SIGNAL, "WAIT_WGMMA": '"wgmma.wait_group.sync.aligned 1;"'},
    "one thread signals before it waits for the wgmmas": {
        "ARRIVALS": "1", "RELEASE_EARLY": ONE_SIGNAL["RELEASE"], "RELEASE": ""},
    "one thread signals, but the others read the tile by themselves": {
        **ONE_SIGNAL, **ORDINARY_READ},
    "no wait for the full barrier": {"WAIT_FULL": ""},
    "one warp does not wait for the full barrier": {
        "WAIT_FULL": "if (warp != 2) wait(&full[stage], parity);"},
    "expect_tx too small": {"BYTES": "8192"},
    "expect_tx 16 bytes too large": {"BYTES": "16400"},
    "producer skips the empty wait": {"WAIT_EMPTY": ""},
    "consumer parity inverted": {"WAIT_FULL": "wait(&full[stage], parity ^ 1);"},
    "producer parity inverted": {"WAIT_EMPTY": "wait(&empty[stage], parity);"},
    "consumer ring of 2, producer ring of 3": {"PRODUCER_STAGES": "3"},
    "no barrier after the mbarriers' initialisation": {"SYNC_AFTER_INIT": ""},
    "output buffer reused while the last store may read it": {"WAIT_STORE": ""},
    "output buffer reused without telling the other warps": {"SYNC_BEFORE_EPILOGUE": ""},
    "exit while the last store may still read": {"WAIT_LAST_STORE": ""},
    "one warp arrives at another barrier": {
        "SYNC_BEFORE_STORE": 'asm volatile("bar.sync %0, 128;" :: "r"(warp == 3 ? 3 : 2));'},
    "too many threads for the barrier": {
        "SYNC_BEFORE_STORE": 'asm volatile("bar.sync 2, 160;" ::: "memory");'},
}  # fmt: skip
WRONG_VALUES = {
    "descriptor SBO 512": {"SBO": "32"},
    "accumulators of the tile before": {"RELEASE": "arrive(&empty[stage]); if (!k0) d[0] += 1;"},
}


def source(change):
    text = KERNEL
    for name, value in {**CORRECT, **change}.items():
        text = text.replace(name, value)
    return text


def multiply(change, policy="random", seed=0, checks=True):
    """The kernel's product and the right one, of small integers."""
    rng = np.random.default_rng(1)
    tiles, k = 2, 256
    a, b = (rng.integers(-3, 4, (rows, k)).astype(BF16) for rows in (64, 64 * tiles))
    c = np.zeros((64, 64 * tiles), "f4")
    maps = [emulator.TensorMap(m, (64, 64), swizzle="128B") for m in (a, b)]
    maps.append(emulator.TensorMap(c, (64, 64)))
    emulator.run(
        source(change), 1, 160, [*maps, np.int32(k), np.int32(tiles)], shared_bytes=65536,
        policy=policy, seed=seed, checks=checks, budget=2_000_000,
    )  # fmt: skip
    return c, a.astype("f4") @ b.astype("f4").T


@pytest.mark.parametrize("variant", VARIANTS)
def test_correct_kernels_run_clean(variant):
    for policy, seed in SCHEDULES:
        got, want = multiply(VARIANTS[variant], policy, seed)
        assert (got == want).all()


@pytest.mark.parametrize("bug", BUGS)
def test_planted_bugs_are_reported(bug):
    for policy, seed in SCHEDULES:
        with pytest.raises(emulator.KernelFault):
            multiply(BUGS[bug], policy, seed)


@pytest.mark.parametrize("bug", WRONG_VALUES)
def test_wrong_layouts_give_wrong_values(bug):
    for policy, seed in SCHEDULES:
        got, want = multiply(WRONG_VALUES[bug], policy, seed)
        assert (got != want).any()
