"""Rounds of spin loops are counted apart, so that all other counters are those of the kernel."""

from __future__ import annotations

from dataclasses import asdict, replace

import numpy as np
import pytest
from test_emu_spins import SCHEDULES, WORK, kernel

from gpukit import emulator


def count(body, up=0, policy="random", seed=0, checks=True, **options):
    """Counters of 2 CTAs of 96 threads; all flags are ``up`` from the start."""
    flag, y = np.full(128, up, "i4"), np.zeros(4096, "i4")
    source = kernel(body)
    return emulator.run(source, 2, 96, [flag, y], policy=policy, seed=seed, checks=checks,
                        **options).counters  # fmt: skip


RAISE = f"if (warp == 2) {{ {WORK} if (lane == 0) *f = 1; }} else "
WAITS = {
    "volatile": "while (!*f) ;",
    "relaxed": "while (!relaxed(flag)) ;",
    "acquire": "while (!acquired(flag)) ;",
    "atomicAdd": "while (!atomicAdd(flag, 0)) ;",
    "atomicCAS": "while (atomicCAS(flag, 2, 3) != 1) ;",
    "the expected value is computed": "for (int i = 3; *f != i / 3; ) ;",
    "sleeping": "while (!*f) __nanosleep(20);",
    "fenced": "while (!*f) __threadfence();",
    "a time-out": "for (int i = 0; !*f && i < 1 << 20; i++) ;",
    "two flags": "while (!(f[0] && f[0] > 0)) ;",
    "the exit comes first": 'asm volatile("{ .reg .pred p; .reg .b32 v;'
    " again: ld.volatile.global.b32 v, [%0]; setp.ne.s32 p, v, 0; @p bra done; bra again; done: }\""
    ' :: "l"(flag) : "memory");',
    "two loops": "while (!*f) ; while (f[0] < 1) ;",
}  # fmt: skip


@pytest.mark.parametrize("how", WAITS)
def test_counters_are_those_of_a_wait_that_is_over_at_once(how):
    body = RAISE + "{" + WAITS[how] + "}"
    at_once = count(body, up=1)
    assert at_once.polls == 0
    rounds = set()
    for policy, seed in SCHEDULES:
        counters = count(body, policy=policy, seed=seed)
        assert counters == at_once, (policy, seed)
        rounds.add(counters.polls)
    assert max(rounds) > 10
    assert len(rounds) > 1  # which is why they are counted apart


def test_test_wait():
    """Without a poll too many: after some the warp sleeps."""
    body = RAISE.replace("*f = 1", "arrive(&bar)") + "while (!test_wait(&bar, 0)) ;"
    seen = [count(body, policy=policy, seed=seed) for policy, seed in SCHEDULES]
    assert all(counters == seen[0] for counters in seen)
    assert max(counters.polls for counters in seen) > 10


def test_a_lock():
    body = f"""if (lane == 0) {{ while (atomicCAS(flag, 0, 1)) ; __threadfence(); {WORK}
      y[100]++; __threadfence(); atomicExch(flag, 0); }}"""
    seen = [count(body, policy=policy, seed=seed) for policy, seed in SCHEDULES]
    assert {counters.global_atomics.requests for counters in seen} == {12}
    assert {counters.instructions["atomic"] for counters in seen} == {12}
    assert len({counters.polls for counters in seen}) > 1


def test_lanes_that_leave_one_by_one():
    """Every lane waits for a flag of its own; the look that remains is that of all lanes."""
    flag = "f[blockIdx.x * 64 + lane]"
    raise_ = f"for (int i = 0; i < 32; i++) {{ {WORK} if (lane == i) {flag} = 1; }}"
    raise_ = raise_.replace("3000", "50")
    at_once = count(f"if (warp != 2) while (!{flag}) ;", up=1)
    assert at_once.polls == 0
    body = f"if (warp == 2) {raise_} else while (!{flag}) ;"
    assert count(body, policy="starved").polls > 100
    for policy, seed in SCHEDULES:
        counters = count(body, policy=policy, seed=seed)
        assert counters.global_loads == at_once.global_loads
        assert counters.instructions["load"] == at_once.instructions["load"]


def test_some_lanes_of_a_warp_wait():
    """Whether the others go on without them is up to the schedule, but they look once."""
    body = RAISE + "if (lane % 3 == 1) while (!*f) ;"
    at_once = count(body, up=1)
    for policy, seed in SCHEDULES:
        counters = count(body, policy=policy, seed=seed)
        assert counters.global_loads == at_once.global_loads
        assert counters.instructions["load"] == at_once.instructions["load"]


def test_lines_and_classes_lose_the_same():
    body = RAISE + "while (!*f) ;"
    counters = count(body, policy="starved")
    assert sum(counters.lines.values()) == counters.warp_instructions
    assert sum(counters.instructions.values()) == counters.warp_instructions
    assert counters.global_loads.requests == 4  # one look by each of four warps
    assert 0 < counters.active_lanes <= 1
    assert min(asdict(counters.global_loads).values()) >= 0


def test_polls_are_in_the_frame():
    frame = count(RAISE + "while (!*f) ;", policy="starved").frame()
    (row,) = frame[frame.counter == "polls"].itertuples()
    assert row.group == "launch"
    assert row.value > 0


# No spin loops: their rounds do work

WORKING = {
    "a walk over an array": ("int n = 0; for (int i = 0; f[i] && i < 100; i++) n++; y[t] = n;", 1),
    "a fixed number of looks": ("int n = 0; for (int i = 0; i < 9; i++) n += *f; y[t] = n;", 0),
    "a counter in memory": ("while (atomicAdd(flag + t, 1) < 9) ;", 0),
    "compare and swap with new values":
        ("int old = f[t], seen; do { seen = old; old = atomicCAS(flag + t, seen, seen + 1); }"
         " while (seen < 9);", 0),
    "stores": ("while (f[t] < 9) f[t] = f[t] + 1;", 0),
}  # fmt: skip


@pytest.mark.parametrize("how", WORKING)
def test_other_loops_are_counted_in_full(how):
    body, up = WORKING[how]
    counters = count("if (blockIdx.x == 0) {" + body + "}", up=up)
    assert counters.polls == 0
    memory = counters.global_loads.requests + counters.global_atomics.requests
    assert memory >= 3 * 9


def test_a_trace_shows_all_rounds():
    body = RAISE + "while (!*f) ;"
    trace = emulator.Trace()
    counters = count(body, policy="starved", listeners=[trace])
    assert counters == count(body)
    assert counters.polls > 100
    shown = sum(span.end - span.start for span in trace.spans if span.category == "run")
    assert shown == counters.warp_instructions + 3 * counters.polls  # load, compare, branch


def test_polls_do_not_count_against_equality():
    counters = count("")
    assert counters == replace(counters, polls=7)
