"""``ignore=``: single rules left out, so that the rest of a kernel of others can be checked."""

from __future__ import annotations

import numpy as np
import pytest
from test_emu_tcgen05_sync import BOTH, FILL, ISSUE, OUT
from test_emu_tcgen05_sync import run as launch

from gpukit import emulator
from gpukit.emulator import errors

COMMIT = f"if (t == 0) {{ {ISSUE} commit(&bar[0]); }}"
#: One fault each: what is reported, and what comes out if nobody looks for it (None: anything).
FAULTS = {
    "races": ("if (lane == 0) memory[9600] = 5;" + COMMIT + BOTH, errors.DataRaceError, 16),
    "proxy-fences": (f"{FILL} __syncthreads(); {COMMIT} {BOTH}", errors.MissingProxyFenceError, 32),
    "async-hazards": (f"{COMMIT} __syncthreads(); {FILL} {BOTH}", errors.AsyncHazardError, 16),
    "tensor-fences": (
        f"{COMMIT} wait(&bar[0], 0); {OUT}", errors.MissingTensorFenceError, 16),
    "tensor-hazards": (f"st(own, v); {OUT}", errors.AsyncHazardError, 1),
    "exits": ("if (t == 0) commit(&bar[0]); out[t] = 7;", errors.PendingAsyncError, 7),
    "uninitialized": (
        f"__shared__ volatile float u[128]; out[t] = u[t]; {OUT}",
        errors.UninitializedReadError, None),
}  # fmt: skip


def run(body, ignore):
    return launch(body, "early", ignore=ignore)


def test_every_rule_is_tried():
    assert set(FAULTS) == set(emulator.RULES)


@pytest.mark.parametrize("rule", FAULTS)
def test_a_rule_that_is_ignored_reports_nothing(rule):
    body, _, want = FAULTS[rule]
    out = run(body, [rule])
    assert want is None or (out == want).all()


@pytest.mark.parametrize("rule", FAULTS)
def test_all_others_are_still_checked(rule):
    body, error, _ = FAULTS[rule]
    for ignored in ((), tuple(other for other in FAULTS if other != rule)):
        with pytest.raises(error):
            run(body, ignored)


def test_tensor_memory_and_shared_memory_may_be_uninitialized_each():
    for body in ("__shared__ volatile float u[128]; out[t] = u[t];", OUT):
        run(body, ("uninitialized",))
        with pytest.raises(errors.UninitializedReadError):
            run(body, ())


def test_lanes_that_an_mma_of_64_rows_leaves_out():
    """Loads of 32 lanes read 16 that nothing writes; kernels that drop those values ignore that."""
    body = f"if (t == 0) {{ mma<64, 16>(tmem, a, b, 0); commit(&bar[0]); }} {BOTH}"
    with pytest.raises(errors.UninitializedReadError, match=r"in lane \d+, column 0"):
        run(body, ())
    assert (run(body, ("uninitialized",)).reshape(4, 32)[:, :16] == 16).all()


@pytest.mark.parametrize("policy", ["random", "early", "late", "starved"])
def test_one_fault_does_not_hide_the_next(policy):
    """No fence behind the wait, and the loads are not over when the columns are freed."""
    body = f"{COMMIT} wait(&bar[0], 0); ld(own, v); out[t] = v[0];"
    with pytest.raises(errors.MissingTensorFenceError):
        launch(body, policy)
    with pytest.raises(errors.AsyncHazardError, match=r"frees .*wait::ld"):
        launch(body, policy, ignore=("tensor-fences",))
    out = launch(body, policy, ignore=("tensor-fences", "tensor-hazards"))
    assert (out == 16).all()


@pytest.mark.parametrize("policy", ["random", "early", "late", "starved"])
def test_exits_with_copies_in_flight(policy):
    """The copy from shared memory is done all the same, after the exit or before."""
    source = r"""
extern "C" __global__ void k(const float* x, float* y) {
  __shared__ __align__(16) float s[128];
  s[threadIdx.x] = x[blockIdx.x * 128 + threadIdx.x];
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  if (threadIdx.x == 0)
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 512;"
                 "cp.async.bulk.commit_group;" :: "l"(y + blockIdx.x * 128),
                 "r"((unsigned)__cvta_generic_to_shared(s)) : "memory");
}"""
    x, y = np.arange(128 * 40, dtype="f4"), np.zeros(128 * 40, "f4")
    with pytest.raises(errors.BarrierError, match="exits while a bulk_store"):
        emulator.run(source, 40, 128, [x, y], policy=policy)
    emulator.run(source, 40, 128, [x, y], policy=policy, ignore=("exits",))
    assert (x == y).all()


@pytest.mark.parametrize("policy", ["random", "early", "late", "starved"])
def test_exits_before_the_peer_has_arrived(policy):
    source = r"""
extern "C" __global__ void __cluster_dims__(2, 1, 1) k(int* y) {
  __shared__ unsigned long long bar;
  unsigned here = __cvta_generic_to_shared(&bar), there;
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 2; fence.mbarrier_init.release.cluster;"
               "barrier.cluster.arrive; barrier.cluster.wait;" :: "r"(here) : "memory");
  asm volatile("mapa.shared::cluster.u32 %0, %1, 0;" : "=r"(there) : "r"(here));
  if (blockIdx.x)
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" :: "r"(there)
                 : "memory");
  y[blockIdx.x] = 1;
}"""
    y = np.zeros(2, "i4")
    with pytest.raises(errors.RemoteAccessError):
        emulator.run(source, 2, 1, [y], policy=policy)
    emulator.run(source, 2, 1, [y], policy=policy, ignore=["exits"])
    assert y.tolist() == [1, 1]


@pytest.mark.parametrize(
    ("ignore", "text"),
    [
        (("races", "fences"), r"ignore: no rule is called 'fences'; known: races, proxy-fences, "),
        ("races", "ignore: 'races' was given; accepted: a list or tuple of names of rules"),
        ([3], r"ignore.0.: 3 was given; accepted: names of rules"),
        (None, "ignore: None was given"),
    ],
)
def test_names_are_checked(ignore, text):
    with pytest.raises(errors.LaunchError, match=text):
        run("", ignore)
