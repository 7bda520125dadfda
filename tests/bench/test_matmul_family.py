"""`gpukit bench matmul` without a GPU: which kernels, which problems, and how peers are judged."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import pytest

from gpukit import kernels
from gpukit.bench.families import load_family, matmul_case, matmul_kernels
from gpukit.bench.families.matmul_kernels import Kernels, argument, full_name, rungs, spec_for
from gpukit.bench.families.matmul_suites import SUITES
from gpukit.bench.families.optional import AUTO
from gpukit.bench.runner import select_cases
from gpukit.errors import ArgumentError, UnsupportedError
from gpukit.kernels import KernelSpec

ARCHS = {
    "matmul.k1": ("sm_75", "sm_80", "sm_90", "sm_100"),
    "matmul.sm80.a1": ("sm_80",),
    "matmul.sm80.a2": ("sm_80",),
    "matmul.sm80.a2_reduce": ("sm_80",),
    "matmul.sm90.k2": ("sm_90a",),
    "matmul.sm90.k10": ("sm_90a",),
    "matmul.sm100.k2": ("sm_100a",),
    "elementwise.k3": ("sm_80",),
}


@pytest.fixture
def ladders(monkeypatch):
    """A registry of these names only."""
    specs = {name: KernelSpec(name, f"{name}.cu", name, "", archs, (), ())
             for name, archs in ARCHS.items()}
    catalogue = SimpleNamespace(names=lambda: tuple(specs), get=specs.__getitem__,
                                registry=lambda: specs)
    monkeypatch.setattr(matmul_kernels, "kernels", catalogue)
    return specs


# --- kernels -----------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "chosen"), [
    ("1", ("1",)),
    ("k2,1,2", ("2", "1")),
    ("matmul.k1", ("1",)),
    ("all", ("1", "2", "10")),
    ("auto", ("auto",)),
    ("sm90.k2", ("sm90.k2",)),
    ("matmul.sm80.a1", ("sm80.a1",)),
    ("sm80", ("sm80.a1", "sm80.a2")),
    ("auto, all", ("auto", "1", "2", "10")),
])  # fmt: skip
def test_kernels_are_named_by_number_ladder_or_name(ladders, text, chosen):
    assert Kernels()(text) == chosen


@pytest.mark.parametrize("text", ["3", "sm70", "sm80.a2_reduce", "", "1,,2", "k", "elementwise.k3"])
def test_other_names_are_refused_with_those_there_are(ladders, text):
    with pytest.raises(ArgumentError, match=r"not one of auto, 1, 2, 10, sm80, sm90, sm100, "):
        Kernels()(text)


@pytest.mark.parametrize(("name", "capability", "spec"), [
    ("matmul.k1", (8, 0), "matmul.k1"),
    ("matmul.k1", (9, 0), "matmul.k1"),
    ("matmul.k2", (9, 0), "matmul.sm90.k2"),
    ("matmul.k2", (10, 0), "matmul.sm100.k2"),
    ("matmul.sm80.a2", (9, 0), "matmul.sm80.a2"),
])  # fmt: skip
def test_a_rung_is_the_kernel_of_the_gpu_at_hand(ladders, name, capability, spec):
    assert spec_for(name, capability) is ladders[spec]


def test_auto_leaves_the_choice_to_the_op(ladders):
    assert spec_for(full_name(AUTO), (9, 0)) is None


@pytest.mark.parametrize(("name", "capability", "reason"), [
    ("matmul.k2", (8, 0), "matmul.k2 needs sm_90a or sm_100a, this GPU is sm_80"),
    ("matmul.k10", (10, 0), "matmul.k10 needs sm_90a, this GPU is sm_100"),
    ("matmul.sm90.k2", (10, 0), "matmul.sm90.k2 needs sm_90a, this GPU is sm_100"),
])  # fmt: skip
def test_a_rung_that_no_kernel_has_here_says_where(ladders, name, capability, reason):
    with pytest.raises(UnsupportedError, match=reason):
        spec_for(name, capability)


def test_the_op_gets_a_number_or_a_short_name(ladders):
    assert argument(ladders["matmul.k1"]) == "1"
    assert argument(ladders["matmul.sm90.k10"]) == "sm90.k10"
    assert argument(ladders["matmul.sm80.a1"]) == "sm80.a1"


def test_every_kernel_of_the_registry_is_reachable():
    """Whatever ladders there are now: each rung is one of `all`, each named one its ladder's."""
    for name in kernels.names():
        if matmul_kernels._RUNG.fullmatch(name):
            assert name.rpartition("k")[2] in rungs()
        if matmul_kernels._NAMED.fullmatch(name):
            short = name.removeprefix("matmul.")
            assert short in Kernels()(short.partition(".")[0])


# --- problems ----------------------------------------------------------------------------

ASKED = {
    *((n, n, n) for n in (512, 1024, 2048, 4096, 8192, 16384)),
    (64, 3072, 3072), (4096, 2112, 7168), (4097, 4095, 4111),
}  # fmt: skip
WEIGHTS = {
    (6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336), (8192, 8192), (10240, 8192),
    (57344, 8192), (8192, 28672), (7168, 2048), (2112, 7168), (24576, 1536), (43008, 5376),
    (5376, 21504),
}  # fmt: skip


def shapes_of(selection, **options):
    cases = select_cases(load_family("matmul"), selection, **options)
    return [tuple(case.shape[name] for name in "mnk") for case in cases]


def test_the_llm_suite_is_the_comparison():
    shapes = set(shapes_of({"suite": ("llm",)}))
    assert shapes >= ASKED
    assert {shape[1:] for shape in shapes} >= WEIGHTS
    assert {shape[0] for shape in shapes} >= {1, 16, 64, 128, 512, 4096, 8192}
    assert len(shapes) >= 24


def test_the_full_suite_is_every_weight_at_every_number_of_tokens():
    shapes = set(shapes_of({"suite": ("llm-full",)}))
    assert shapes == ASKED | {(m, n, k) for m in (1, 16, 64, 128, 512, 4096, 8192)
                              for n, k in WEIGHTS}


def test_the_quick_suite_is_small_and_part_of_the_large_one():
    assert len(SUITES["quick"]) <= 8
    assert set(SUITES["quick"]) <= set(SUITES["llm-full"])


def test_a_suite_replaces_the_default_shape_and_adds_to_a_given_one():
    assert shapes_of({}) == [(4096, 4096, 4096)]
    assert (4096, 4096, 4096) not in shapes_of({"suite": ("decode",)})
    both = shapes_of({"suite": ("square",), "shape": ((3, 4, 5), (512, 512, 512))})
    assert both[0] == (3, 4, 5)
    assert len(both) == 1 + 6
    assert len(shapes_of({"suite": ("square",)}, emulated=True)) == 6


def test_rows_of_one_problem_stand_together():
    cases = select_cases(load_family("matmul"), {"kernel": ("1", "auto"), "suite": ("square",)})
    assert [case.kernel for case in cases[:4]] == ["matmul.k1", "matmul.auto"] * 2
    assert cases[0].shape == cases[1].shape


# --- a prepared case, on the emulator ------------------------------------------------------


def prepared(monkeypatch, peers, shape=(33, 40, 24), **selection):
    """A case with peers, which no emulated device times but any can run."""
    family = load_family("matmul")
    monkeypatch.setattr(matmul_case, "maker", peers.__getitem__)
    monkeypatch.setattr(matmul_case.buffers, "slots_for", lambda *given, **more: 2)
    (case,) = select_cases(family, {"shape": (shape,), **selection}, emulated=True)
    case = dataclasses.replace(case, l2="rotate", method="events")
    return family.prepare(case, family.target("emu:h100").device, tuple(peers))


def right(problem):
    def launch(slot):
        problem.out[slot][...] = (problem.a[slot].astype("f4") @ problem.b[slot].astype("f4"))

    return launch


def off_by_one_column(problem):
    def launch(slot):
        right(problem)(slot)
        problem.out[slot][:, -1] = 0

    return launch


def lazy(problem):
    return lambda slot: None


def elsewhere(problem):
    raise UnsupportedError("it needs another machine")


def test_peers_are_checked_like_ours(monkeypatch):
    peers = {"right": right, "off": off_by_one_column, "lazy": lazy, "elsewhere": elsewhere}
    case = prepared(monkeypatch, peers)
    assert [work.name for work in case.peers] == ["right"]
    reasons = {one.peer: one.reason for one in case.notes}
    assert reasons["elsewhere"] == "it needs another machine"
    assert reasons["off"].startswith("its result is wrong: ")
    assert reasons["lazy"] == "its result is wrong: inf x the tolerance"


def test_a_problem_tells_peers_how_operands_are_stored(monkeypatch):
    seen = []
    prepared(monkeypatch, {"spy": lambda problem: seen.append(problem) or right(problem)},
             layout=("tn",), dtype=("f16",))
    (problem,) = seen
    assert (problem.shape, problem.dtype, problem.out_dtype) == ((33, 40, 24), "f16", "f16")
    assert problem.a[0].shape == (33, 24) and problem.a[0].T.flags.c_contiguous
    assert problem.b[0].shape == (24, 40) and problem.b[0].flags.c_contiguous
    assert len(problem.pointers()) == 2
    assert (problem.contest.l2, problem.contest.method) == ("rotate", "events")


def test_what_ours_refuses_is_unsupported_with_its_words(monkeypatch):
    def refuses(a, b, **options):
        raise ArgumentError("matmul: a has rows of 66 bytes; accepted: multiples of 16")

    monkeypatch.setattr(matmul_case.gpukit, "matmul", refuses)
    with pytest.raises(UnsupportedError, match="rows of 66 bytes; accepted: multiples of 16"):
        prepared(monkeypatch, {"right": right})
    with pytest.raises(UnsupportedError, match="rows of 66 bytes"):
        prepared(monkeypatch, {}).work.launch(0)


def test_large_results_are_sampled_at_their_edges_and_inside():
    rows = matmul_case._sample(100_000, 96)
    assert {0, 99_999} <= set(rows.tolist())
    assert 80 < len(rows) <= 96
    assert matmul_case._sample(50, 96).tolist() == list(range(50))
