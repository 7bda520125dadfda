"""Divergence, reconvergence, collectives, barriers and scheduling."""

from __future__ import annotations

import numpy as np
import pytest
from emulator_kernels import integers, ptx_kernel, same_bits

from gpukit import emulator
from gpukit.emulator.errors import (
    BarrierError,
    BudgetExceededError,
    CollectiveError,
    DeadlockError,
    LivelockError,
)
from gpukit.emulator.policies import POLICIES

COLLATZ = """extern "C" __global__ void k(const int* x, int* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return;
  int v = x[i], c = 0; while (v != 1) { if (v & 1) v = 3 * v + 1; else v >>= 1; c++; } y[i] = c;
  }"""


def collatz(v):
    steps = 0
    while v != 1:
        v = 3 * v + 1 if v & 1 else v >> 1
        steps += 1
    return steps


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", [0, 1])
def test_divergent_loops(rng, policy, seed):
    x, y = rng.integers(1, 500, 300).astype("i4"), np.zeros(300, "i4")
    emulator.run(COLLATZ, 5, 64, [x, y, np.int32(300)], policy=policy, seed=seed)
    assert y.tolist() == [collatz(int(v)) for v in x]


def test_branches_reconverge():
    """After the join all lanes run together again, so each instruction there is issued once."""
    source = """extern "C" __global__ void k(int* y) { int i = threadIdx.x, v;
      switch (i & 3) { case 0: v = y[i] * 3; break; case 1: v = y[i] / 7; break;
        case 2: v = y[i] ^ 55; break; default: v = y[i] << 2; }
      y[i] = v + __shfl_xor_sync(~0u, v, 1); }"""
    y = np.arange(32, dtype="i4") + 100
    v = np.where(
        y % 4 == 0, y * 3, np.where(y % 4 == 1, y // 7, np.where(y % 4 == 2, y ^ 55, y << 2))
    )
    result = emulator.run(source, 1, 32, [y], policy="starved")
    same_bits(y, (v + v[np.arange(32) ^ 1]).astype("i4"))
    assert result.counters.instructions["shuffle"] == 1
    assert result.counters.instructions["store"] == 1
    assert 0.25 < result.counters.active_lanes < 1


def test_lanes_of_one_warp_can_wait_for_each_other():
    """Independent thread scheduling: lane 0 releases the others, from either side of a branch."""
    for waiter in ("threadIdx.x != 0", "threadIdx.x == 0"):
        source = f"""extern "C" __global__ void k(volatile int* flag, int* y) {{
          if ({waiter}) {{ while (*flag == 0) ; y[threadIdx.x] = 1; }}
          else {{ y[threadIdx.x] = 2; __threadfence(); *flag = 1; }} }}"""
        flag, y = np.zeros(1, "i4"), np.zeros(32, "i4")
        emulator.run(source, 1, 32, [flag, y])
        assert sorted(y.tolist()) == ([1] * 31 + [2] if "!=" in waiter else [1] + [2] * 31)


def test_ctas_of_a_cooperative_grid_run_together():
    source = """extern "C" __global__ void k(volatile int* flags, int* y) {
      int next = (blockIdx.x + 1) % gridDim.x;
      if (threadIdx.x == 0) { __threadfence(); flags[blockIdx.x] = 1; while (!flags[next]) ; }
      __syncthreads(); if (threadIdx.x == 0) y[blockIdx.x] = 1; }"""
    flags, y = np.zeros(300, "i4"), np.zeros(300, "i4")
    emulator.run(source, 300, 64, [flags, y], cooperative=True)
    assert y.all()


# Collectives


def shuffle(expression):
    return f"""extern "C" __global__ void k(const int* x, int* y) {{ int i = threadIdx.x;
      int v = x[blockIdx.x * blockDim.x + i]; y[blockIdx.x * blockDim.x + i] = {expression}; }}"""


SHUFFLES = {
    "__shfl_sync(~0u, v, 5)": lambda i: 5 + 0 * i,
    "__shfl_sync(~0u, v, i * 7)": lambda i: i * 7 % 32,
    "__shfl_sync(~0u, v, i + 3, 8)": lambda i: i // 8 * 8 + (i + 3) % 8,
    "__shfl_up_sync(~0u, v, 3)": lambda i: np.where(i >= 3, i - 3, i),
    "__shfl_up_sync(~0u, v, 2, 16)": lambda i: np.where(i % 16 >= 2, i - 2, i),
    "__shfl_down_sync(~0u, v, 4)": lambda i: np.where(i + 4 < 32, i + 4, i),
    "__shfl_down_sync(~0u, v, 1, 4)": lambda i: np.where(i % 4 < 3, i + 1, i),
    "__shfl_xor_sync(~0u, v, 9)": lambda i: i ^ 9,
    "__shfl_xor_sync(~0u, v, 16, 16)": lambda i: np.where(i >= 16, i ^ 16, i),
}


@pytest.mark.parametrize("policy", ["random", "starved"])
@pytest.mark.parametrize("expression", SHUFFLES)
def test_shuffles(rng, expression, policy):
    x, y = integers(rng, np.int32, 256), np.zeros(256, "i4")
    emulator.run(shuffle(expression), 4, 64, [x, y], policy=policy)
    i = np.arange(32)
    source = SHUFFLES[expression](i)
    same_bits(y, x.reshape(-1, 32)[:, source].ravel())


def test_shuffle_predicate_tells_who_was_in_range():
    body = """.reg .b32 %r<4>; .reg .b64 %a; .reg .pred %p; ld.param.u64 %a, [p0];
      mov.u32 %r0, %tid.x;
    shfl.sync.down.b32 %r1|%p, %r0, 5, 31, -1; selp.b32 %r2, 1, 0, %p;
    mad.wide.u32 %a, %r0, 4, %a; st.global.u32 [%a], %r2; ret;"""
    y = np.zeros(32, "u4")
    emulator.run(ptx_kernel(body, ".param .u64 p0"), 1, 32, [y])
    assert y.tolist() == [1] * 27 + [0] * 5


def bits(lanes):
    return int(sum(1 << int(i) for i in np.flatnonzero(lanes)))


def test_votes(rng):
    source = """extern "C" __global__ void k(const int* x, unsigned* y) {
      int i = threadIdx.x, v = x[i];
      unsigned b = __ballot_sync(~0u, v > 0);
      y[i] = b; y[64 + i] = __any_sync(~0u, v > 90) * 4 + __all_sync(~0u, v > -90) * 2 +
      __activemask() % 2;
      int same; y[128 + i] = __match_any_sync(~0u, v & 3);
      y[192 + i] = __match_all_sync(~0u, i / 32, &same) + same; }"""
    x, y = rng.integers(-99, 99, 64).astype("i4"), np.zeros(256, "u4")
    x[40] = 95
    emulator.run(source, 1, 64, [x, y])
    for w in range(2):
        v = x[32 * w : 32 * w + 32]
        part = slice(32 * w, 32 * w + 32)
        assert (y[:64][part] == bits(v > 0)).all()
        assert (y[64:128][part] == (v > 90).any() * 4 + (v > -90).all() * 2 + 1).all()
        assert y[128:192][part].tolist() == [bits(v & 3 == (a & 3)) for a in v]
        assert (y[192:][part] == 0).all()  # ~0 + 1


def test_reductions(rng):
    source = """extern "C" __global__ void k(const int* x, int* y) { int i = threadIdx.x, v = x[i];
      y[i] = __reduce_add_sync(~0u, v); y[32 + i] = __reduce_min_sync(~0u, v);
      y[64 + i] = __reduce_max_sync(~0u, (unsigned)v); y[96 + i] = __reduce_and_sync(~0u, v);
      y[128 + i] = __reduce_xor_sync(~0u, v);
      if (i % 3 == 1) y[160 + i] = __reduce_add_sync(0x92492492u, v); }"""
    x, y = integers(rng, np.int32, 32), np.zeros(192, "i4")
    emulator.run(source, 1, 32, [x, y])
    want = [x.sum(dtype="i4"), x.min(), x.view("u4").max().astype("i4"), np.bitwise_and.reduce(x),
            np.bitwise_xor.reduce(x)]  # fmt: skip
    same_bits(y[:160], np.repeat(np.array(want, "i4"), 32))
    third = np.arange(32) % 3 == 1
    same_bits(y[160:], np.where(third, x[third].sum(dtype="i4"), 0).astype("i4"))


def test_float_reductions():
    body = """.reg .b32 %r; .reg .f32 %f, %g; .reg .b64 %a; ld.param.u64 %a, [p0];
      mov.u32 %r, %tid.x;
    mad.wide.u32 %a, %r, 4, %a; ld.global.f32 %f, [%a]; redux.sync.max.abs.NaN.f32 %g, %f, -1;
    st.global.f32 [%a], %g; ret;"""
    x = np.linspace(-5, 3, 32).astype("f4")
    ptx = ptx_kernel(body, ".param .u64 p0").replace("sm_90a", "sm_100a")
    emulator.run(ptx, 1, 32, [x])
    assert (x == 5).all()


def test_groups_of_one_warp_use_their_own_masks(rng):
    source = """extern "C" __global__ void k(const int* x, int* y) { int i = threadIdx.x, v = x[i];
      unsigned peers = __match_any_sync(~0u, v); y[i] = __reduce_add_sync(peers, i); }"""
    x, y = rng.integers(0, 5, 32).astype("i4"), np.zeros(32, "i4")
    emulator.run(source, 1, 32, [x, y])
    assert y.tolist() == [int(np.flatnonzero(x == v).sum()) for v in x]


def test_collectives_wait_for_diverged_lanes():
    """The lanes of the mask meet at one instruction although a branch separated them."""
    body = """
    .reg .b32 %r<6>; .reg .b64 %a; .reg .pred %p; ld.param.u64 %a, [p0]; mov.u32 %r0, %tid.x;
    and.b32 %r1, %r0, 1; setp.eq.u32 %p, %r1, 0; mov.u32 %r2, 0;
    @%p bra MEET;
    LOOP: add.u32 %r2, %r2, 1; setp.lt.u32 %p, %r2, %r0; @%p bra LOOP;
    bra.uni MEET;
    MEET: shfl.sync.bfly.b32 %r3, %r0, 1, 31, -1;
    mad.wide.u32 %a, %r0, 4, %a; st.global.u32 [%a], %r3; ret;"""
    y = np.zeros(32, "u4")
    result = emulator.run(ptx_kernel(body, ".param .u64 p0"), 1, 32, [y], policy="starved")
    assert y.tolist() == [i ^ 1 for i in range(32)]
    assert result.counters.instructions["shuffle"] == 1


def test_warp_barrier_orders_lanes():
    source = """extern "C" __global__ void k(int* y) { __shared__ int s[32]; int i = threadIdx.x;
      if (i < 16) s[i] = i; __syncwarp(); if (i >= 16) s[i] = s[i - 16] + 100; __syncwarp();
      y[i] = s[i]; }"""
    y = np.zeros(32, "i4")
    emulator.run(source, 1, 32, [y])
    assert y.tolist() == [*range(16), *range(100, 116)]


def test_missing_lanes_of_a_collective_are_named():
    source = """extern "C" __global__ void k(int* y) { int i = threadIdx.x;
      if (i < 16) y[i] = __shfl_sync(0x0001ffff, i, 0); else asm volatile("bar.sync 1, 64;"); }"""
    with pytest.raises(DeadlockError, match="lanes 0x00010000 of its member mask"):
        emulator.run(source, 1, 64, [np.zeros(64, "i4")])
    wrong = 'extern "C" __global__ void k(int* y) { y[threadIdx.x] = __shfl_sync(0xff, 1, 0); }'
    with pytest.raises(CollectiveError, match="lane 8 is not in its own member mask 0x000000ff"):
        emulator.run(wrong, 1, 32, [np.zeros(32, "i4")])


def test_exited_lanes_are_not_awaited():
    source = """extern "C" __global__ void k(int* y) { int i = threadIdx.x; if (i >= 20) return;
      y[i] = __reduce_add_sync(0xfffff, i); __syncthreads(); y[i] += 1; }"""
    y = np.zeros(32, "i4")
    emulator.run(source, 1, 32, [y])
    assert (y[:20] == 191).all()


def test_elect_names_one_leader():
    body = """.reg .b32 %r<3>; .reg .b64 %a; .reg .pred %p; ld.param.u64 %a, [p0];
      mov.u32 %r0, %tid.x;
    elect.sync %r1|%p, -1; @!%p exit; mad.wide.u32 %a, %r0, 4, %a; mov.u32 %r2, 1;
    st.global.u32 [%a], %r2; ret;"""
    y = np.zeros(64, "u4")
    emulator.run(ptx_kernel(body, ".param .u64 p0"), 1, 64, [y])
    assert y.reshape(2, 32).sum(axis=1).tolist() == [1, 1]


# Barriers

REVERSE = """extern "C" __global__ void k(const int* x, int* y) { __shared__ int s[256];
      int i = threadIdx.x;
  for (int r = 0; r < 3; r++) { s[i] = x[i] + r; __syncthreads(); y[i] = s[255 - i];
  __syncthreads(); } }"""


@pytest.mark.parametrize("policy", POLICIES)
def test_barriers(rng, policy):
    x, y = integers(rng, np.int32, 256), np.zeros(256, "i4")
    result = emulator.run(REVERSE, 1, 256, [x, y], policy=policy)
    same_bits(y, x[::-1] + np.int32(2))
    assert result.counters.instructions["barrier"] == 48


def test_early_exit_before_a_barrier():
    source = """extern "C" __global__ void k(int* y, int n) { if (threadIdx.x >= n) return;
      __syncthreads(); y[threadIdx.x] = 1; }"""
    y = np.zeros(128, "i4")
    emulator.run(source, 1, 128, [y, np.int32(40)])
    assert y.sum() == 40


def test_named_barriers_hand_over_between_warps():
    source = """extern "C" __global__ void k(int* y) { __shared__ int s[32];
      int i = threadIdx.x & 31;
      for (int r = 0; r < 4; r++) {
        if (threadIdx.x < 32) { asm volatile("bar.sync 2, 64;" ::: "memory"); s[i] = r * 100 + i;
          asm volatile("bar.arrive 1, 64;" ::: "memory"); }
        else { asm volatile("bar.arrive 2, 64;" ::: "memory");
        asm volatile("bar.sync 1, 64;" ::: "memory");
          y[r * 32 + i] = s[31 - i]; } } }"""
    for policy in POLICIES:
        y = np.zeros(128, "i4")
        emulator.run(source, 1, 64, [y], policy=policy)
        want = np.arange(4)[:, None] * 100 + 31 - np.arange(32)
        assert (y.reshape(4, 32) == want).all()


@pytest.mark.parametrize("policy", ["random", "starved"])
def test_barrier_reductions(rng, policy):
    source = """extern "C" __global__ void k(const int* x, int* y) { int i = threadIdx.x, v = x[i];
      int a = __syncthreads_count(v > 0), b = __syncthreads_and(v > -100), c = __syncthreads_or(v
      > 98);
      y[i] = a * 4 + (b != 0) * 2 + (c != 0); }"""
    x, y = rng.integers(-99, 98, 96).astype("i4"), np.zeros(96, "i4")
    emulator.run(source, 1, 96, [x, y], policy=policy)
    assert (y == (x > 0).sum() * 4 + 2).all()


def test_mismatched_counts_are_reported():
    source = """extern "C" __global__ void k(int n) {
      if (threadIdx.x < 32) asm volatile("bar.sync 3, 64;");
      else asm volatile("bar.sync 3, %0;" :: "r"(n)); }"""
    emulator.run(source, 1, 64, [np.int32(64)])
    with pytest.raises(BarrierError, match=r"is used with .* while it waits for"):
        emulator.run(source, 1, 96, [np.int32(96)], policy="starved")
    with pytest.raises(BarrierError, match="thread count 48 is not a positive multiple of 32"):
        emulator.run(source, 1, 64, [np.int32(48)])
    with pytest.raises(BarrierError, match="thread count 96 exceeds the CTA's 64 threads"):
        emulator.run(source, 1, 64, [np.int32(96)])


def test_divergent_barriers_are_reported():
    source = """extern "C" __global__ void k(int* y, int n) {
      int* mine = y + threadIdx.x / 32 * 2;
      if (threadIdx.x < n) { mine[0] = 1; __syncthreads(); } else { mine[1] = 1;
      asm volatile("bar.sync 0;"); } }"""
    emulator.run(source, 1, 64, [np.zeros(4, "i4"), np.int32(32)])
    with pytest.raises(BarrierError, match="arrive from different instructions"):
        emulator.run(source, 1, 64, [np.zeros(4, "i4"), np.int32(16)])


def test_deadlock_report_names_warps_lines_and_barriers():
    source = """extern "C" __global__ void k() {
      if (threadIdx.x < 32)
        asm volatile("bar.sync 1, 96;");
      else if (threadIdx.x < 64)
        asm volatile("bar.sync 2, 64;");
    }"""
    with pytest.raises(DeadlockError) as caught:
        emulator.run(source, 1, 96, [])
    text = str(caught.value)
    assert "CTA (0, 0, 0) warp 0 (32 lanes) at kernel.cu:3 (bar.sync 1, 96)" in text
    assert "barrier 1: 1 of 3 warps have arrived" in text
    assert "warp 1 (32 lanes) at kernel.cu:5" in text
    assert "barrier 2: 1 of 2 warps have arrived" in text


def test_endless_loops_hit_the_budget():
    source = 'extern "C" __global__ void k(volatile int* y) { for (;;) y[threadIdx.x]++; }'
    with pytest.raises(BudgetExceededError, match="more than 20000 warp instructions"):
        emulator.run(source, 1, 64, [np.zeros(64, "i4")], budget=20_000)


def test_spins_that_nobody_ends_are_reported(monkeypatch):
    monkeypatch.setattr("gpukit.emulator.scheduler.STALLED", 20_000)
    source = 'extern "C" __global__ void k(volatile int* flag) { while (*flag == 0) ; }'
    with pytest.raises(LivelockError, match="endless spin"):
        emulator.run(source, 1, 64, [np.zeros(1, "i4")])


# Clusters

CLUSTER = """
__device__ void sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
extern "C" __global__ void __cluster_dims__(4, 1, 1) k(int* y) {
  __shared__ int s[64];
  int rank, v;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  s[threadIdx.x] = rank * 1000 + threadIdx.x;
  sync();
  unsigned own = (unsigned)__cvta_generic_to_shared(&s[63 - threadIdx.x]);
  asm volatile("{ .reg .u32 a; mapa.shared::cluster.u32 a, %1, %2;"
               "  ld.shared::cluster.s32 %0, [a]; }"
               : "=r"(v) : "r"(own), "r"((rank + 1) % 4) : "memory");
  sync();
  y[blockIdx.x * 64 + threadIdx.x] = v + (blockIdx.x / 4) * 10000;
}"""


@pytest.mark.parametrize("policy", POLICIES)
def test_clusters_read_each_others_shared_memory(policy):
    y = np.zeros(8 * 64, "i4")
    emulator.run(CLUSTER, 8, 64, [y], policy=policy)
    block, thread = np.divmod(np.arange(512), 64)
    want = (block % 4 + 1) % 4 * 1000 + 63 - thread + block // 4 * 10000
    same_bits(y, want.astype("i4"))


def test_special_registers():
    names = [
        "tid.x",
        "tid.y",
        "ctaid.x",
        "ctaid.y",
        "laneid",
        "warpid",
        "cluster_ctaid.x",
        "clusterid.x",
        "cluster_ctarank",
        "nctaid.y",
        "ntid.y",
        "lanemask_lt",
        "lanemask_ge",
        "nclusterid.x",
    ]
    n, threads = len(names), 48
    loads = "".join(
        f"mov.u32 %r1, %{name}; st.global.u32 [%a+{4 * k}], %r1;\n" for k, name in enumerate(names)
    )
    body = f""".reg .b32 %r<9>; .reg .b64 %a; ld.param.u64 %a, [p0];
    mov.u32 %r2, %ctaid.y; mov.u32 %r3, %nctaid.x; mov.u32 %r4, %ctaid.x;
    mad.lo.u32 %r2, %r2, %r3, %r4;
    mov.u32 %r5, %tid.y; mov.u32 %r6, %tid.x; mad.lo.u32 %r5, %r5, 12, %r6;
    mad.lo.u32 %r2, %r2, {threads}, %r5; mad.wide.u32 %a, %r2, {4 * n}, %a;
    {loads} ret;"""
    y = np.zeros((6, threads, n), "u4")
    emulator.run(ptx_kernel(body, ".param .u64 p0"), (2, 3), (12, 4), [y], cluster=(2, 1))
    for block in range(6):
        bx, by = block % 2, block // 2
        for t in range(threads):
            lane = t % 32
            want = [t % 12, t // 12, bx, by, lane, t // 32, bx, 0, bx, 3, 4, (1 << lane) - 1,
                    0xFFFFFFFF ^ ((1 << lane) - 1), 1]  # fmt: skip
            assert y[block, t].tolist() == want


def test_clocks_advance():
    source = """extern "C" __global__ void k(long long* y) { long long a = clock64();
      __nanosleep(10);
      __syncthreads(); y[threadIdx.x] = clock64() - a; }"""
    y = np.zeros(64, "i8")
    emulator.run(source, 1, 64, [y])
    assert (y > 0).all()
