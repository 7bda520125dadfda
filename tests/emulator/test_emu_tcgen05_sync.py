"""What orders tcgen05 operations: pipelines, commit, wait, fences (PTX ISA 9.7.16.6).

Each kernel below is one of the ISA's patterns; beside it stands what happens without its parts.
"""

from __future__ import annotations

import numpy as np
import pytest
from tcgen05_wrappers import tensor_source

from gpukit import emulator
from gpukit.emulator import errors

POLICIES = ("random", "early", "late", "starved")
FENCE, HAZARD, RACE = (
    errors.MissingTensorFenceError, errors.AsyncHazardError, errors.DataRaceError,
)  # fmt: skip
# A and B of ones: every mma<M, N>(d, a, b, 1) adds 16 to every sum.
FRAME = r"""
__device__ inline void arrive_relaxed(u64* b) {
  asm volatile("mbarrier.arrive.relaxed.cluster.shared::cta.b64 _, [%0];"
               :: "r"(smem(b)) : "memory"); }
__device__ inline void wait_relaxed(u64* b, u32 parity) {
  asm volatile("{ .reg .pred p; again: mbarrier.try_wait.parity.relaxed.cluster.shared::cta.b64"
               " p, [%0], %1; @p bra done; bra again; done: }"
               :: "r"(smem(b)), "r"(parity) : "memory"); }
__device__ inline void raise(u32* flag) {
  asm volatile("st.relaxed.cta.shared::cta.u32 [%0], 1;" :: "r"(smem(flag)) : "memory"); }
__device__ inline void look(u32* flag) {
  u32 seen;
  do asm volatile("ld.relaxed.cta.shared::cta.u32 %0, [%1];" : "=r"(seen) : "r"(smem(flag))
                  : "memory"); while (!seen); }
__device__ inline void cp(u32 to, u64 from) {
  asm volatile("tcgen05.cp.cta_group::GROUP.128x256b [%0], %1;" :: "r"(to), "l"(from)
               : "memory"); }
__device__ inline void cp4(u32 to, u64 from) {
  asm volatile("tcgen05.cp.cta_group::GROUP.4x256b [%0], %1;" :: "r"(to), "l"(from)
               : "memory"); }
__device__ inline void shift(u32 at) {
  asm volatile("tcgen05.shift.cta_group::GROUP.down [%0];" :: "r"(at) : "memory"); }
template <int M, int N> __device__ inline void mma_ta(u32 d, u32 a, u64 b, int add) {
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %4, 0;\n"
               "tcgen05.mma.cta_group::GROUP.kind::f16 [%0], [%1], %2, %3, p; }"
               :: "r"(d), "r"(a), "l"(b),
                  "n"(1 << 4 | 1 << 7 | 1 << 10 | N / 8 << 17 | M / 16 << 24), "r"(add)
               : "memory"); }
__device__ inline void sync() { if (GROUP == 2) cluster_sync(); else __syncthreads(); }
extern "C" __global__ void k(float* out) {
  extern __shared__ __align__(1024) unsigned short memory[];
  __shared__ __align__(8) u64 bar[4];
  __shared__ u32 slot, flag;
  const int t = threadIdx.x, warp = t / 32, lane = t % 32;
  const u32 rank = GROUP == 2 ? cluster_rank() : 0;
  for (int i = t; i < 10240; i += blockDim.x) memory[i] = 0x3f80;
  fence_async();
  if (t == 0) { for (int i = 0; i < 4; i++) init(&bar[i], 1); flag = 0; fence_init(); }
  if (warp == 0) alloc<64>(&slot);
  before(); sync(); after();
  const u32 tmem = slot, own = tmem + (warp % 4 * 32 << 16);
  const u64 a = desc(memory), b = desc(memory + 8192);
  float v[4] = {1, 2, 3, 4};
  BODY
  before(); sync(); after();
  if (warp == 0) { relinquish(); dealloc<64>(tmem); }
}"""
OUT = "ld(own, v); wait_ld(); out[rank * 128 + t] = v[0];"
BOTH = "if (warp < 4) { wait(&bar[0], 0); after(); " + OUT + " }"  # all see the result


def run(body, policy="random", group=1, frame=FRAME, **options):
    out = np.zeros(128 * group, np.float32)
    emulator.run(
        tensor_source(frame.replace("BODY", body), group), group, 128, [out], arch="sm_100a",
        shared_bytes=20480, cluster=group if group > 1 else None, policy=policy, **options,
    )  # fmt: skip
    return out


def clean(body, want, group=1, frame=FRAME):
    for policy in POLICIES:
        assert (run(body, policy, group, frame) == want).all()


def reported(body, error, match=None, group=1, frame=FRAME):
    for policy in POLICIES:
        with pytest.raises(error, match=match):
            run(body, policy, group, frame)


# One thread


def test_mmas_of_one_accumulator_and_shape_are_pipelined():
    mmas = "mma<128, 16>(tmem, a, b, 0); mma<128, 16>(tmem, a, b, 1);"
    clean(f"if (t == 0) {{ {mmas} commit(&bar[0]); }} {BOTH}", 32)


def test_mmas_of_another_shape_are_not():
    first, second = "mma<128, 16>(tmem, a, b, 0);", "mma<128, 8>(tmem, a, b, 1);"
    wait = "commit(&bar[1]); wait(&bar[1], 0); after();"
    clean(f"if (t == 0) {{ {first} {wait} {second} commit(&bar[0]); }} {BOTH}", 32)
    reported(
        f"if (t == 0) {{ {first} {second} commit(&bar[0]); }} {BOTH}", HAZARD, "may still write"
    )
    no_fence = wait.replace("after();", "")
    reported(f"if (t == 0) {{ {first} {no_fence} {second} }}", FENCE, "after_thread_sync")


def test_mmas_of_other_accumulators_need_no_order():
    body = "mma<128, 16>(tmem, a, b, 0); mma<128, 8>(tmem + 32, a, b, 0); commit(&bar[0]);"
    clean(f"if (t == 0) {{ {body} }} {BOTH}", 16)


def test_mma_to_cells_that_an_earlier_one_only_reads_is_pipelined():
    """As in attention, where the next scores take the columns of the last probabilities."""
    read = "mma_ta<128, 16>(tmem, tmem + 32, b, 0);"
    scores = "mma<128, 16>(tmem + 32, a, b, 0);"
    end = f"commit(&bar[0]); }} {BOTH}"
    clean(f"if (t == 0) {{ cp(tmem + 32, a); {read} {scores} {end}", 16)
    reported(f"if (t == 0) {{ {scores} {read} {end}", HAZARD, "reads .* may still write")


def test_nor_does_it_wait_for_that_of_another_thread():
    """In two threads such a pair needs both fences."""
    first = "if (t == 0) {{ cp(tmem + 32, a); mma_ta<128, 16>(tmem, tmem + 32, b, 0); {} "
    first += "arrive(&bar[1]); commit(&bar[0]); }} "
    then = f"if (t == 64) {{ wait(&bar[1], 0); after(); {ISSUE.replace('tmem', 'tmem + 32')} "
    then += f"commit(&bar[2]); }} __syncwarp(); wait(&bar[2], 0); {BOTH}"
    clean(first.format("before();") + then, 16)
    reported(first.format("") + then, FENCE, "before_thread_sync")


def test_store_then_load():
    clean(f"st(own, v); wait_st(); {OUT}", 1)
    reported(f"st(own, v); {OUT}", HAZARD, r"may still write; .*wait::st")


def test_load_then_store():
    body = "st(own, v); wait_st(); ld(own, v); {} v[0] += 8; st(own, v); wait_st();"
    clean(body.format("wait_ld();") + OUT, 9)
    reported(body.format("") + OUT, HAZARD, r"may still read; .*wait::ld")


def test_waits_are_for_their_own_kind():
    reported(f"st(own, v); wait_ld(); {OUT}", HAZARD, "wait::st")


def test_registers_of_a_load_may_be_used_without_a_wait():
    clean("st(own, v); wait_st(); ld(own, v); out[t] = v[0]; wait_ld();", 1)


def test_load_that_nobody_waits_for_before_dealloc():
    reported("st(own, v); wait_st(); ld(own, v); out[t] = v[0];", HAZARD, "frees .*wait::ld")


def test_commit_then_load_by_the_same_warp():
    body = "if (t == 0) {{ mma<128, 16>(tmem, a, b, 0); {} }} __syncwarp(); {} {}"
    wait = "wait(&bar[0], 0);"
    clean(body.format("commit(&bar[0]);", wait, "after(); " + OUT), 16)
    reported(body.format("commit(&bar[0]);", wait, OUT), FENCE, "after_thread_sync")
    reported(body.format("", "", "after(); if (warp == 0) ld(own, v);"),
             (HAZARD, errors.UninitializedReadError))  # fmt: skip


# cp and shift

CP = "cp(tmem, a); cp(tmem + 8, a);"  # 128 lanes of 8 columns each
ONES = np.uint32(0x3F803F80).view(np.float32)  # two ones, as one float


def test_cp_then_load_needs_a_commit():
    body = "if (t == 0) {{ {} {} }} {}"
    clean(body.format(CP, "commit(&bar[0]);", BOTH), ONES)
    reported(body.format(CP, "", f"__syncthreads(); after(); {OUT}"),
             (HAZARD, errors.UninitializedReadError))  # fmt: skip


def test_cp_then_mma_is_pipelined():
    clean(f"if (t == 0) {{ {CP} mma<128, 16>(tmem, a, b, 1); commit(&bar[0]); }} {BOTH}",
          np.float32(16 + ONES))  # fmt: skip


def test_mma_then_cp_to_its_accumulator_is_not():
    body = "if (t == 0) {{ mma<128, 16>(tmem, a, b, 0); {} cp(tmem, a); commit(&bar[0]); }} {}"
    clean(body.format("commit(&bar[1]); wait(&bar[1], 0); after();", BOTH), ONES)
    reported(body.format("", ""), HAZARD, "tcgen05.cp writes .* may still write")


def test_mma_then_shift_then_mma_is_pipelined():
    body = "mma<128, 16>(tmem, a, b, 0); shift(tmem); mma<128, 16>(tmem, a, b, 1);"
    clean(f"if (t == 0) {{ {body} commit(&bar[0]); }} {BOTH}", 32)


START = "mma<128, 16>(tmem, a, b, 0); commit(&bar[1]); wait(&bar[1], 0); after();"
WAIT = "commit(&bar[2]); wait(&bar[2], 0); after();"


@pytest.mark.parametrize(
    ("first", "second"), [("cp", "shift"), ("shift", "shift"), ("shift", "cp"), ("cp4", "shift")]
)
def test_other_pairs_are_not(first, second):
    first, second = (f"{op}(tmem{', a' * (op != 'shift')});" for op in (first, second))
    end = f"commit(&bar[0]); }} {BOTH}"
    for policy in POLICIES:
        run(f"if (t == 0) {{ {START} {first} {WAIT} {second} {end}", policy)
    reported(f"if (t == 0) {{ {START} {first} {second} {end}", HAZARD, "commit and its mbarrier")


def test_shift_then_cp_of_4x256b_is_pipelined():
    body = f"if (t == 0) {{ {START} shift(tmem); cp4(tmem, a); commit(&bar[0]); }} {BOTH}"
    want = np.where(np.arange(128) % 32 == 0, ONES, np.float32(16))
    clean(body, want)


def test_both_ctas_of_a_pair_are_concerned():
    """The even CTA's thread issues; the odd one's loads of its own cells must be over, too."""
    load = "st(own, v); wait_st(); ld(own, v);"
    issue = "if (rank == 0 && t == 0) { mma<256, 32>(tmem, a, b, 0); commit_to(&bar[0], 3); }"
    body = f"before(); sync(); after(); {issue} {BOTH}"
    clean(f"{load} wait_ld(); {body}", 16, group=2)
    reported(f"{load} if (rank == 0) wait_ld(); {body}", HAZARD, "CTA .1, 0, 0. .*wait::ld",
             group=2)  # fmt: skip


# Several threads

ISSUE = "mma<128, 16>(tmem, a, b, 0);"
GO_ON = "mma<128, 16>(tmem, a, b, 1); commit(&bar[0]);"


def two_threads(before, signal, wait, after):
    """Thread 0 issues an mma, thread 64 the next on the same accumulator: they are pipelined."""
    return (
        f"if (t == 0) {{ {ISSUE} {before} {signal} }}"
        f"if (t == 64) {{ {wait} {after} {GO_ON} }} __syncwarp(); {BOTH}"
    )


SIGNALS = {
    "mbarrier": ("arrive(&bar[1]);", "wait(&bar[1], 0);"),
    "relaxed mbarrier": ("arrive_relaxed(&bar[1]);", "wait_relaxed(&bar[1], 0);"),
    "relaxed flag": ("raise(&flag);", "look(&flag);"),
}


@pytest.mark.parametrize("signal", SIGNALS)
def test_pipelined_instructions_of_two_threads(signal):
    signal, wait = SIGNALS[signal]
    clean(two_threads("before();", signal, wait, "after();"), 32)
    reported(two_threads("", signal, wait, "after();"), (FENCE, HAZARD))
    reported(two_threads("before();", signal, wait, ""), FENCE, "after_thread_sync")
    reported(two_threads("before();", "", "", "after();"), HAZARD)


def test_missing_fence_before_is_named():
    reported(two_threads("", "arrive(&bar[1]);", "wait(&bar[1], 0);", "after();"), FENCE,
             "missing tcgen05.fence::before_thread_sync behind that")  # fmt: skip


def test_fence_before_covers_only_what_was_issued():
    body = two_threads("", "arrive(&bar[1]);", "wait(&bar[1], 0);", "after();")
    reported(body.replace(ISSUE, "before(); " + ISSUE), FENCE, "before_thread_sync")


def test_fence_after_covers_only_what_was_heard():
    body = two_threads("before();", "arrive(&bar[1]);", "after(); wait(&bar[1], 0);", "")
    reported(body, FENCE, "after_thread_sync")


def test_fences_are_no_substitute_for_completion():
    """mma and ld are not pipelined."""
    body = f"if (t == 0) {{ {ISSUE} before(); }} __syncthreads(); after(); {OUT}"
    reported(body, (HAZARD, errors.UninitializedReadError))
    late = f"if (t == 0) {{ {ISSUE} commit(&bar[0]); wait(&bar[0], 0); before(); }}"
    clean(f"{late} __syncthreads(); after(); {OUT}", 16)


@pytest.mark.parametrize(
    ("arrive", "wait"), [("arrive", "wait"), ("arrive_relaxed", "wait_relaxed")]
)
def test_load_then_mma_of_another_thread(arrive, wait):
    """The second non-pipelined pattern; without the wait for the load it is a hazard."""
    load = "st(own, v); wait_st(); ld(own, v); {} before(); __syncwarp();"
    signal = f"if (warp == 1 && lane == 0) {arrive}(&bar[1]);"
    go_on = f"if (t == 0) {{ {wait}(&bar[1], 0); after(); {ISSUE} commit(&bar[0]); }} __syncwarp();"
    one = f"if (warp == 1) {{ {load} }}"
    body = one + signal + go_on + BOTH
    clean(body.replace("{}", "wait_ld();"), 16)
    reported(body.replace("{}", ""), HAZARD, "wait::ld")
    unfenced = body.replace("after();", "", 1).replace("{}", "wait_ld();")
    reported(unfenced, FENCE, "after_thread_sync")
    unordered = one + go_on.replace(f"{wait}(&bar[1], 0);", "") + BOTH
    reported(unordered.replace("{}", "wait_ld();"), (RACE, HAZARD, errors.UninitializedReadError))


def test_patterns_compose():
    """Completion seen by one thread is passed on by another barrier."""
    body = (
        f"if (t == 0) {{ {ISSUE} commit(&bar[0]); wait(&bar[0], 0); after(); before();"
        " arrive(&bar[1]); } wait(&bar[1], 0);"
    )
    clean(f"{body} after(); {OUT}", 16)
    reported(f"{body} {OUT}", FENCE, "after_thread_sync")


# Commit


def test_commit_without_anything_before_arrives():
    clean("if (t == 0) commit(&bar[0]); wait(&bar[0], 0); out[t] = 7;", 7)


def test_commit_counts_as_one_arrival():
    body = "if (t == 0) { commit(&bar[0]); commit(&bar[0]); } __syncthreads(); wait(&bar[0], 0);"
    reported(body, errors.BarrierError, "phase overrun|may still signal")


def test_commit_tracks_its_own_thread_only():
    body = f"if (t == 0) {{ {ISSUE} before(); arrive(&bar[1]); }}"
    other = "if (t == {}) {{ wait(&bar[1], 0); after(); commit(&bar[0]); }} __syncwarp();"
    clean(body + other.format(0) + BOTH, 16)
    for thread in (1, 64):
        reported(body + other.format(thread) + BOTH, HAZARD, "may still write")


def test_commit_tells_what_its_thread_has_heard():
    """Thread 64 wrote, thread 0 waited for that, and whoever waits for the commit knows."""
    body = (
        "if (t == 64) {{ memory[9600] = 5; arrive(&bar[1]); }} __syncwarp();"
        "if (t == 0) {{ {} mma<128, 16>(tmem, a, b, 0); commit(&bar[0]); }} __syncwarp();"
        "wait(&bar[0], 0); if (t == 96) memory[9600] = 6;"
    )
    for policy in POLICIES:
        run(body.format("wait(&bar[1], 0);"), policy)
    reported(body.format(""), RACE)


def test_exit_while_a_commit_may_still_arrive():
    body = "if (t == 0) { commit(&bar[0]); } "
    reported(
        body, (errors.PendingAsyncError, errors.BarrierError), "may still signal|still signals"
    )


def test_later_commit_to_the_same_cta_stands_for_the_earlier():
    body = f"if (t == 0) {{ {ISSUE} commit(&bar[1]); commit(&bar[0]); }} {BOTH}"
    clean(body, 16)


def test_commit_needs_an_mbarrier():
    reported("if (t == 0) commit((u64*)memory);", errors.BarrierError, "no initialised mbarrier")


def test_generic_address():
    asm = '"tcgen05.commit.cta_group::1.mbarrier::arrive::one.b64 [%0];" :: "l"(&bar[0])'
    clean(f"if (t == 0) {{ {ISSUE} asm volatile({asm}); }} {BOTH}", 16)


def test_shared_address_without_a_state_space():
    """Not generic, but kernels that run on B200 give it: the lower half is all that counts."""
    asm = '"tcgen05.commit.cta_group::1.mbarrier::arrive::one.b64 [%0];" :: "l"(ADDRESS)'
    body = f"if (t == 0) {{ {ISSUE} asm volatile({asm}); }} {BOTH}"
    clean(body.replace("ADDRESS", "(u64)smem(&bar[0])"), 16)
    reported(body.replace("ADDRESS", "(u64)smem(&bar[0]) | 1ull << 36"), errors.OutOfBoundsError,
             "does not point into shared memory")  # fmt: skip
    reported(body.replace("ADDRESS", "out"), errors.OutOfBoundsError,
             "does not point into shared memory")  # fmt: skip


# Shared memory

FILL = "for (int i = t; i < 8192; i += 128) memory[i] = 0x4000;"  # 2.0


def test_operands_need_a_proxy_fence():
    body = FILL + " {} __syncthreads(); if (t == 0) {{ {} commit(&bar[0]); }} {}"
    clean(body.format("fence_async();", ISSUE, BOTH), 32)
    reported(body.format("", ISSUE, BOTH), errors.MissingProxyFenceError)


def test_operands_are_free_after_the_commit():
    issue = f"if (t == 0) {{ {ISSUE} commit(&bar[0]); }}"
    clean(f"{issue} wait(&bar[0], 0); {FILL} {BOTH}", 16)
    reported(f"{issue} __syncthreads(); {FILL} {BOTH}", HAZARD, "may still read")


# Pairs

ISSUE_PAIR = "mma<256, 32>(tmem, a, b, 0);"


def test_multicast_commit_tells_both_ctas():
    clean(f"if (rank == 0 && t == 0) {{ {ISSUE_PAIR} commit_to(&bar[0], 3); }} {BOTH}", 16, group=2)


def test_commit_of_one_cta_leaves_the_other_waiting():
    reported(f"if (rank == 0 && t == 0) {{ {ISSUE_PAIR} commit(&bar[0]); }} {BOTH}",
             errors.DeadlockError, "waits for phase 0", group=2)  # fmt: skip


def test_peer_hears_through_a_cluster_barrier():
    body = f"if (rank == 0 && t == 0) {{ {ISSUE_PAIR} commit(&bar[0]); wait(&bar[0], 0); }}"
    clean(f"{body} before(); sync(); after(); {OUT}", 16, group=2)
    reported(f"{body} before(); sync(); {OUT}", FENCE, "after_thread_sync", group=2)


def test_odd_cta_may_issue():
    clean(f"if (rank == 1 && t == 0) {{ {ISSUE_PAIR} commit_to(&bar[0], 3); }} {BOTH}", 16, group=2)


def test_multicast_mask_of_ctas_that_do_not_exist():
    for mask in (0, 4, 7):
        reported(f"if (rank == 0 && t == 0) commit_to(&bar[0], {mask});", errors.KernelFault,
                 "multicast mask", group=2)  # fmt: skip


def test_peer_may_not_exit_while_a_multicast_commit_may_arrive():
    """Only CTA 0 waits for its share."""
    body = "if (rank == 0 && t == 0) { commit_to(&bar[1], 3); } if (rank == 0) wait(&bar[1], 0);"
    reported(body, errors.EmulatorError, "may still signal|still signals|has exited", group=2)


# Allocation and the end


@pytest.mark.parametrize("group", [1, 2])
def test_commit_tells_of_the_allocation(group):
    """Warp 2 allocates and multiplies; who waits for its commit may use the columns."""
    frame = FRAME.replace(
        "if (warp == 0) alloc<64>(&slot);\n  before(); sync(); after();", "sync();"
    )
    frame = frame.replace("const u32 tmem = slot", "const u32 tmem = 0")
    issue = f"mma<{128 * group}, 32>(tmem, a, b, 0); commit_to(&bar[0], {2 * group - 1});"
    body = f"if (warp == 2) {{ alloc<64>(&slot); if (rank == 0 && lane == 0) {{ {issue} }} }}"
    body = f"{body} __syncwarp(); {BOTH}"
    clean(body, 16, group, frame=frame)
    early = (RACE, HAZARD, errors.OutOfBoundsError)
    reported(body.replace("wait(&bar[0], 0);", ""), early, group=group, frame=frame)


def test_relaxed_barrier_passes_completed_loads_on():
    """Of operations in Tensor Memory no memory order is asked, only that they are over."""
    relaxed = (
        'asm volatile("barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.aligned;")'
    )
    last = "before(); sync(); after();\n  if (warp == 0) { rel"
    frame = FRAME.replace(last, f"{relaxed};\n  if (warp == 0) {{ rel")
    assert relaxed in frame
    load = "st(own, v); wait_st(); ld(own, v);"
    clean(f"{load} wait_ld(); out[t] = v[0];", 1, frame=frame)
    reported(f"{load} out[t] = v[0];", HAZARD, "wait::ld", frame=frame)


def test_peer_must_be_there():
    reported("if (rank == 1) { dealloc<64>(tmem); return; }",
             (errors.DeadlockError, errors.TensorMemoryError), group=2)  # fmt: skip
