"""Reads of global memory: none is forgotten when somebody writes, however late it is noted."""

from __future__ import annotations

import numpy as np
import pytest

from gpukit import emulator
from gpukit.emulator.check import history
from gpukit.emulator.errors import DataRaceError

# Warps read x one after the other, told by flags that order nothing; only the last of them meets
# the writer at a barrier.
READERS = r"""
extern "C" __global__ void k(int* x, int* y, volatile int* flag, int reads) {
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, last = blockDim.x / 32 - 2, sum = 0;
  if (warp <= last) {
    if (warp > 0) while (flag[warp - 1] == 0) {}
    for (int i = 0; i < reads; i++) sum += x[INDEX];
    y[warp * 32 + lane] = sum;
    __syncwarp();
    if (lane == 0) flag[warp] = 1;
  }
  if (warp >= last) asm volatile("bar.sync 1, 64;" ::: "memory");
  if (warp > last) x[lane] = 7;
  __syncthreads();
}
"""


def run(index, readers, reads=1, **options):
    x, y, flag = np.arange(64, dtype="i4"), np.zeros(256, "i4"), np.zeros(8, "i4")
    emulator.run(READERS.replace("INDEX", index), 1, 32 * (readers + 1),
                 [x, y, flag, np.int32(reads)], **options)  # fmt: skip
    return x, y


@pytest.mark.parametrize("index", ["lane", "lane ^ 1", "5", "lane + i % 2"])
def test_a_write_is_ordered_after_the_last_reader_only(index):
    with pytest.raises(DataRaceError, match=r"writes what warp 0 of .* read"):
        run(index, 2)


@pytest.mark.parametrize("policy", ["random", "starved"])
def test_one_reader_that_the_writer_waited_for(policy):
    x, y = run("lane", 1, policy=policy)
    assert (x[:32] == 7).all()
    assert (y[:32] == np.arange(32)).all()


@pytest.mark.parametrize("kept", [1, 3, 1 << 16])
def test_however_many_reads_wait_to_be_noted(kept, monkeypatch):
    monkeypatch.setattr(history, "KEPT_READS", kept)
    with pytest.raises(DataRaceError, match=r"writes what warp 0 of .* read"):
        run("lane ^ i", 2, reads=8)
    run("lane ^ i", 1, reads=8)


@pytest.mark.parametrize("offset", [0, 1, 2, 3])
def test_wide_accesses_of_arrays_at_any_address(offset):
    """The address decides which bytes are meant, not where the array begins."""
    source = """extern "C" __global__ void k(const char* x, char* y) {
      const char* p = (const char*)(((unsigned long long)x + 15) / 16 * 16);
      char* q = (char*)(((unsigned long long)y + 15) / 16 * 16);
      ((double*)q)[threadIdx.x] = ((const double*)p)[threadIdx.x]; }"""
    x, y = np.arange(1, 81, dtype="i4")[offset:], np.zeros(80, "i4")[3 - offset :]
    start, end = (-array.ctypes.data % 16 // 4 for array in (x, y))
    emulator.run(source, 1, 32, [x, y])
    assert (y[end : end + 64] == x[start : start + 64]).all()
    assert not y[end + 64 :].any()


# Shared memory: a warp that has seen every warp's latest access need not look closer, until
# somebody accesses it again.
SHARED = r"""
extern "C" __global__ void k(int* y) {
  __shared__ int s[256];
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, t = threadIdx.x;
  s[t] = t;
  __syncthreads();
  int sum = s[(t + 32) % 128] + s[(t + 64) % 128];
  __syncthreads();
  if (warp == 0) s[lane] = sum;
  if (warp == 1) sum += s[EARLY];
  __syncthreads();
  if (warp == 2) sum += s[lane];
  if (warp == 3) s[LATE] = sum;
  y[blockIdx.x * 128 + t] = sum;
}
"""


def run_shared(early, late, policy, seed=0):
    y = np.zeros(3 * 128, "i4")
    source = SHARED.replace("EARLY", early).replace("LATE", late)
    emulator.run(source, 3, 128, [y], policy=policy, seed=seed)
    return y.reshape(3, 128)


@pytest.mark.parametrize("policy", ["random", "starved", "late"])
def test_shared_accesses_between_barriers(policy):
    t = np.arange(128)
    sums = (t + 32) % 128 + (t + 64) % 128
    sums[32:64] += 64 + np.arange(32)
    sums[64:96] += sums[:32]
    assert (run_shared("64 + lane", "96 + lane", policy) == sums).all()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("policy", ["random", "starved"])
def test_the_first_access_that_is_not_ordered_is_found(policy, seed):
    for early, late in (("lane", "96 + lane"), ("64 + lane", "lane"), ("31 - lane", "96 + lane"),
                        ("64 + lane", "31"), ("lane / 2", "96 + lane")):  # fmt: skip
        with pytest.raises(DataRaceError):
            run_shared(early, late, policy, seed)


@pytest.mark.parametrize("kept", [1, 2, 7])
@pytest.mark.parametrize("policy", ["random", "starved"])
def test_however_many_shared_reads_wait_to_be_noted(kept, policy, monkeypatch):
    monkeypatch.setattr(history, "KEPT_READS", kept)
    test_shared_accesses_between_barriers(policy)
    for seed in range(6):
        test_the_first_access_that_is_not_ordered_is_found(policy, seed)


def test_shared_reads_that_all_have_seen_are_forgotten(monkeypatch):
    """A long kernel that keeps its barriers notes next to no read."""
    monkeypatch.setattr(history, "KEPT_READS", 64)
    noted = []
    note = history.ReadersPerWarp.note
    monkeypatch.setattr(history.ReadersPerWarp, "note",
                        lambda self, *read: noted.append(read) or note(self, *read))  # fmt: skip
    source = """extern "C" __global__ void k(int* y) { __shared__ int s[64]; int t = threadIdx.x;
      s[t] = t;
      for (int i = 0; i < 100; i++) {
        __syncthreads(); int v = s[t ^ 32]; __syncthreads(); s[t] = v + 1; }
      y[t] = s[t]; }"""
    y = np.zeros(64, "i4")
    emulator.run(source, 1, 64, [y], policy="starved")
    assert (y == np.arange(64) + 100).all()
    assert len(noted) < 20
