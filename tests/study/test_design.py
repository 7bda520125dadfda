"""The design: complete for each question, no case twice, every launch one that the op accepts."""

from __future__ import annotations

from dataclasses import replace

import pytest
from clocked import GPU, decided

from gpukit import dtypes
from gpukit.bench.families.elementwise_case import element
from gpukit.devices.protocol import Properties
from gpukit.ops.launch import Launch, decide
from gpukit.study import design
from gpukit.study.prebuild import variants

H200 = replace(GPU, sm_count=132, l2_bytes=60 << 20)
A10 = replace(GPU, capability=(8, 6), sm_count=72, threads_per_sm=1536, l2_bytes=6 << 20)
B200 = replace(GPU, capability=(10, 0), sm_count=148, l2_bytes=126 << 20)
GPUS = pytest.mark.parametrize("gpu", [H200, A10, B200], ids=["H200", "A10", "B200"])


@GPUS
@pytest.mark.parametrize("extent", [design.FULL, design.QUICK], ids=["full", "quick"])
def test_every_launch_is_one_that_the_op_accepts(gpu: Properties, extent: design.Extent) -> None:
    for case in design.cases(gpu, extent):
        op, dtype = case.kernel.partition(".")[2], dtypes.parse(case.dtype)
        chosen = decide(op, element(op, dtype), case.shape["n"], 32,
                        Launch(**case.params), gpu)  # type: ignore[arg-type]
        assert 0 < chosen.grid < 2**31


@GPUS
def test_no_case_is_there_twice(gpu: Properties) -> None:
    keys = [case.key for case in design.cases(gpu, design.FULL)]
    assert len(set(keys)) == len(keys)


@GPUS
def test_a_cap_is_below_what_one_pass_needs(gpu: Properties) -> None:
    """Otherwise it would be one and the same launch."""
    capped = [case for case in design.cases(gpu, design.FULL) if case.params.get("grid") == "gs2"]
    assert capped
    for case in capped:
        ctas = -(-case.shape["n"] // (case.params["vec"] * case.params["unroll"]
                                      * case.params["block"]))
        assert case.params["waves"] * design.wave(gpu, case.params["block"]) < ctas


def test_the_full_study_spans_the_sizes_states_and_ops_it_promises() -> None:
    cases = design.cases(H200, design.FULL)
    sizes = {design.traffic_of("copy", c.dtype, c.shape["n"]) for c in cases
             if c.kernel == "elementwise.copy"}
    assert {8 << 20, 4 << 30} <= sizes and min(sizes) == 8 << 20 and max(sizes) == 4 << 30
    assert {case.l2 for case in cases} == {"rotate", "flush", "hot"}
    assert len({case.kernel for case in cases}) == 12
    assert {case.dtype for case in cases} == {"f32", "f16", "bf16", "e4m3"}


def test_a_contest_is_one_problem_in_one_state() -> None:
    cases = design.cases(H200, design.QUICK)
    groups = design.contests(cases)
    assert sum(map(len, groups)) == len(cases) > len(groups)
    for group in groups:
        assert len({(c.kernel, c.dtype, c.shape["n"], c.l2) for c in group}) == 1
    firsts = [(g[0].kernel, g[0].dtype, g[0].shape["n"], g[0].l2) for g in groups]
    assert len(set(firsts)) == len(firsts)


@pytest.mark.parametrize(("op", "dtype", "traffic"), [
    ("copy", "f32", 8 << 20), ("add", "bf16", 12345678), ("copy", "e4m3", 1 << 32)])
def test_traffic_is_what_was_asked_for_up_to_a_vector(op: str, dtype: str, traffic: int) -> None:
    n = design.elements(op, dtype, traffic)
    got = design.traffic_of(op, dtype, n)
    assert n % 64 == 0 and traffic - 64 * 3 * 4 < got <= traffic


def test_wide_accesses_of_blackwell_are_in_its_design_alone() -> None:
    def widest(gpu: Properties) -> int:
        return max(int(case.params["vec"]) * dtypes.parse(case.dtype).itemsize
                   for case in design.cases(gpu, design.QUICK) if case.params)

    assert (widest(H200), widest(B200)) == (16, 32)


def test_what_is_compiled_first_is_what_the_cases_run() -> None:
    cases = design.cases(GPU, design.QUICK)
    built = set(variants(cases, GPU))
    for case in cases:
        assert (case.kernel, tuple(sorted(decided(case).tunables.items()))) in built
    assert len(built) < len(cases) / 4
