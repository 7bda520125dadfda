"""Flags in memory: which fences order data before it is read, under every schedule.

CTA 0 (64 threads) writes x, then raises a flag; CTA 1 waits for the flag, then all its threads
read what other warps wrote.
"""

from __future__ import annotations

import pytest
from twins import reported, silent

from gpukit.emulator.errors import DataRaceError

KERNEL = """
__device__ unsigned int flag = 0;
__device__ float data[64];
__device__ unsigned int relaxed(unsigned int* p) {
  unsigned int v;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v; }
__device__ unsigned int acquired(unsigned int* p) {
  unsigned int v;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v; }
extern "C" __global__ void k(const float* x, float* y) {
  volatile unsigned int* seen = &flag;
  const int t = threadIdx.x;
  const bool first = t == 0;
  if (blockIdx.x == 0) {
    data[t] = x[t];
    RELEASE
  } else {
    ACQUIRE
    y[t] = data[63 - t];
  }
}"""
RELEASES = {
    "one thread fences for all": "__syncthreads(); if (first) { __threadfence(); *seen = 1; }",
    "every thread fences": "__threadfence(); __syncthreads(); if (first) *seen = 1;",
    "atomic": "__syncthreads(); if (first) { __threadfence(); atomicExch(&flag, 1u); }",
    "release": "__syncthreads(); if (first)"
    ' asm volatile("st.release.gpu.global.u32 [%0], 1;" :: "l"(&flag) : "memory");',
}
NO_RELEASES = {
    "no fence": "__syncthreads(); if (first) *seen = 1;",
    "fence too early": "if (t >= 32) __threadfence(); __syncthreads(); if (first) *seen = 1;",
    "fence too late": "__syncthreads(); if (first) { *seen = 1; __threadfence(); }",
}
ACQUIRES = {
    "volatile, fence": "if (first) { while (!*seen) ; __threadfence(); } __syncthreads();",
    "volatile, barrier, fence of each": "if (first) while (!*seen) ; __syncthreads();"
    " __threadfence();",
    "relaxed, fence": "if (first) { while (!relaxed(&flag)) ; __threadfence(); } __syncthreads();",
    "acquire": "if (first) while (!acquired(&flag)) ; __syncthreads();",
    "atomic, fence": "if (first) { while (!atomicAdd(&flag, 0u)) ; __threadfence(); }"
    " __syncthreads();",
    "every thread polls": "while (!*seen) ; __threadfence();",
}
NO_ACQUIRES = {
    "volatile": "if (first) while (!*seen) ; __syncthreads();",
    "relaxed": "if (first) while (!relaxed(&flag)) ; __syncthreads();",
    "fence before the loads": "if (first) { __threadfence(); while (!*seen) ; } __syncthreads();",
    "fence of another warp": "if (first) while (!*seen) ; __syncthreads();"
    " if (t >= 32) __threadfence();",
}
GOOD, GOOD_ACQUIRE = RELEASES["one thread fences for all"], ACQUIRES["volatile, fence"]


def source(release, acquire):
    return KERNEL.replace("RELEASE", release).replace("ACQUIRE", acquire)


@pytest.mark.parametrize("release", RELEASES)
def test_releases(release):
    for acquire in (GOOD_ACQUIRE, ACQUIRES["acquire"]):
        y = silent(source(RELEASES[release], acquire), 2, 64)
        assert (y[:64] == range(63, -1, -1)).all()


@pytest.mark.parametrize("release", NO_RELEASES)
def test_missing_releases(release):
    reported(source(NO_RELEASES[release], GOOD_ACQUIRE), 2, 64, DataRaceError, r"reads what warp")


@pytest.mark.parametrize("acquire", ACQUIRES)
def test_acquires(acquire):
    silent(source(GOOD, ACQUIRES[acquire]), 2, 64)


@pytest.mark.parametrize("acquire", NO_ACQUIRES)
def test_missing_acquires(acquire):
    """A barrier hands on that the flag was up, not what was written before it."""
    reports = reported(source(GOOD, NO_ACQUIRES[acquire]), 2, 64, DataRaceError,
                       r"reads what warp \d of CTA \(0, 0, 0\)")  # fmt: skip
    assert all("CTA (1, 0, 0)" in report for report in reports)


def test_a_barrier_of_the_writer_needs_no_fence():
    """Within a CTA the barrier itself orders; the flag is beside the point."""
    silent("""
extern "C" __global__ void k(const float* x, float* y) {
  __shared__ float s[64]; __shared__ volatile int up; int t = threadIdx.x;
  if (t == 0) up = 0;
  s[t] = x[t]; __syncthreads();
  if (t == 32) up = 1;
  __syncthreads();
  if (up) y[t] = s[63 - t];
}""", 1, 64)  # fmt: skip


LAST = """
__device__ unsigned int tickets = 0;
__device__ float sums[8];
extern "C" __global__ void k(const float* x, float* y) {
  __shared__ bool last;
  if (threadIdx.x == 0) {
    sums[blockIdx.x] = x[blockIdx.x];
    __threadfence();
    TICKET
  }
  __syncthreads();
  if (last && threadIdx.x >= 32 && threadIdx.x < 32 + gridDim.x) {
    y[threadIdx.x] = sums[threadIdx.x - 32];
  }
}"""


def test_the_last_cta_of_a_reduction():
    """By custom an atomic ticket needs no fence behind it; the same by loads and stores does."""
    atomic = "last = atomicInc(&tickets, gridDim.x - 1) == gridDim.x - 1;"
    silent(LAST.replace("TICKET", atomic), 8, 64)
    polled = """atomicAdd(&tickets, 1u); last = blockIdx.x == 0;
    while (last && *(volatile unsigned int*)&tickets != gridDim.x) ; HERE"""
    polled = LAST.replace("TICKET", polled)
    silent(polled.replace("HERE", "__threadfence();"), 8, 64)
    # Were CTA 0 the last to arrive, its own atomic would tell it everything.
    first = "while (blockIdx.x && !*(volatile unsigned int*)&tickets) ; sums[blockIdx.x] = "
    late = polled.replace("HERE", "").replace("sums[blockIdx.x] = ", first)
    reported(late, 8, 64, DataRaceError, "reads what warp 0")
