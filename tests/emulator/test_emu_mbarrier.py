"""mbarriers: counts and phases exactly, waiting under every schedule, and every misuse."""

from __future__ import annotations

import numpy as np
import pytest
from async_kernels import WRAPPERS
from emulator_kernels import ptx_kernel

from gpukit import emulator
from gpukit.emulator.errors import (
    BarrierError,
    DeadlockError,
    LivelockError,
    MisalignedError,
    OutOfBoundsError,
    UninitializedReadError,
    UnsupportedInstructionError,
)
from gpukit.emulator.policies import POLICIES

# Sequences of one thread: each step may store a result


def sequence(*steps, results=0):
    """Run steps on a barrier ``b`` in one thread; ``out N, register`` stores a 64-bit result."""
    lines = []
    for step in steps:
        if step.startswith("out"):
            index, register = step[3:].split(",")
            lines.append(f"st.global.u64 [%y+{8 * int(index)}], {register};")
        elif step.startswith("pred"):
            index, register = step[4:].split(",")
            lines.append(f"selp.u64 %t, 1, 0, {register}; st.global.u64 [%y+{8 * int(index)}], %t;")
        else:
            lines.append(step + ";")
    body = (
        ".shared .align 8 .b64 b; .shared .align 8 .b64 c[4];\n"
        ".reg .b64 %y, %t, %s<9>; .reg .b32 %n<9>; .reg .pred %p<9>;\n"
        "ld.param.u64 %y, [p0];\n" + "\n".join(lines) + "\nret;"
    )
    y = np.zeros(max(results, 1), "u8")
    emulator.run(ptx_kernel(body, ".param .u64 p0"), 1, 1, [y])
    return y.tolist()[:results]


def op(name, *operands):
    return f"mbarrier.{name}.shared::cta.b64 {', '.join(operands)}"


INIT = op("init", "[b]", "2")
ARRIVE = op("arrive", "_", "[b]")


def parity(which, p=0):
    return op("test_wait.parity", f"%p{p}", "[b]", str(which))


def test_phases_and_parity():
    """Before any arrival the phase before phase 0 counts as complete."""
    got = sequence(
        INIT, parity(1), "pred 0,%p0", parity(0), "pred 1,%p0", ARRIVE, parity(0), "pred 2,%p0",
        ARRIVE, parity(0), "pred 3,%p0", parity(1), "pred 4,%p0",
        ARRIVE, ARRIVE, parity(1), "pred 5,%p0", parity(0), "pred 6,%p0", results=7,
    )  # fmt: skip
    assert got == [1, 0, 0, 1, 0, 1, 0]


def test_states_name_phases():
    got = sequence(
        INIT, op("arrive", "%s0", "[b]"), op("test_wait", "%p0", "[b]", "%s0"), "pred 0,%p0",
        op("arrive", "%s1", "[b]"), op("test_wait", "%p0", "[b]", "%s0"), "pred 1,%p0",
        op("arrive", "%s2", "[b]"), op("test_wait", "%p0", "[b]", "%s1"), "pred 2,%p0",
        op("test_wait", "%p0", "[b]", "%s2"), "pred 3,%p0", results=4,
    )  # fmt: skip
    assert got == [0, 1, 1, 0]


def test_pending_counts():
    got = sequence(
        op("init", "[b]", "10"), op("arrive.noComplete", "%s0", "[b]", "3"),
        op("arrive.noComplete", "%s1", "[b]", "2"), op("arrive_drop.noComplete", "%s2", "[b]", "4"),
        "mbarrier.pending_count.b64 %n0, %s0", "cvt.u64.u32 %t, %n0", "out 0,%t",
        "mbarrier.pending_count.b64 %n0, %s1", "cvt.u64.u32 %t, %n0", "out 1,%t",
        "mbarrier.pending_count.b64 %n0, %s2", "cvt.u64.u32 %t, %n0", "out 2,%t", results=3,
    )  # fmt: skip
    assert got == [10, 7, 5]


def test_arrive_drop_lowers_the_next_phase():
    got = sequence(
        INIT, op("arrive_drop", "_", "[b]"), ARRIVE, parity(0), "pred 0,%p0",
        ARRIVE, parity(1), "pred 1,%p0", results=2,
    )  # fmt: skip
    assert got == [1, 1]


@pytest.mark.parametrize("first", ["expect", "complete"])
def test_transactions_complete_a_phase_in_either_order(first):
    """tx-count may be negative for a while: bytes that come before they are expected."""
    expect = op("arrive.expect_tx", "_", "[b]", "48")
    done = [op("complete_tx.relaxed.cta", "[b]", "16"), op("complete_tx", "[b]", "32")]
    steps = [expect, *done] if first == "expect" else [done[0], expect, done[1]]
    steps = [op("init", "[b]", "1"), steps[0], parity(0), "pred 0,%p0", steps[1], parity(0),
             "pred 1,%p0", steps[2], parity(0), "pred 2,%p0"]  # fmt: skip
    assert sequence(*steps, results=3) == [0, 0, 1]


def test_expect_tx_alone_does_not_arrive():
    got = sequence(
        op("init", "[b]", "1"), op("expect_tx.relaxed.cta", "[b]", "8"), ARRIVE,
        op("expect_tx", "[b]", "8"), op("complete_tx", "[b]", "8"), parity(0), "pred 0,%p0",
        op("complete_tx", "[b]", "8"), parity(0), "pred 1,%p0",
        op("arrive_drop.expect_tx.relaxed.cluster", "_", "[b]", "4"), op("complete_tx", "[b]", "4"),
        parity(1), "pred 2,%p0", results=3,
    )  # fmt: skip
    assert got == [0, 1, 1]


def test_generic_addresses_and_counts():
    got = sequence(
        "mov.u64 %s0, b", "cvta.shared.u64 %s0, %s0", "mbarrier.init.b64 [%s0], 5",
        "mbarrier.arrive.release.cta.b64 %s1, [%s0], 4", "mbarrier.arrive.b64 %s2, [%s0]",
        "mbarrier.try_wait.acquire.cta.b64 %p0, [%s0], %s1, 1000", "pred 0,%p0",
        "mbarrier.inval.b64 [%s0]", "mbarrier.init.b64 [%s0], 1",
        "mbarrier.try_wait.parity.relaxed.cta.b64 %p0, [%s0], 1", "pred 1,%p0", results=2,
    )  # fmt: skip
    assert got == [1, 1]


MISUSES = {
    "phase overrun: 3 arrivals": [INIT, op("arrive", "_", "[b]", "3")],
    "phase overrun: 1 arrivals are more": [
        INIT, op("arrive.expect_tx", "_", "[b]", "16"), ARRIVE, ARRIVE],
    "an arrival in phase 1 before any thread has seen phase 0 complete": [
        INIT, ARRIVE, ARRIVE, ARRIVE],
    "arrive count 0 is not in": [INIT, op("arrive", "_", "[b]", "0")],
    "arrive.noComplete completes the phase": [INIT, op("arrive.noComplete", "_", "[b]", "2")],
    "count 0 is not in 1 to 1048575": [op("init", "[b]", "0")],
    "count 1048576 is not in 1 to 1048575": [op("init", "[b]", "1048576")],
    "tx-count leaves the range": [INIT, op("expect_tx", "[b]", "1048575"),
                                  op("expect_tx", "[b]", "1")],
    "mbarrier.init on a live mbarrier": [INIT, INIT],
    "holds no initialised mbarrier": [INIT, op("inval", "[b]"), ARRIVE],
    "0x[0-9a-f]+ of CTA .* holds no initialised": [ARRIVE],
    "an ordinary access touches the live mbarrier": [INIT, "ld.shared.u32 %n0, [b+4]"],
    "an ordinary access touches .* mbarrier.inval": [INIT, "st.shared.u8 [b+7], 0"],
    "ordinary access touches": [INIT, "atom.shared.add.u32 %n0, [b], 1"],
    "waits for phase 0; only the current": [
        op("init", "[b]", "1"), op("arrive", "%s0", "[b]"), parity(0), ARRIVE, parity(1), ARRIVE,
        op("test_wait", "%p0", "[b]", "%s0")],
    "phase parity 2": [INIT, parity(2)],
    "tx mismatch: the CTA exits with a tx-count of 16": [
        INIT, op("expect_tx", "[b]", "16")],
    "tx mismatch: .* of -8 bytes": [INIT, op("complete_tx", "[b]", "8")],
}  # fmt: skip


@pytest.mark.parametrize("message", MISUSES)
def test_misuse(message):
    with pytest.raises(BarrierError, match=message):
        sequence(*MISUSES[message])


def test_legal_neighbours_of_the_misuses():
    sequence(INIT, op("arrive", "_", "[b]", "2"))
    sequence(INIT, ARRIVE, ARRIVE, parity(0), ARRIVE)
    sequence(INIT, op("expect_tx", "[b]", "1048575"), op("complete_tx", "[b]", "1048575"))
    sequence(INIT, op("inval", "[b]"), INIT)
    sequence(INIT, "st.shared.u64 [c], 1", "ld.shared.u64 %t, [c]")
    sequence(INIT, op("inval", "[b]"), "st.shared.u64 [b], 1", "ld.shared.u64 %t, [b]")


def test_addresses_are_checked():
    with pytest.raises(MisalignedError, match="multiple of 8"):
        sequence(op("init", "[b+4]", "1"))
    with pytest.raises(OutOfBoundsError):
        sequence(op("init", "[b+4096]", "1"))
    with pytest.raises(OutOfBoundsError, match="does not point into shared memory"):
        sequence("mbarrier.init.b64 [%y], 1")
    with pytest.raises(OutOfBoundsError, match="no CTA of rank 1"):
        sequence("mov.u32 %n0, b", "or.b32 %n0, %n0, 0x1000000",
                 "mbarrier.arrive.shared::cluster.b64 _, [%n0]")  # fmt: skip
    with pytest.raises(UninitializedReadError):
        sequence("st.shared.u64 [b], 1", INIT, op("inval", "[b]"), "ld.shared.u64 %t, [b]")
    with pytest.raises(UnsupportedInstructionError, match="returns no state"):
        sequence(INIT, "mbarrier.arrive.shared::cluster.b64 %s0, [b]")
    with pytest.raises(UnsupportedInstructionError, match="own CTA's mbarriers only"):
        sequence(INIT, "mbarrier.try_wait.shared::cluster.b64 %p0, [b], %s0")


# Many threads


PIPE = WRAPPERS + r"""
#define SLOTS 3
#define N 256
extern "C" __global__ void k(const int* x, int* y, int tiles) {
  __shared__ __align__(128) int slot[SLOTS][N];
  __shared__ u64 full[SLOTS], empty[SLOTS];
  int t = threadIdx.x, warp = t / 32;
  if (t == 0) { for (int s = 0; s < SLOTS; s++) { init(full + s, 1); init(empty + s, 4); }
                fence_init(); }
  __syncthreads();
  x += (long)blockIdx.x * tiles * N; y += (long)blockIdx.x * tiles * N;
  if (warp == 4) {
    if (t % 32 == 0) for (int i = 0; i < tiles; i++) {
      int s = i % SLOTS; EMPTY_WAIT
      expect(full + s, BYTES); bulk_load(slot[s], x + i * N, N * 4, full + s); }
  } else for (int i = 0; i < tiles; i++) {
      int s = i % SLOTS; wait(full + s, i / SLOTS & 1);
      y[i * N + t] = slot[s][t] * 2 + 1; y[i * N + 128 + t] = slot[s][128 + t] * 2 + 1;
      __syncwarp(); if (t % 32 == 0) arrive(empty + s); } }
"""
GOOD_PIPE = PIPE.replace("EMPTY_WAIT", "wait(empty + s, (i / SLOTS & 1) ^ 1);")


def run_pipe(source, tiles=12, blocks=2, **options):
    x = np.arange(blocks * tiles * 256, dtype="i4")
    y = np.zeros_like(x)
    args = [x, emulator.Uninitialized(y), np.int32(tiles)]
    result = emulator.run(source, blocks, 160, args, **options)
    assert (y == 2 * x + 1).all()
    return result


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_pipe(policy, seed):
    result = run_pipe(GOOD_PIPE.replace("BYTES", "N * 4"), policy=policy, seed=seed)
    extra = result.counters.extra
    assert extra["l2_to_shared_bytes"] == 2 * 12 * 1024
    assert extra["mbarrier_waits"] == 2 * 12 * 5


@pytest.mark.parametrize("policy", POLICIES)
def test_pipe_that_expects_too_much_deadlocks(policy):
    """The report names the barrier's state and each waiting warp's line."""
    source = GOOD_PIPE.replace("BYTES", "N * 4 + 16")
    state = r"\(phase 0, 0 of 1 arrivals pending, 16 bytes of tx-count"
    report = rf"waits for phase 0 of mbarrier at shared 0x[0-9a-f]+ of CTA \(0, 0, 0\) {state}"
    with pytest.raises(DeadlockError, match=report):
        run_pipe(source, policy=policy)


TWO_COPIES = WRAPPERS + r"""
extern "C" __global__ void k(const int* x, int* y, int bytes) {
  __shared__ __align__(128) int tile[256];
  __shared__ u64 bar;
  if (threadIdx.x == 0) {
    init(&bar, 1); fence_init();
    bulk_load(tile, x, 512, &bar); bulk_load(tile + 128, x + 128, 512, &bar);
    expect(&bar, bytes); }
  __syncthreads(); wait(&bar, 0);
  y[threadIdx.x] = tile[threadIdx.x]; }"""


@pytest.mark.parametrize("policy", POLICIES)
def test_expecting_fewer_bytes_than_are_copied(policy):
    """The phase completes too early, or never if all bytes were there before."""
    x, y = np.arange(256, dtype="i4"), np.zeros(256, "i4")
    emulator.run(TWO_COPIES, 1, 256, [x, y, np.int32(1024)], policy=policy)
    assert (x == y).all()
    never = "waits for phase 0 of .* 0 of 1 arrivals pending, -512 bytes"
    with pytest.raises((BarrierError, DeadlockError), match=f"expect_tx is too small|{never}"):
        emulator.run(TWO_COPIES, 1, 256, [x, y, np.int32(512)], policy=policy)


@pytest.mark.parametrize("policy", POLICIES)
def test_pipe_without_the_empty_wait(policy):
    with pytest.raises(emulator.KernelFault, match=r"phase overrun|data race|still in flight"):
        run_pipe(PIPE.replace("EMPTY_WAIT", "").replace("BYTES", "N * 4"), policy=policy)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_wait_that_a_phase_laps(policy):
    """Thread 32 waits for phase 0 so late that phase 1 may be over, too."""
    source = WRAPPERS + r"""
extern "C" __global__ void k(volatile int* y) {
  __shared__ u64 bar;
  if (threadIdx.x == 0) init(&bar, 1);
  __syncthreads();
  if (threadIdx.x == 0) { arrive(&bar); wait(&bar, 0); arrive(&bar); wait(&bar, 1); }
  if (threadIdx.x == 32) wait(&bar, 0); }"""
    with pytest.raises((BarrierError, DeadlockError), match=r"phase overrun|waits for phase 2"):
        for seed in range(30):
            emulator.run(source, 1, 64, [np.zeros(1, "i4")], policy=policy, seed=seed)


def test_lanes_of_one_warp_may_wait_on_different_barriers():
    source = WRAPPERS + r"""
extern "C" __global__ void k(int* y) {
  __shared__ u64 bar[32];
  __shared__ int value[32];
  int t = threadIdx.x;
  if (t < 32) init(bar + t, 1);
  __syncthreads();
  if (t >= 32) { for (int i = 31; i >= 0; i--)
    if (t - 32 == i) { value[i] = i * i; arrive(bar + i); } }
  else { wait(bar + t, 0); y[t] = value[t]; } }"""  # fmt: skip
    for policy in POLICIES:
        y = np.zeros(32, "i4")
        emulator.run(source, 1, 64, [y], policy=policy)
        assert (y == np.arange(32) ** 2).all()


def test_a_test_wait_spin_that_never_ends_is_a_deadlock():
    source = WRAPPERS + r"""
extern "C" __global__ void k() {
  __shared__ u64 bar;
  init(&bar, 2); arrive(&bar);
  asm volatile("{ .reg .pred p; again: mbarrier.test_wait.parity.shared.b64 p, [%0], 0;"
               " @!p bra again; }" :: "r"(smem(&bar)) : "memory"); }"""
    with pytest.raises((DeadlockError, LivelockError), match="1 of 2 arrivals pending"):
        emulator.run(source, 1, 1, [])


def test_try_wait_may_give_up():
    """A peek that the hardware would end after its time limit must not block for ever."""
    source = WRAPPERS + r"""
extern "C" __global__ void k(int* y) {
  __shared__ u64 bar;
  init(&bar, 1);
  int done; asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], 0;"
    " selp.b32 %0, 1, 0, p; }" : "=r"(done) : "r"(smem(&bar)) : "memory");
  if (!done) arrive(&bar);
  wait(&bar, 0); *y = done + 10; }"""
    y = np.zeros(1, "i4")
    emulator.run(source, 1, 1, [y])
    assert y[0] == 10
