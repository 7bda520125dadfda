"""Asynchronous operations: each bad kernel trips exactly its check, its good twin passes."""

from __future__ import annotations

import numpy as np
import pytest
from async_kernels import WRAPPERS

from gpukit import emulator
from gpukit.emulator.errors import (
    AsyncHazardError,
    BarrierError,
    DataRaceError,
    DeadlockError,
    MissingProxyFenceError,
    PendingAsyncError,
)

POLICIES = ("random", "early", "late", "starved")
SCHEDULES = [(policy, seed) for policy in POLICIES for seed in range(2)]
N = 4096
ARGS = [np.arange(N, dtype="f4"), np.zeros(N, "f4"), np.zeros(N, "f4")]


def run(source, policy="random", seed=0, threads=64, grid=1, **options):
    x, y, z = (a.copy() for a in ARGS)
    emulator.run(WRAPPERS + source, grid, threads, [x, y, z], policy=policy, seed=seed, **options)
    return x, y, z


def twins(template, good, bad, error, match=None, **options):
    """``template`` with each of ``good`` passes, with each of ``bad`` is reported, always."""
    for text in good:
        for policy, seed in SCHEDULES:
            run(template.replace("HERE", text), policy, seed, **options)
    for text in bad:
        for policy, seed in SCHEDULES:
            with pytest.raises(error, match=match):
                run(template.replace("HERE", text), policy, seed, **options)


def kernel(body, shared="__shared__ alignas(128) float s[512];"):
    return f"""
extern "C" __global__ void k(const float* x, float* y, float* z) {{
  {shared} __shared__ alignas(8) u64 full, empty; int t = threadIdx.x; bool first = t == 0;
  {body}
}}"""


START = "if (first) { init(&full, 1); init(&empty, 64); fence_init(); } __syncthreads();"
LOAD = "if (first) { expect(&full, 256); bulk_load(s, x, 256, &full); }"


# mbarriers


def test_mbarriers_are_used_after_their_initialisation():
    template = kernel(
        "if (first) { init(&full, 1); init(&empty, 64); arrive(&full); fence_init(); }"
        'for (int i = 0; i < 64; i++) asm volatile(""); HERE wait(&full, 0); arrive(&empty);'
    )
    bad = kernel("""if (first) { init(&full, 1); fence_init(); s[0] = 1; }
      if (t == 32) { for (int i = 0; i < 300; i++) asm volatile("nanosleep.u32 20;");
        arrive(&full); }""")
    twins(template, ["__syncthreads();"], [], DataRaceError)
    run(bad.replace("arrive(&full); }", "}"), "starved")
    for policy, seed in SCHEDULES[:2]:
        with pytest.raises(DataRaceError, match=r"mbarrier: uses what warp 0 .* initialised"):
            run(bad, policy, seed)


def test_mbarrier_arrivals_release():
    """The consumer's wait orders its reads after the producers' stores."""
    template = kernel(
        START
        + """
      if (t < 32) { s[t] = t; arrive(&empty); arrive(&empty); HERE }
      else { wait(&empty, 0); y[t] = s[t - 32]; }"""
    )
    twins(template, ["", "s[t + 64] = 1;"], ["s[t] = 1;"], DataRaceError, "data race on shared")
    relaxed = template.replace(
        "arrive(&empty); arrive(&empty); HERE",
        "HERE asm volatile("
        '"mbarrier.arrive.relaxed.cluster.shared::cta.b64 _, [%0], 2;" :: "r"(smem(&empty)));',
    )
    twins(relaxed, ['asm volatile("fence.acq_rel.cluster;" ::: "memory");'], [""], DataRaceError)


# Reading what an asynchronous operation writes


def test_bulk_load_is_read_after_its_wait():
    template = kernel(START + LOAD + "HERE y[t] = s[t]; wait(&full, 0);")
    twins(template, ["wait(&full, 0);"], [], AsyncHazardError)
    early = template.replace("HERE", "if (t < 32) HERE")
    report = "may still write; wait for it first|nothing has written"
    for policy, seed in SCHEDULES:
        with pytest.raises(emulator.KernelFault, match=report):
            run(early.replace("HERE", "wait(&full, 0);"), policy, seed)
    with pytest.raises(AsyncHazardError, match=r"bulk_load of warp 0 of CTA .* at kernel.cu"):
        run(
            template.replace(
                "HERE",
                '__syncthreads(); for (int i = 0; i < 999; i++) asm volatile("nanosleep.u32 20;");',
            ),
            "early",
        )


def test_one_warp_waits_and_a_barrier_tells_the_other():
    template = kernel(START + LOAD + "if (t < 32) wait(&full, 0); HERE y[t] = s[t];")
    report = (AsyncHazardError, emulator.KernelFault)
    twins(template, ["__syncthreads();"], ["__syncwarp();"], report, "may still write|has written")


def test_bulk_load_over_data_in_use():
    """The buffer's readers must be ordered before the copy that overwrites it."""
    template = kernel(
        """__shared__ alignas(8) u64 second; if (first) init(&second, 1);
      """
        + START
        + LOAD
        + """wait(&full, 0); y[t] = s[t]; HERE
      if (first) { expect(&second, 256); bulk_load(s, x + 64, 256, &second); }
      wait(&second, 0); z[t] = s[t];"""
    )
    good = ["__syncthreads();", "arrive(&empty); if (first) wait(&empty, 0);"]
    twins(template, good, [""], emulator.KernelFault, "warp 1 .* read|may still write|has written")
    with pytest.raises(DataRaceError, match=r"bulk_load writes shared .* warp 1 .* read"):
        run(template.replace("HERE", ""), "starved")


def test_two_copies_into_one_buffer():
    template = kernel(
        START
        + """if (first) { expect(&full, 512); bulk_load(s, x, 256, &full);
      bulk_load(s + HERE, x + 64, 256, &full); } wait(&full, 0); y[t] = s[t];"""
    )
    twins(template, ["64"], ["32", "0"], AsyncHazardError, "bulk_load writes .* may still write")


def test_cp_async_is_visible_to_others_after_wait_and_barrier():
    template = kernel("""asm volatile("cp.async.ca.shared.global [%0], [%1], 4;"
      :: "r"(smem(s + t)), "l"(x + t) : "memory");
      asm volatile("cp.async.commit_group;"); HERE y[t] = s[t ^ 32];
      asm volatile("cp.async.wait_all;");""")
    wait = 'asm volatile("cp.async.wait_group 0;" ::: "memory");'
    twins(
        template,
        [wait + "__syncthreads();"],
        [wait, "__syncthreads();" + wait],
        emulator.KernelFault,
        "may still write|has written",
    )


# Writing what an asynchronous operation reads


STORE = "if (first) { bulk_store(y, s, 256); bulk_commit(); }"


def test_bulk_store_needs_a_proxy_fence():
    template = kernel("s[t] = t; HERE" + STORE + "if (first) bulk_wait_read<0>();")
    good = ["fence_async(); __syncthreads();", "__syncthreads(); if (first) fence_async();"]
    bad = ["__syncthreads();", "__syncthreads(); if (t == 32) fence_async();"]
    twins(template, good, bad, MissingProxyFenceError, "missing fence.proxy.async: this bulk_store")


def test_bulk_store_needs_a_barrier():
    template = kernel(
        "s[t] = t; fence_async(); HERE" + STORE + "if (first) bulk_wait_read<0>();__syncthreads();"
    )
    report = (DataRaceError, AsyncHazardError, emulator.KernelFault)
    twins(template, ["__syncthreads();"], [""], report)
    with pytest.raises(DataRaceError, match=r"bulk_store reads shared memory .* warp 1 .* wrote"):
        run(template.replace("HERE", ""), "random")


def test_buffer_reuse_waits_for_the_read():
    template = kernel(
        "s[t] = t; fence_async(); __syncthreads();" + STORE + "HERE s[t] = 2;"
        "if (first) bulk_wait<0>();"
    )
    good = [
        "if (first) bulk_wait_read<0>(); __syncthreads();",
        "if (first) bulk_wait<0>(); __syncthreads();",
    ]
    bad = [
        "",
        "if (first) bulk_wait_read<0>();",
        "__syncthreads();",
        "if (first) bulk_wait_read<1>(); __syncthreads();",
    ]
    twins(template, good, bad, AsyncHazardError, "bulk_store .* may still read; wait for it first")


def test_reading_back_what_a_bulk_store_wrote():
    template = kernel(
        "s[t] = t; fence_async(); __syncthreads();"
        + STORE
        + "if (first) HERE; __syncthreads(); z[t] = y[t];"
        "if (first) bulk_wait<0>();"
    )
    twins(
        template,
        ["bulk_wait<0>()"],
        ["bulk_wait_read<0>()"],
        AsyncHazardError,
        "reads global memory .* bulk_store .* may still write",
    )


def test_bulk_load_of_what_this_kernel_stored():
    template = kernel(
        START + "y[t] = t; HERE __syncthreads();"
        "if (first) { expect(&full, 256); bulk_load(s, y, 256, &full); }"
        "wait(&full, 0); z[t] = s[t];"
    )
    twins(
        template,
        ['asm volatile("fence.proxy.async;" ::: "memory");'],
        ["", "__threadfence();"],
        MissingProxyFenceError,
        "bulk_load reads global memory",
    )


def test_bulk_stores_of_two_ctas():
    template = kernel(
        "s[t] = t; fence_async(); __syncthreads(); if (first) {"
        "bulk_store(y + HERE / 4 * 4 * blockIdx.x, s, 256); bulk_commit(); bulk_wait<0>(); }"
    )
    twins(template, ["64"], ["32"], AsyncHazardError, grid=2)
    twins(template, ["64"], ["63"], AsyncHazardError, "another CTA|bulk_store", grid=33)


def test_bulk_reductions_of_two_ctas_and_atomics():
    body = """s[t] = t; fence_async(); __syncthreads(); if (first) {
      asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], 256;"
        :: "l"(y), "r"(smem(s)) : "memory"); bulk_commit(); bulk_wait<0>(); HERE }"""
    twins(
        kernel(body),
        ["", "atomicAdd(y + 5, 1.f);"],
        ["y[blockIdx.x] = 1;"],
        (AsyncHazardError, DataRaceError),
        grid=3,
    )


# Exits


def test_exit_before_the_source_was_read():
    template = kernel("s[t] = t; fence_async(); __syncthreads();" + STORE + "HERE")
    twins(
        template,
        ["if (first) bulk_wait_read<0>();"],
        ["", "if (t == 32) bulk_wait_read<0>();"],
        PendingAsyncError,
        "exits while a bulk_store may still read its shared memory",
    )


def test_exit_before_a_load_arrived():
    template = kernel(START + LOAD + "HERE")
    twins(
        template,
        ["wait(&full, 0);", "if (t >= 32) wait(&full, 0);"],
        [""],
        (PendingAsyncError, BarrierError),
        "exits|exited",
    )
    run(template.replace("HERE", "if (t >= 32) wait(&full, 0);"))
    with pytest.raises(PendingAsyncError, match="bulk_load may still write"):
        run(template.replace("HERE", ""), "early")


# CTA barriers


def test_named_barrier_counts_must_agree():
    template = kernel("""if (t < 32) asm volatile("bar.sync 1, 64;");
      else if (t < 64) asm volatile("HERE");""")
    twins(
        template,
        ["bar.sync 1, 64;", "bar.arrive 1, 64;"],
        ["bar.sync 1, 96;"],
        BarrierError,
        "is used with",
        threads=96,
    )
    twins(template, [], ["bar.sync 2, 64;"], DeadlockError, "barrier 1: 1 of 2 warps")


def test_barriers_do_not_diverge_inside_a_warp():
    template = kernel("""if (HERE) asm volatile("bar.sync 0;"); else asm volatile("bar.sync 0;");
      y[t] = t;""")
    twins(
        template,
        ["t < 32"],
        ["t < 16", "t & 1"],
        BarrierError,
        "arrive from different instructions",
    )
