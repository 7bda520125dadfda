"""Clusters: distributed shared memory, remote mbarriers, multicast, and register hand-over."""

from __future__ import annotations

import numpy as np
import pytest
from async_kernels import TMA, WRAPPERS

from gpukit import emulator
from gpukit.emulator import TensorMap
from gpukit.emulator.errors import (
    BarrierError,
    CollectiveError,
    DeadlockError,
    KernelFault,
    OutOfBoundsError,
    UninitializedReadError,
    UnsupportedInstructionError,
)
from gpukit.emulator.policies import POLICIES

RING = WRAPPERS + r"""
extern "C" __global__ void __cluster_dims__(4, 1, 1) k(int* y) {
  __shared__ int mine[64];
  int t = threadIdx.x; u32 rank = cluster_rank(), next = (rank + 1) % 4;
  mine[t] = 100 * blockIdx.x + t;
  cluster_sync();
  int v; u32 a = remote(mine + 63 - t, next);
  asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(v) : "r"(a) : "memory");
  y[blockIdx.x * 64 + t] = v;
  cluster_sync();
  asm volatile("st.shared::cluster.u32 [%0], %1;" :: "r"(remote(mine + t, next)), "r"(v + 1) : "memory");
  cluster_sync();
  asm volatile("red.shared::cluster.add.u32 [%0], %1;" :: "r"(remote(mine + 0, 0)), "r"(1) : "memory");
  cluster_sync();
  y[512 + blockIdx.x * 64 + t] = mine[t]; }"""  # noqa: E501


@pytest.mark.parametrize("policy", POLICIES)
def test_loads_stores_and_atomics_on_other_ctas(policy):
    y = np.zeros(1024, "i4")
    emulator.run(RING, 8, 64, [y], policy=policy)
    cta, t = np.divmod(np.arange(512), 64)
    neighbour = lambda step: cta // 4 * 4 + (cta % 4 + step) % 4  # noqa: E731
    first = 100 * neighbour(1) + 63 - t
    assert (y[:512] == first).all()
    second = first.reshape(8, 64)[neighbour(-1)[::64]].ravel() + 1
    second[[0, 256]] += 256
    assert (y[512:] == second).all()


def test_special_registers_and_address_queries():
    source = WRAPPERS + r"""
extern "C" __global__ void __cluster_dims__(2, 2, 1) k(int* y) {
  __shared__ int here;
  u32 v[12]; u64 g;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(v[0])); asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(v[1]));
  asm("mov.u32 %0, %%cluster_ctaid.x;" : "=r"(v[2])); asm("mov.u32 %0, %%cluster_ctaid.y;" : "=r"(v[3]));
  asm("mov.u32 %0, %%cluster_nctaid.y;" : "=r"(v[4])); asm("mov.u32 %0, %%clusterid.x;" : "=r"(v[5]));
  asm("mov.u32 %0, %%nclusterid.x;" : "=r"(v[6]));
  asm("getctarank.shared::cluster.u32 %0, %1;" : "=r"(v[7]) : "r"(remote(&here, 3)));
  asm("mapa.u64 %0, %1, %2;" : "=l"(g) : "l"(&here), "r"(1));
  asm("getctarank.u64 %0, %1;" : "=r"(v[8]) : "l"(g));
  asm("{ .reg .pred p; isspacep.shared::cta p, %1; selp.u32 %0, 1, 0, p; }" : "=r"(v[9]) : "l"(g));
  asm("{ .reg .pred p; isspacep.shared::cluster p, %1; selp.u32 %0, 1, 0, p; }" : "=r"(v[10]) : "l"(g));
  asm("{ .reg .pred p; isspacep.global p, %1; selp.u32 %0, 1, 0, p; }" : "=r"(v[11]) : "l"(g));
  int cta = blockIdx.y * gridDim.x + blockIdx.x;
  for (int i = 0; i < 12; i++) y[cta * 12 + i] = v[i]; }"""  # noqa: E501
    y = np.zeros((2, 4, 12), "i4")
    emulator.run(source, (4, 2), 1, [y])
    for by in range(2):
        for bx in range(4):
            rank = bx % 2 + 2 * by
            assert y[by, bx].tolist() == [
                rank, 4, bx % 2, by, 2, bx // 2, 2, 3, 1, int(rank == 1), 1, 0
            ]  # fmt: skip


# The cluster barrier


def cluster_kernel(body, extra=""):
    return WRAPPERS + (
        f'{extra} extern "C" __global__ void __cluster_dims__(2, 1, 1) k(int* y) {{'
        f" __shared__ int value[64]; __shared__ u64 bar; u32 rank = cluster_rank();"
        f" int t = threadIdx.x; {body} }}"
    )


def run_cluster(body, threads=64, blocks=2, **options):
    y = np.zeros(256, "i4")
    emulator.run(cluster_kernel(body), blocks, threads, [y], **options)
    return y


ARRIVE, WAIT = "barrier.cluster.arrive", "barrier.cluster.wait"


@pytest.mark.parametrize("policy", POLICIES)
def test_arrive_and_wait_apart(policy):
    """Also by lanes one after the other, and with threads that exit instead of arriving."""
    y = run_cluster(
        f"""if (rank == 1 && t >= 40) return;
        if (t & 1) asm volatile("{ARRIVE}.release;" ::: "memory");
        else {{ value[t] = t; asm volatile("{ARRIVE};" ::: "memory"); }}
        asm volatile("{WAIT}.acquire;" ::: "memory");
        if (rank == 0) {{ int v; u32 a = remote(value + (t & 30), 1);
          asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(v) : "r"(a)); y[t] = v; }}
        asm volatile("{ARRIVE}.relaxed; {WAIT};" ::: "memory");
        asm volatile("{ARRIVE}; {WAIT};" ::: "memory");""",
        policy=policy,
    )
    assert (y[:64] == np.arange(64) & 30).all()


def test_misuse_of_the_cluster_barrier():
    with pytest.raises(BarrierError, match="arrive twice without a wait"):
        run_cluster(f'asm volatile("{ARRIVE}; {ARRIVE};");')
    with pytest.raises(BarrierError, match="wait without an arrive"):
        run_cluster(f'asm volatile("{WAIT};");')
    with pytest.raises(DeadlockError, match="lanes 0xffff0000 of its member mask to arrive"):
        run_cluster(f"""if (t == 0) init(&bar, 2); __syncthreads();
            if (t < 16) asm volatile("{ARRIVE}.aligned;"); else wait(&bar, 0);""")
    with pytest.raises(DeadlockError, match="has not seen warp 0 of rank 1, warp 1 of rank 1"):
        run_cluster(f"""if (rank == 0) asm volatile("{ARRIVE}; {WAIT};");
            else {{ if (t == 0) init(&bar, 2); __syncthreads(); wait(&bar, 0); }}""")


def test_an_aligned_arrive_waits_for_lanes_that_diverged():
    body = f"""value[t] = t;
        if (t == 0) for (int i = 0; i < 100; ++i) ((volatile int*)value)[0] = i;
        asm volatile("{ARRIVE}.aligned; {WAIT}.aligned;" ::: "memory"); """
    run_cluster(body, threads=64)


def test_access_to_the_memory_of_an_exited_cta():
    body = """value[t] = t; cluster_sync();
        if (rank == 1) { ((volatile int*)y)[255] = 1; return; }
        while (!((volatile int*)y)[255]) ;
        int v; asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(v) : "r"(remote(value, 1)));
        y[t] = v; """
    with pytest.raises(KernelFault, match="of rank 1, which has exited"):
        run_cluster(body, threads=1, policy="starved", checks=False)


# Remote mbarriers


REMOTE = """if (t == 0) { init(&bar, 2 * 64); fence_init(); } cluster_sync();
  asm volatile("{ .reg .b32 a; mapa.shared::cluster.u32 a, %0, 0;"
               " mbarrier.arrive.release.cluster.shared::cluster.b64 _, [a]; }" :: "r"(smem(&bar)));
  if (rank == 0) { asm volatile("{ .reg .pred p; again:"
     " mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%0], 0; @!p bra again; }"
     :: "r"(smem(&bar)) : "memory"); y[t] = 7; }"""


@pytest.mark.parametrize("policy", POLICIES)
def test_arrivals_from_another_cta(policy):
    assert (run_cluster(REMOTE + "cluster_sync();", policy=policy)[:64] == 7).all()


def test_misuse_of_remote_mbarriers():
    with pytest.raises(BarrierError, match="in the shared memory of rank 1; this works on the own"):
        run_cluster("""if (t == 0) { init(&bar, 1); fence_init(); } cluster_sync();
          u64 a; asm volatile("mapa.u64 %0, %1, 1;" : "=l"(a) : "l"(&bar));
          asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.b64 p, [%0], 0; }" :: "l"(a));""")
    with pytest.raises(BarrierError, match="returns no state"):
        run_cluster("""if (t == 0) { init(&bar, 128); fence_init(); } cluster_sync();
          u64 a, s; asm volatile("mapa.u64 %0, %1, 0;" : "=l"(a) : "l"(&bar));
          asm volatile("mbarrier.arrive.b64 %0, [%1];" : "=l"(s) : "l"(a)); y[t] = s;""")
    with pytest.raises(KernelFault, match="signals a CTA that has exited"):
        body = """if (t == 0) { init(&bar, 1); fence_init(); } cluster_sync();
          if (rank == 1) { ((volatile int*)y)[255] = 1; return; }
          while (!((volatile int*)y)[255]) ;
          asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];"
                       :: "r"(remote(&bar, 1)));"""
        run_cluster(body, threads=1, policy="starved", checks=False)


# Asynchronous stores and copies to other CTAs


PUSH = """__shared__ __align__(16) int inbox[64]; __shared__ __align__(16) int outbox[64];
  inbox[t] = t; outbox[t] = 1000 * (rank + 1) + t;
  if (t == 0) { init(&bar, 1); fence_init(); }
  fence_async(); cluster_sync();
  u32 peer = rank ^ 1;
  if (t == 0) expect(&bar, BYTES);
  CODE
  asm volatile("{ .reg .pred p; again:"
     " mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%0], 0; @!p bra again; }"
     :: "r"(smem(&bar)) : "memory");
  y[rank * 64 + t] = inbox[t]; cluster_sync();"""
STORE = r"""asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];"
  :: "r"(remote(inbox + t, peer)), "r"(outbox[t]), "r"(remote(&bar, WHERE)) : "memory");"""
VECTOR = r"""if (t < 16) { int* v = outbox + 4 * t;
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32"
  " [%0], {%1, %2, %3, %4}, [%5];" :: "r"(remote(inbox + 4 * t, peer)), "r"(v[0]), "r"(v[1]),
  "r"(v[2]), "r"(v[3]), "r"(remote(&bar, peer)) : "memory"); }"""
ADD = r"""asm volatile("red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes"
  ".add.u32 [%0], %1, [%2];" :: "r"(remote(inbox + t, DEST)), "r"(outbox[t]),
  "r"(remote(&bar, peer)) : "memory");"""
COPY = r"""if (t == 0) asm volatile("cp.async.bulk.shared::cluster.shared::cta"
  ".mbarrier::complete_tx::bytes [%0], [%1], 256, [%2];" :: "r"(remote(inbox, DEST)),
  "r"(smem(outbox)), "r"(remote(&bar, peer)) : "memory");"""
REDUCE = COPY.replace("cp.async", "cp.reduce.async").replace("tx::bytes", "tx::bytes.add.u32")


def push(code, size=256, **options):
    return run_cluster(PUSH.replace("CODE", code).replace("BYTES", str(size)), **options)[:128]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("way", ["store", "vector", "add", "copy", "reduce"])
def test_pushing_values_to_another_cta(way, policy):
    code = {"store": STORE.replace("WHERE", "peer"), "vector": VECTOR, "add": ADD, "copy": COPY,
            "reduce": REDUCE}[way].replace("DEST", "peer")  # fmt: skip
    y = push(code, policy=policy)
    t = np.arange(64)
    sent = np.concatenate([2000 + t, 1000 + t])
    assert (y == sent + (np.tile(t, 2) if way in ("add", "reduce") else 0)).all()


def test_misuse_of_pushes():
    with pytest.raises(BarrierError, match=r"st\.async: the mbarrier is in the CTA of rank"):
        push(STORE.replace("WHERE", "rank"))
    with pytest.raises(BarrierError, match=r"destination is not|must be in another CTA"):
        push(ADD.replace("DEST", "rank"))
    with pytest.raises(OutOfBoundsError, match="must go to another CTA"):
        push(COPY.replace("DEST", "rank"))
    with pytest.raises((DeadlockError, UninitializedReadError), match=r"16 bytes of tx-count"):
        push(STORE.replace("WHERE", "peer"), 272)
    with pytest.raises(UnsupportedInstructionError, match="not emulated"):
        push('asm volatile("st.async.release.gpu.global.u32 [%0], 1;" :: "l"(y));')


# Multicast


MULTICAST = (WRAPPERS + TMA + r"""
extern "C" __global__ void __cluster_dims__(4, 1, 1) k(const __grid_constant__ TensorMap map,
                                                       const int* x, int* y) {
  __shared__ __align__(1024) int tile[4][32];
  __shared__ u64 bar;
  int t = threadIdx.x; u32 rank = cluster_rank();
  if (t == 0) { init(&bar, 1); fence_init(); expect(&bar, 512); }
  cluster_sync();
  if (t == 0) { ISSUE }
  wait(&bar, 0);
  for (int i = 0; i < 4; i++) y[blockIdx.x * 128 + i * 32 + t] = ((int*)tile)[i * 32 + t];
  cluster_sync(); }""")  # fmt: skip
BULK = r"""asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
  ".multicast::cluster [%0], [%1], 128, [%2], %3;" :: "r"(smem(tile[rank])), "l"(x + rank * 32),
  "r"(smem(&bar)), "h"((u16)MASK) : "memory");"""
TENSOR = r"""asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global"
  ".mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint"
  " [%0], [%1, {%2, %3}], [%4], %5, %6;"
  :: "r"(smem(tile[rank])), "l"(generic(map)), "r"(0), "r"(rank), "r"(smem(&bar)),
     "h"((u16)MASK), "l"(0x1000000000000000ull) : "memory");"""


def multicast(issue, mask="15", **options):
    x, y = np.arange(128, dtype="i4").reshape(4, 32), np.zeros((8, 4, 32), "i4")
    source = MULTICAST.replace("ISSUE", issue.replace("MASK", mask))
    result = emulator.run(source, 8, 32, [TensorMap(x, (32, 1)), x, y], **options)
    assert (y == x).all()
    return result.counters.extra


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("issue", [BULK, TENSOR])
def test_multicast(issue, policy):
    """Each of four CTAs loads a quarter for all: L2 is read once, three copies are saved."""
    extra = multicast(issue, policy=policy)
    assert extra["l2_to_shared_bytes"] == 2 * 512
    assert extra["multicast_saved_bytes"] == 2 * 3 * 512


def test_misuse_of_multicast():
    for mask in ("0", "31"):
        with pytest.raises(KernelFault, match=r"names no CTA, or one that the cluster of 4"):
            multicast(BULK, mask)
    with pytest.raises(DeadlockError, match=r"128 bytes of tx-count"):
        multicast(TENSOR, "(rank == 2 ? 7 : 15)")
    with pytest.raises(BarrierError, match="the mbarrier is in the CTA of rank"):
        multicast(BULK.replace("smem(&bar)", "remote(&bar, rank ^ 1)"))


@pytest.mark.parametrize("parity", [0, 1])
def test_cta_pairs_signal_one_of_the_pair(parity):
    """cta_group::2: every receiver's bytes go to the CTA of its pair that the address names."""
    issue = TENSOR.replace(".multicast", ".cta_group::2.multicast")
    issue = issue.replace("smem(&bar)", f"remote(&bar, rank & ~1 | {parity})")
    source = MULTICAST.replace("ISSUE", issue.replace("MASK", "15"))
    source = source.replace("expect(&bar, 512);", f"if (rank % 2 == {parity}) expect(&bar, 1024);")
    source = source.replace("wait(&bar, 0);", f"""if (rank % 2 == {parity}) wait(&bar, 0);
      cluster_sync();""")  # fmt: skip
    x, y = np.arange(128, dtype="i4").reshape(4, 32), np.zeros((8, 4, 32), "i4")
    emulator.run(source, 8, 32, [TensorMap(x, (32, 1)), x, y], arch="sm_100a")
    assert (y == x).all()


# griddepcontrol and setmaxnreg


def test_griddepcontrol_of_a_single_launch():
    source = """extern "C" __global__ void k(int* y) {
      asm volatile("griddepcontrol.wait;" ::: "memory"); y[threadIdx.x] = 1;
      asm volatile("griddepcontrol.launch_dependents;"); }"""
    y = np.zeros(32, "i4")
    emulator.run(source, 1, 32, [y])
    assert y.all()


REGISTERS = r"""
extern "C" __global__ void __launch_bounds__(384, 1) k(int* y) {
  int group = threadIdx.x / 128, warp = threadIdx.x / 32;
  if (group == 0) { asm volatile("setmaxnreg.dec.sync.aligned.u32 FREE;"); MORE }
  else asm volatile("setmaxnreg.inc.sync.aligned.u32 TAKE;");
  y[threadIdx.x] = warp; }"""


def registers(free=24, take=240, more="", source=REGISTERS, threads=384, **options):
    y = np.zeros(threads, "i4")
    text = source.replace("FREE", str(free)).replace("TAKE", str(take)).replace("MORE", more)
    result = emulator.run(text.replace("(384, 1)", f"({threads}, 1)"), 1, threads, [y], **options)
    assert (y == np.arange(threads) // 32).all()
    return result


@pytest.mark.parametrize("policy", POLICIES)
def test_setmaxnreg_moves_registers(policy):
    """168 a thread at the start: 144 of each producer thread make 2 x 72."""
    registers(policy=policy)
    registers(free=40, take=232, policy=policy)


MORE_LATER = """if (y == nullptr) asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");"""


@pytest.mark.parametrize(
    "threads, free, take", [(256, 24, 240), (256, 40, 232), (384, 24, 160), (256, 24, 256)]
)
def test_a_kernel_starts_with_no_more_registers_than_it_takes_later(threads, free, take):
    """As ptxas says ("Used 240 registers"): two warpgroups could have 255 each."""
    registers(free, take, threads=threads)


def test_a_single_warpgroup_starts_with_all_registers():
    registers(source=REGISTERS.replace("if (group == 0) {", "if (group) {"), take=256, threads=128)


def test_misuse_of_setmaxnreg():
    with pytest.raises(DeadlockError, match=r"waits for 72 more registers .* pool has 8 for one"):
        registers(free=40, take=240)
    with pytest.raises(BarrierError, match=r"setmaxnreg.inc to 160: the warp owns 168"):
        registers(take=160, more=MORE_LATER)
    with pytest.raises(BarrierError, match=r"not executed by all warps of the warpgroup of warp 4"):
        registers(source=REGISTERS.replace("else", "else if (warp < 6)"))
    with pytest.raises(BarrierError, match="of the same warpgroup executed"):
        registers(source=REGISTERS.replace("if (group == 0)", "if (warp < 2)"), take=168)
    with pytest.raises(CollectiveError, match="by some lanes"):
        registers(source=REGISTERS.replace("if (group == 0)", "if (threadIdx.x < 16)"))
    for count in (25, 16, 264):
        with pytest.raises(UnsupportedInstructionError, match="must be 24 to 256 in steps of 8"):
            registers(take=count)


def test_setmaxnreg_without_a_register_limit_has_no_effect():
    result = registers(source=REGISTERS.replace("(384, 1)", "(384)"), take=256)
    assert result.counters.extra["setmaxnreg_ignored"] == 12
