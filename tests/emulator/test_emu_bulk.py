"""cp.async.bulk and cp.reduce.async.bulk: loads, stores, groups, reductions, early reuse."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from async_kernels import WRAPPERS

from gpukit import emulator
from gpukit.emulator import Uninitialized
from gpukit.emulator.check.listener import Listener
from gpukit.emulator.errors import (
    AsyncHazardError,
    BarrierError,
    KernelFault,
    MisalignedError,
    OutOfBoundsError,
    UninitializedReadError,
    UnsupportedInstructionError,
)
from gpukit.emulator.policies import POLICIES

LOAD = WRAPPERS + r"""
extern "C" __global__ void k(const char* x, char* y, int offset, int bytes) {
  __shared__ __align__(128) char tile[1024];
  __shared__ u64 bar;
  if (threadIdx.x == 0) {
    init(&bar, 1); fence_init(); expect(&bar, bytes);
    bulk_load(tile + offset, x, bytes, BARRIER); }
  __syncthreads(); wait(&bar, 0);
  for (int i = threadIdx.x; i < bytes; i += 64) y[i] = tile[offset + i]; }"""
GOOD_LOAD = LOAD.replace("BARRIER", "&bar")


def load(source=GOOD_LOAD, offset=0, size=512, x=None, **options):
    x = np.arange(size, dtype="u2").astype("u1") if x is None else x
    y = np.zeros(size, "u1")
    result = emulator.run(source, 1, 64, [x, y, np.int32(offset), np.int32(size)], **options)
    assert (x[:size] == y).all()
    return result


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(("offset", "size"), [(0, 512), (16, 16), (48, 976)])
def test_loads(policy, offset, size):
    result = load(offset=offset, size=size, policy=policy)
    assert result.counters.extra["l2_to_shared_bytes"] == size


def test_misuse_of_loads():
    with pytest.raises(KernelFault, match="24 bytes; the size must be a positive multiple"):
        load(size=24)
    with pytest.raises(MisalignedError, match=r"shared address 0x[0-9a-f]+ is not a multiple"):
        load(offset=8)
    with pytest.raises(MisalignedError, match="global address"):
        load(x=np.zeros(1024, "u1")[4:])
    with pytest.raises(OutOfBoundsError, match="16 bytes past the end"):
        load(x=np.zeros(496, "u1"))
    with pytest.raises(OutOfBoundsError, match="768 bytes of shared memory"):
        load(offset=512, size=768)
    with pytest.raises(BarrierError, match="holds no initialised mbarrier"):
        load(LOAD.replace("BARRIER", "(u64*)tile"))
    with pytest.raises(BarrierError, match="touches the live mbarrier"):
        load(GOOD_LOAD.replace("__shared__ u64 bar;", "u64& bar = *(u64*)(tile + 64);"))


def test_prefetch_changes_nothing():
    source = GOOD_LOAD.replace("__syncthreads();", """
      asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" :: "l"(x), "r"(bytes));
      __syncthreads();""")
    load(source)


def test_bytes_that_were_never_written_stay_so():
    memory = emulator.GlobalMemory()
    x = np.zeros(512, "u1")
    memory.map(x, "x", written=False)
    with pytest.raises(UninitializedReadError, match="shared memory"):
        load(x=x, memory=memory)


def test_reading_before_the_wait():
    """The old bytes are gone at once, the new ones come late."""
    early = GOOD_LOAD.replace("wait(&bar, 0);", "").replace("[offset + i]; }", "[offset + i];"
                              " __syncthreads(); wait(&bar, 0); }")  # fmt: skip
    with pytest.raises((UninitializedReadError, AsyncHazardError)):
        load(early, policy="late")
    with pytest.raises(AssertionError):
        load(early, policy="late", checks=False)


# Stores


STORE = WRAPPERS + r"""
extern "C" __global__ void k(int* y, int rounds) {
  __shared__ __align__(128) int tile[2][128];
  int t = threadIdx.x;
  for (int i = 0; i < rounds; i++) {
    if (t == 0) WAIT;
    __syncthreads();
    tile[i & 1][t] = 1000 * i + t;
    fence_async(); __syncthreads();
    if (t == 0) { bulk_store(y + i * 128, tile[i & 1], 512); bulk_commit(); } }
  if (t == 0) LAST; }"""


def run_stores(wait, last="bulk_wait<0>()", rounds=8, **options):
    y = np.zeros((rounds, 128), "i4")
    source = STORE.replace("WAIT", wait).replace("LAST", last)
    result = emulator.run(source, 1, 128, [Uninitialized(y), np.int32(rounds)], **options)
    right = (y == 1000 * np.arange(rounds)[:, None] + np.arange(128)).all()
    return right, result.counters


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", range(3))
def test_stores_with_two_buffers(policy, seed):
    right, counters = run_stores("bulk_wait_read<1>()", policy=policy, seed=seed)
    assert right
    assert counters.extra["bulk_store_bytes"] == 8 * 512


def test_reusing_a_buffer_before_it_was_read():
    """Stores read shared memory late: without a wait they take what is there then."""
    right, _ = run_stores("bulk_wait_read<2>()", policy="late", checks=False)
    assert not right


def test_exit_before_the_source_was_read():
    assert run_stores("bulk_wait_read<1>()", "bulk_wait_read<0>()", policy="late")[0]
    for checks in (True, False):
        with pytest.raises(BarrierError, match=r"exits while a bulk_store (may )?still read"):
            run_stores("bulk_wait_read<1>()", "bulk_wait_read<1>()", policy="late", checks=checks)


def test_stores_need_written_sources_and_writable_targets():
    with pytest.raises(UninitializedReadError, match="asynchronous copy reads memory"):
        source = STORE.replace("WAIT", "bulk_wait<0>()").replace("LAST", "bulk_wait<0>()")
        emulator.run(source.replace("tile[i & 1][t] =", "if (t) tile[i & 1][t] ="), 1, 128,
                     [np.zeros(128, "i4"), np.int32(1)])  # fmt: skip
    fixed = np.zeros(128, "i4")
    fixed.flags.writeable = False
    with pytest.raises(KernelFault, match="read-only"):
        emulator.run(source, 1, 128, [fixed, np.int32(1)])


# Reductions


REDUCE = WRAPPERS + r"""
extern "C" __global__ void k(const char* x, char* y, int bytes) {
  __shared__ __align__(128) char tile[1024];
  int t = threadIdx.x;
  for (int i = t; i < bytes; i += 64) tile[i] = x[i];
  fence_async(); __syncthreads();
  if (t == 0) {
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.OP [%0], [%1], %2;"
                 :: "l"(y), "r"(smem(tile)), "r"(bytes) : "memory");
    bulk_commit(); bulk_wait<0>(); } }"""
OPERATIONS = {
    "add": np.add, "min": np.minimum, "max": np.maximum,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
    "inc": lambda y, x: np.where(y >= x, 0, y + 1).astype(y.dtype),
    "dec": lambda y, x: np.where((y == 0) | (y > x), x, y - 1).astype(y.dtype),
}  # fmt: skip
DTYPES = {"u32": "u4", "s32": "i4", "u64": "u8", "s64": "i8", "b32": "u4", "b64": "u8",
          "f16": "f2", "bf16": ml_dtypes.bfloat16, "f32": "f4", "f64": "f8"}  # fmt: skip
TYPED = [("add", t) for t in ("u32", "s32", "u64", "f32", "f64")]
TYPED += [("add.noftz", t) for t in ("f16", "bf16")]
TYPED += [(o, t) for o in ("min", "max") for t in ("u32", "s32", "u64", "s64", "f16", "bf16")]
TYPED += [("inc", "u32"), ("dec", "u32")]
TYPED += [(o, t) for o in ("and", "or", "xor") for t in ("b32", "b64")]


@pytest.mark.parametrize(("name", "type_"), TYPED)
def test_reductions_to_global_memory(rng, name, type_):
    dtype = np.dtype(DTYPES[type_])
    low = 0 if dtype.kind == "u" else -100
    x, y = (rng.integers(low, 100, 64).astype(dtype) for _ in range(2))
    want = OPERATIONS[name.partition(".")[0]](y, x)
    source = REDUCE.replace("OP", f"{name}.{type_}")
    emulator.run(source, 1, 64, [x.view("u1"), y.view("u1"), np.int32(x.nbytes)])
    assert y.tobytes() == want.tobytes()


def test_sums_keep_subnormals():
    x, y = np.full(16, 1e-40, "f4"), np.full(16, 2e-40, "f4")
    emulator.run(REDUCE.replace("OP", "add.f32"), 1, 64, [x.view("u1"), y.view("u1"), np.int32(64)])
    assert (y == np.float32(1e-40) + np.float32(2e-40)).all()
    x, y = np.full(16, 1e-7, "f2"), np.full(16, 2e-7, "f2")
    source = REDUCE.replace("OP", "add.noftz.f16")
    emulator.run(source, 1, 64, [x.view("u1"), y.view("u1"), np.int32(32)])
    assert (y == np.float16(1e-7) + np.float16(2e-7)).all()


@pytest.mark.parametrize("name", ["add.f16", "min.f32", "add.noftz.f32", "inc.s32", "xor.u32"])
def test_reductions_that_do_not_exist(name):
    with pytest.raises(UnsupportedInstructionError, match=r"does not exist|\.noftz goes with"):
        emulator.run(REDUCE.replace("OP", name), 1, 64, [None, None, np.int32(0)])


def test_other_directions_do_not_exist():
    source = REDUCE.replace("cp.reduce.async.bulk.global.shared::cta.bulk_group.OP",
                            "cp.async.bulk.shared::cta.global.bulk_group")  # fmt: skip
    with pytest.raises(UnsupportedInstructionError, match="does not exist in this form"):
        emulator.run(source, 1, 64, [None, None, np.int32(0)])


# What checks hear


class Recorder(Listener):
    def __init__(self):
        self.events = []

    def async_issued(self, op):
        self.events.append(("issued", op))

    def async_performed(self, op):
        self.events.append(("performed", op))

    def barrier_signalled(self, barrier, phase, op):
        self.events.append(("signalled", op, phase))

    def barrier_passed(self, warp, mask, barrier, phase):
        self.events.append(("passed", warp.index, phase))

    def group_waited(self, warp, mask, ops, reads_only):
        self.events.append(("waited", reads_only, *ops))


def test_events_of_a_load():
    recorder = Recorder()
    load(offset=32, size=64, listeners=[recorder], policy="late")
    kinds = [event[0] for event in recorder.events if event[0] != "passed"]
    assert kinds == ["issued", "performed", "signalled"]
    op = recorder.events[[e[0] for e in recorder.events].index("issued")][1]
    assert (op.kind, op.proxy, op.id) == ("bulk_load", "async", 0)
    assert (op.warp.index, op.mask.sum()) == (0, 1)
    (read,), (write,) = op.reads, op.writes
    assert (read.space, read.start, read.size) == ("global", 0, 64)
    assert (write.space, write.owner, write.size) == ("shared", 0, 64)
    assert op.done
    assert "bulk_load" in GOOD_LOAD and "cp.async.bulk" in op.place
    signalled = recorder.events.index(("signalled", op, 0))
    passed = [i for i, e in enumerate(recorder.events) if e[0] == "passed" and e[2] == 0]
    assert any(i > signalled for i in passed)


def test_events_of_stores():
    recorder = Recorder()
    run_stores("bulk_wait_read<0>()", rounds=2, listeners=[recorder])
    events = [e for e in recorder.events if e[0] != "passed"]
    ops = [e[1] for e in events if e[0] == "issued"]
    assert [op.kind for op in ops] == ["bulk_store"] * 2
    waits = [e[1:] for e in events if e[0] == "waited"]
    assert waits[0] == (True, ops[0])
    assert waits[-1] in ((False, *ops), (False, *ops[::-1]))
