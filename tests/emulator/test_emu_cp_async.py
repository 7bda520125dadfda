"""cp.async: sizes, zero fill, groups per thread, mbarrier arrivals, and early reads."""

from __future__ import annotations

import numpy as np
import pytest
from async_kernels import WRAPPERS

from gpukit import emulator
from gpukit.emulator.errors import (
    AsyncHazardError,
    BarrierError,
    DeadlockError,
    KernelFault,
    MisalignedError,
    OutOfBoundsError,
    UninitializedReadError,
    UnsupportedInstructionError,
)
from gpukit.emulator.policies import POLICIES

COPY = WRAPPERS + r"""
extern "C" __global__ void k(const unsigned char* x, unsigned char* y, const int* given) {
  __shared__ __align__(16) unsigned char tile[1024];
  int t = threadIdx.x;
  unsigned n = given[t];
  unsigned ignore = n & 1;
  asm volatile("{ .reg .pred p; setp.ne.u32 p, %3, 0;"
               " cp.async.CACHE.shared.global.L2::128B [%0], [%1], SIZE OPERAND; }"
               :: "r"(smem(tile + t * SIZE)), "l"(x + t * STRIDE), "r"(n), "r"(ignore) : "memory");
  asm volatile("cp.async.wait_all;" ::: "memory");
  __syncwarp();
  for (int i = 0; i < SIZE; i++) y[t * SIZE + i] = tile[t * SIZE + i]; }"""


def copy(size, operand="", given=None, cache="ca", stride=None, source=None, **options):
    stride = size if stride is None else stride
    text = COPY.replace("SIZE", str(size)).replace("CACHE", cache).replace("STRIDE", str(stride))
    x = np.arange(32 * max(stride, size), dtype="u2").astype("u1") if source is None else source
    y = np.zeros(32 * size, "u1")
    given = np.zeros(32, "i4") if given is None else given
    result = emulator.run(text.replace("OPERAND", operand), 1, 32, [x, y, given], **options)
    return x, y.reshape(32, size), result


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(("size", "cache"), [(4, "ca"), (8, "ca"), (16, "ca"), (16, "cg")])
def test_copies(size, cache, policy):
    x, y, result = copy(size, cache=cache, policy=policy)
    assert (y.ravel() == x).all()
    assert result.counters.extra["cp_async_bytes"] == 32 * size
    assert result.counters.global_loads.sectors >= size
    assert result.counters.shared_stores.bytes >= 32 * size


def test_other_strides():
    x, y, _ = copy(8, stride=40)
    assert (y == x.reshape(32, 40)[:, :8]).all()


@pytest.mark.parametrize("size", [4, 8, 16])
def test_source_sizes_fill_with_zeros(rng, size):
    given = rng.integers(0, size + 1, 32).astype("i4")
    given[:3] = 0, size, size - 1
    x, y, result = copy(size, ", %2", given)
    want = np.where(np.arange(size) < given[:, None], x.reshape(32, size), 0)
    assert (y == want).all()
    assert result.counters.extra["cp_async_bytes"] == given.sum()


def test_nothing_is_read_where_the_source_size_is_zero():
    """The address may be anything then: the usual way to handle a tail."""
    given = np.where(np.arange(32) < 7, 16, 0).astype("i4")
    given[7] = 4
    source = np.arange(7 * 16 + 4, dtype="u1")
    _, y, _ = copy(16, ", %2", given, source=source)
    assert (y.ravel()[: source.size] == source).all()
    assert not y.ravel()[source.size :].any()
    with pytest.raises(OutOfBoundsError, match="4 bytes past the end"):
        copy(16, ", %2", np.where(given == 4, 8, given).astype("i4"), source=source)


def test_ignored_sources(rng):
    given = rng.integers(0, 100, 32).astype("i4")
    for operand, ignored in ((", p", given & 1), (", !p", ~given & 1)):
        x, y, _ = copy(16, operand, given)
        assert (y == np.where(ignored[:, None], 0, x.reshape(32, 16))).all()


def test_misuse():
    with pytest.raises(KernelFault, match="src-size is larger than the copy's 8 bytes"):
        copy(8, ", %2", np.full(32, 9, "i4"))
    with pytest.raises(MisalignedError, match="not a multiple of the access size, 8"):
        copy(8, stride=12)
    with pytest.raises(OutOfBoundsError, match="past the end"):
        copy(8, source=np.zeros(255, "u1"))
    with pytest.raises(UnsupportedInstructionError, match="cannot copy 8 bytes"):
        copy(8, cache="cg")
    with pytest.raises(UnsupportedInstructionError, match="cannot copy 12 bytes"):
        copy(12)


# Groups


GROUPS = WRAPPERS + r"""
template <int N> __device__ void wait_group() {
  asm volatile("cp.async.wait_group %0;" :: "n"(N) : "memory"); }
__device__ void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
__device__ void copy(void* to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(smem(to)), "l"(from)); }
extern "C" __global__ void k(const int4* x, int4* y, int tiles) {
  __shared__ int4 stage[3][64];
  int t = threadIdx.x;
  for (int i = 0; i < 2; i++) { if (i < tiles) copy(&stage[i][t], x + i * 64 + t); commit(); }
  for (int i = 0; i < tiles; i++) {
    wait_group<NEWEST>(); SYNC
    if (i + 2 < tiles) copy(&stage[(i + 2) % 3][t], x + (i + 2) * 64 + t);
    commit();
    int4 v = stage[i % 3][63 - t]; v.x += v.w; y[i * 64 + t] = v; }
  wait_group<0>(); }"""


def run_groups(newest, sync="__syncthreads();", tiles=9, **options):
    x = np.arange(tiles * 256, dtype="i4").reshape(tiles, 64, 4)
    y = np.zeros_like(x)
    source = GROUPS.replace("NEWEST", str(newest)).replace("SYNC", sync)
    emulator.run(source, 1, 64, [x, y, np.int32(tiles)], **options)
    want = x[:, ::-1].copy()
    want[..., 0] += want[..., 3]
    return (y == want).all()


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("newest", [0, 1])
def test_a_pipeline_of_groups(policy, newest):
    assert run_groups(newest, policy=policy)


def test_waiting_for_too_few_groups_reads_undefined_bytes():
    with pytest.raises((UninitializedReadError, AsyncHazardError)):
        run_groups(2, policy="late")
    assert not run_groups(2, policy="late", checks=False)


def test_groups_belong_to_threads():
    """Odd lanes commit twice, so their wait for all but one group covers the first copy only."""
    source = GROUPS.split("extern")[0] + r"""
extern "C" __global__ void k(const int4* x, int4* y) {
  __shared__ int4 a[32], b[32];
  int t = threadIdx.x;
  copy(a + t, x + t);
  if (t & 1) commit();
  copy(b + t, x + 32 + t);
  commit();
  wait_group<1>();
  if (t & 1) y[t] = a[t];
  wait_group<0>();
  if (!(t & 1)) y[t] = a[t];
  y[32 + t] = b[t]; }"""
    x, y = np.arange(256, dtype="i4").reshape(64, 4), np.zeros((64, 4), "i4")
    for policy in POLICIES:
        emulator.run(source, 1, 32, [x, y], policy=policy)
        assert (x == y).all()
    early = source.replace("if (t & 1) y[t] = a[t];", "if (!(t & 1)) y[t] = b[t];", 1)
    with pytest.raises(KernelFault, match="lane 0: reads") as caught:
        emulator.run(early, 1, 32, [x, y], policy="late")
    assert isinstance(caught.value, UninitializedReadError | AsyncHazardError)


# mbarriers


ARRIVE = WRAPPERS + r"""
extern "C" __global__ void k(const int* x, int* y, int count) {
  __shared__ int tile[64];
  __shared__ u64 bar;
  int t = threadIdx.x;
  if (t == 0) init(&bar, count);
  __syncthreads();
  if (t < 64) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" :: "r"(smem(tile + t)), "l"(x + t));
    asm volatile("cp.async.mbarrier.arrive MODE .shared::cta.b64 [%0];" :: "r"(smem(&bar)));
    MORE
  } else { wait(&bar, 0); y[t - 64] = tile[127 - t]; } }"""


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(("mode", "more"), [(".noinc", ""), ("", "arrive(&bar);")])
def test_arrivals_on_an_mbarrier(policy, mode, more):
    """Without .noinc the copy's arrival is neutral and each thread arrives itself as well."""
    x, y = np.arange(64, dtype="i4") * 3, np.zeros(64, "i4")
    source = ARRIVE.replace(" MODE ", mode).replace("MORE", more)
    emulator.run(source, 1, 128, [x, y, np.int32(64)], policy=policy)
    assert (y == x[::-1]).all()


def test_arrival_counts_that_do_not_fit():
    x, y = np.zeros(64, "i4"), np.zeros(64, "i4")
    source = ARRIVE.replace(" MODE ", ".noinc").replace("MORE", "")
    with pytest.raises(DeadlockError, match="1 of 65 arrivals pending"):
        emulator.run(source, 1, 128, [x, y, np.int32(65)])
    with pytest.raises(BarrierError, match="phase overrun"):
        emulator.run(source, 1, 128, [x, y, np.int32(33)])


def test_exit_with_a_copy_in_flight():
    source = ARRIVE.replace(" MODE ", ".noinc").replace("MORE", "").replace("wait(&bar, 0);", "")
    source = source.replace("y[t - 64] = tile[127 - t];", "")
    x, y = np.zeros(64, "i4"), np.zeros(64, "i4")
    with pytest.raises(BarrierError, match=r"exits while a cp_async (may )?still write"):
        emulator.run(source, 1, 64, [x, y, np.int32(64)], policy="late")
