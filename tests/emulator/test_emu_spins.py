"""Spins: those that nobody can end are reported soon, all others run to their end.

Every kernel runs under all policies, and two random orders.
"""

from __future__ import annotations

import time

import numpy as np
import pytest
from async_kernels import WRAPPERS

from gpukit import emulator
from gpukit.emulator.errors import DeadlockError, LivelockError

SCHEDULES = [("random", 0), ("random", 1), ("early", 0), ("late", 0), ("starved", 0)]
SECONDS = 3.0

PRELUDE = (
    WRAPPERS
    + r"""
__device__ inline int test_wait(u64* b, u32 parity) {
  int d; asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;"
    " selp.b32 %0, 1, 0, p; }" : "=r"(d) : "r"(smem(b)), "r"(parity) : "memory"); return d; }
__device__ inline int peek(u64* b, u32 parity) {
  int d; asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;"
    " selp.b32 %0, 1, 0, p; }" : "=r"(d) : "r"(smem(b)), "r"(parity) : "memory"); return d; }
__device__ inline int relaxed(int* p) {
  int v; asm volatile("ld.relaxed.gpu.global.s32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v; }
__device__ inline int acquired(int* p) {
  int v; asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v; }
__device__ __noinline__ int polled(int* p, int unused) { return *(volatile int*)p + unused; }
"""
)


def kernel(body, dims=""):
    return (
        PRELUDE
        + f"""
extern "C" __global__ void {dims} k(int* flag, int* y) {{
  __shared__ volatile int s; __shared__ u64 bar; __shared__ alignas(16) volatile int box[4];
  const int t = threadIdx.x, warp = t / 32, lane = t % 32; volatile int* f = flag;
  if (t == 0) {{ s = 0; for (int i = 0; i < 4; i++) box[i] = 0; init(&bar, 1); fence_init(); }}
  __syncthreads();
  {body}
}}"""
    )


def run(source, grid, threads, **options):
    flag, y = np.zeros(64, "i4"), np.zeros(4096, "i4")
    emulator.run(source, grid, threads, [flag, y], **options)
    return y


# Nobody ends these

ENDLESS = {
    "volatile": "while (!*f) ;",
    "relaxed": 'while (!relaxed(flag)) ;',
    "acquire": 'while (!acquired(flag)) ;',
    "atomic": "while (!atomicAdd(flag, 0)) ;",
    "a lock that is never released": "while (atomicCAS(flag, 0, 1)) ; if (t < 32) while (1) *f;",
    "shared memory": "while (!s) ;",
    "one lane polls for its warp": "while (1) { int v = 0; if (lane == 0) v = *f;"
    " if (__shfl_sync(~0u, v, 0)) break; }",
    "lanes of a warp poll different flags": "if (lane < 7) while (!f[1]) ;"
    " else if (lane < 20) while (!f[2]) ;",
    "every lane its own": "while (!f[lane]) ;",
    "back-off": "for (int ns = 8; !*f; ns = ns < 256 ? ns * 2 : 256) __nanosleep(ns);",
    "in a function": "while (!polled(flag, 0)) ;",
    "with a barrier": "while (1) { __syncthreads(); if (*f) break; }",
    "with a reducing barrier": "while (!__syncthreads_or(t == 0 && *f)) ;",
    "with other reductions": "while (__syncthreads_count(*f) < 3 && !__syncthreads_and(*f)) ;",
    "test_wait": "while (!test_wait(&bar, 0)) ;",
    "try_wait": "if (warp) while (!*f) ; else while (!peek(&bar, 0)) ;",
    "some wait for others who spin": "if (warp) while (!*f) ; else wait(&bar, 0);",
    "some wait at a barrier": "if (warp == 0) while (!*f) ; __syncthreads();",
    "others have ended": "if (warp == 0) while (!*f) ;",
    "after work": "for (int i = 0; i < 200; i++) y[blockIdx.x * 96 + t] += i; while (!*f) ;",
    "several flags": "while (!(f[0] && f[1]) && !s) ;",
    "a counter that starts again": "for (int i = 0; !*f; i = i < 1000 ? i + 1 : 0) ;",
    "rounds are counted": "int n = 0; while (!*f) n++; y[blockIdx.x * 96 + t] = n;",
    "rounds are counted in wide words": "long long n = 0; float x = 0; while (!*f) n += 3, x += n;"
    " y[blockIdx.x * 96 + t] = n + x;",
    "rounds are counted in a function": "int n = 0; while (!polled(flag, 0)) n++;"
    " y[blockIdx.x * 96 + t] = n;",
    "a lock between polls": "while (1) { if (*f) break; while (atomicCAS(flag + 1, 1, 0)) ; }",
}  # fmt: skip


@pytest.mark.parametrize("how", ENDLESS)
def test_endless_spins(how):
    source = kernel(ENDLESS[how])
    for policy, seed in SCHEDULES:
        start = time.process_time()
        with pytest.raises(DeadlockError, match=r"endless spin|deadlock"):
            run(source, 2, 96, policy=policy, seed=seed)
        assert time.process_time() - start < SECONDS


def test_the_report_names_every_warp_its_line_and_what_it_polls():
    source = kernel("""
if (warp == 0) while (!f[3]) ;
else if (warp == 1) while (!s) ;
else if (warp == 2) wait(&bar, 0);
else __syncthreads();""")
    line = source[: source.index("if (warp == 0)")].count("\n") + 1
    for policy, seed in SCHEDULES:
        with pytest.raises(LivelockError) as caught:
            run(source, 1, 128, policy=policy, seed=seed)
        text = str(caught.value)
        places = [f"CTA (0, 0, 0) warp {w} (32 lanes) at kernel.cu:{line + w} " for w in range(2)]
        head, *lines = text.split("\n  ")
        assert head == "k: endless spin, nothing that these warps poll can change:"
        assert lines[0].startswith(places[0] + "(ld.volatile.global")
        assert lines[0].endswith(": polls global memory at 0x100000000c")
        assert lines[1].startswith(places[1] + "(ld.volatile.shared")
        assert ": polls shared memory at 0x" in lines[1]
        assert "warp 2" in lines[2]
        assert "waits for phase 0 of mbarrier" in lines[2]
        assert "barrier 0: 1 of 4 warps have arrived" in lines[3]
        assert len(lines) == 4


@pytest.mark.parametrize("policy", ["random", "starved"])
def test_many_warps(policy):
    start = time.process_time()
    with pytest.raises(LivelockError) as caught:
        run(kernel("while (!f[warp]) ;"), 64, 1024, policy=policy)
    assert time.process_time() - start < SECONDS
    assert len(str(caught.value)) < 20_000


def test_a_whole_cooperative_grid():
    start = time.process_time()
    with pytest.raises(LivelockError):
        run(kernel("while (!*f) ;"), 132, 256, cooperative=True)
    assert time.process_time() - start < 2 * SECONDS


# These end

WORK = '{ int w = 0; for (int i = 0; i < 3000; i++) asm volatile("add.u32 %0, %0, 1;" : "+r"(w)); }'
ENDING = {
    "another warp after long work": f"if (warp == 1) {{ {WORK} *f = 1; }} else while (!*f) ;",
    "another CTA": "if (blockIdx.x == 1 && t == 0) *f = 1; while (!*f) ;",
    "the first CTA, starved": "if (blockIdx.x == 0 && t == 0) *f = 1; while (!*f) ;",
    "lanes of the same warp": f"if (lane < 9) while (!f[warp]) ; else {{ {WORK}"
    " if (lane == 31) f[warp] = 1; }",
    "the spinning lanes come first": "if (lane >= 9) { while (!f[warp]) ; y[t] = 1; }"
    f" else {{ {WORK} if (lane == 3) f[warp] = 1; }}",
    "a counter": "int i = 0; while (!*f && i < 5000) i++; y[blockIdx.x * 96 + t] = i;",
    "a counter through memory": "int i = 0, *p = y + 2048 + blockIdx.x * 96; while (!p[t]"
    " && i < 900) { if (++i == 700) p[t] = 1; __threadfence(); int v; do v = *f; while (v > i); }",
    "an address that moves": "int i = 0; while (!f[i] && i < 60) i++;",
    "a carry": "unsigned lo = 0xfffff000u, hi = 0; do asm volatile(\"add.cc.u32 %0, %0, 1; addc.u32"
    " %1, %1, 0;\" : \"+r\"(lo), \"+r\"(hi)); while (!*f && !hi); y[blockIdx.x * 96 + t] = hi;",
    "a shuffled counter": "int i = 0; while (!*f && __shfl_sync(~0u, i, 3) < 2000) i++;",
    "a counter with sleep": "int i = 0; while (!*f && i < 500) { i++; __nanosleep(100); }",
    "a chain": "if (blockIdx.x == 0) { for (int i = 0; i < 3; i++) { if (warp == i) {"
    f" while (f[1] != i) ; {WORK} if (lane == 0) f[1] = i + 1; }} }} }}",
    "a clock": "long long start = clock64(); while (!*f && clock64() - start < 30000) ;",
    "a timer": "unsigned long long a, b; asm volatile(\"mov.u64 %0, %%globaltimer;\" : \"=l\"(a));"
    " do asm volatile(\"mov.u64 %0, %%globaltimer;\" : \"=l\"(b)); while (!*f && b - a < 30000);",
    "a clock whose register is used again": "asm volatile(\"{ .reg .u32 a, b; .reg .pred p;"
    " mov.u32 a, %%clock; more: mov.u32 b, %%clock; sub.u32 b, b, a; setp.gt.u32 p, b, 9000;"
    " @p bra over; ld.volatile.global.u32 b, [%0]; setp.eq.u32 p, b, 0; @p bra more; over: }\""
    " :: \"l\"(flag) : \"memory\");",
    "one warp counts, the others poll": f"if (warp == 2) {{ {WORK} {WORK} if (lane == 0) *f = 1; }}"
    " else while (!*f) ;",
    "a warp counts barriers": "for (int i = 0; !__syncthreads_or(warp == 2 && i >= 400 ? 1 : *f);"
    " i++) ;",
    "a warp counts barriers, then stores": "if (warp == 2) { for (int i = 0; i < 400; i++) "
    "__syncthreads(); s = 1; __syncthreads(); } else while (1) { __syncthreads(); if (s) break; }",
    "bits of a counter, held by the warps": """
    for (int bit = 0, more = 1; more;) {
      int b0 = __syncthreads_or(warp == 0 && bit), b1 = __syncthreads_or(warp == 1 && bit);
      int b2 = __syncthreads_or(warp == 2 && bit);
      if (warp == 0 || (warp == 1 && b0) || (warp == 2 && b0 && b1)) bit ^= 1;
      more = !(b0 && b1 && b2) && !*f; }""",
    "a peek that gives up": "if (warp == 1) { if (!peek(&bar, 0)) s = 1; } else while (!s) ;",
    "an mbarrier": f"if (warp == 1) {{ {WORK} if (lane == 0) arrive(&bar); }}"
    " else while (!test_wait(&bar, 0)) ;",
    "a lock": "if (lane == 0) { while (atomicCAS(flag, 0, 1)) ; __threadfence();"
    f" {WORK} y[100]++; __threadfence(); atomicExch(flag, 0); }}",
}  # fmt: skip


@pytest.mark.parametrize("how", ENDING)
def test_spins_that_end(how):
    source = kernel(ENDING[how].replace("y[t] = 1", "y[blockIdx.x * 96 + t] = 1"))
    for policy, seed in SCHEDULES:
        y = run(source, 2, 96, policy=policy, seed=seed)
        if how == "a counter":
            assert (y[:192] == 5000).all()
        if how == "a lock":
            assert y[100] == 6


@pytest.mark.parametrize("policy", ["random", "early", "late", "starved"])
def test_an_operation_in_flight_ends_a_spin(policy):
    """Also one that completes only when nothing else can run; its mbarrier is never waited for."""
    source = kernel("""
  if (t == 0) { expect(&bar, 16); bulk_load((void*)box, flag + 16, 16, &bar); }
  while (box[1] != 17) ;
  y[t] = box[1];
  wait(&bar, 0);""")
    flag, y = np.arange(64, dtype="i4"), np.zeros(64, "i4")
    for seed in range(3):
        emulator.run(source, 1, 64, [flag, y], policy=policy, seed=seed, checks=False)
        assert (y == 17).all()


@pytest.mark.parametrize("policy", ["random", "late"])
def test_an_operation_in_flight_that_ends_nothing(policy):
    source = kernel("""
  if (t == 0) { expect(&bar, 16); bulk_load((void*)box, flag + 16, 16, &bar); }
  while (!*f) ;
  wait(&bar, 0);""")
    with pytest.raises(LivelockError, match="polls global memory"):
        run(source, 1, 64, policy=policy)


@pytest.mark.parametrize(
    "body", ["for (;;) ;", "if (t < 32) for (;;) ; __syncthreads();", "while (!flag[0]) ;"]
)
def test_loops_that_look_at_nothing_are_proved_endless_too(body):
    """The compiler moves the last one's load out of the loop: the flag is not volatile."""
    with pytest.raises(LivelockError, match="runs in a loop that reads nothing"):
        run(kernel(body), 1, 96, budget=8_000_000)


def test_long_work_that_is_watched_goes_on():
    source = kernel(f"for (int i = 0; i < 400; i++) {{ {WORK} }} y[t] = t;")
    assert (run(source, 1, 32)[:32] == np.arange(32)).all()


def test_work_without_stores_is_no_spin(monkeypatch):
    """Loops that poll nothing are not watched before a million steps."""
    monkeypatch.setattr("gpukit.emulator.spins.Spins.ran", lambda *_: pytest.fail("watched"))
    source = kernel(f"int v = *f; {WORK} {WORK} y[blockIdx.x * 96 + t] = v;")
    run(source.replace("int v = *f;", "int v = 1;"), 2, 96)


def test_loops_that_count_are_reported_in_the_end(monkeypatch):
    monkeypatch.setattr("gpukit.emulator.scheduler.STALLED", 50_000)
    with pytest.raises(LivelockError, match="has changed anything for 50000 steps"):
        run(kernel("long long n = 0; while (!*f && n < 1ll << 60) n++;"), 1, 64)
