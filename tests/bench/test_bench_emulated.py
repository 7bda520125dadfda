"""The built-in families on the emulated device: checked and counted, never timed."""

from __future__ import annotations

import dataclasses

import pytest

from gpukit.bench.execute import CaseOptions, run_case
from gpukit.bench.families import buffers, load_family
from gpukit.bench.runner import select_cases
from gpukit.errors import NoDeviceError
from gpukit.measure import TimingOptions

OPTIONS = CaseOptions(TimingOptions(), peers=("memcpy", "cublas"))


def rows(name, selection, device="emu:h100"):
    family = load_family(name)
    assert family.emulated(device)
    target = family.target(device)
    return [run_case(family, case, target, OPTIONS)
            for case in select_cases(family, selection, emulated=True)]


def test_defaults_are_small_and_every_row_is_checked_and_counted():
    for name in ("memcpy", "matmul"):
        for row in rows(name, {}):
            assert row.status == "ok"
            assert row.error is not None and row.error <= 1
            assert row.time_us is None and row.gbs is None and not row.peers
            assert row.l2 == row.method == "none"
            assert row.counters["warp_instructions"] > 0


@pytest.mark.parametrize("device", ["emu:h100", "emu:b200"])
def test_counters_know_coalesced_from_scattered(device):
    nn, nt = rows("matmul", {"shape": ((64, 64, 32),), "layout": ("nn", "nt")}, device)
    # A warp reads one A element (1 sector) and 32 B elements: 2 bf16 sectors when contiguous, 32
    # when each lines up with another row.
    for row, sectors in ((nn, 1 + 2), (nt, 1 + 32)):
        loads = row.counters["global_loads"]
        assert loads["sectors"] / loads["requests"] == pytest.approx(sectors / 2)


def test_elementwise_moves_what_it_should():
    n = 16_385
    for row in rows("elementwise", {"op": ("copy", "add", "erf"), "dtype": ("f32",)}):
        inputs = 2 if row.kernel.endswith("add") else 1
        assert row.counters["global_loads"]["bytes"] == 4 * n * inputs
        assert row.counters["global_stores"]["bytes"] == 4 * n


def prepared(name, selection):
    """A case on the emulated device, with three buffer sets as for rotation."""
    family = load_family(name)
    (case,) = select_cases(family, selection, emulated=True)
    target = family.target("emu:h100")
    return family.prepare(dataclasses.replace(case, l2="rotate"), target.device, ())


@pytest.fixture
def three_slots(monkeypatch):
    monkeypatch.setattr(buffers, "slots_for", lambda *given, **more: 3)


CASES = [
    ("elementwise", {"op": ("copy",), "dtype": ("bf16",), "size": (8192,)}),
    ("elementwise", {"op": ("exp",), "dtype": ("f32",), "size": (8192,)}),
    ("elementwise", {"op": ("axpy",), "dtype": ("f16",), "size": (8192,)}),
    ("matmul", {"shape": ((33, 40, 24),), "layout": ("nt",)}),
]


def inputs_of(case):
    return case.inputs if hasattr(case, "inputs") else list(zip(case.a, case.b, strict=True))


def outputs_of(case):
    return case.outputs if hasattr(case, "outputs") else case.out


@pytest.mark.parametrize(("name", "selection"), CASES)
def test_the_first_and_the_last_buffer_set_are_checked(three_slots, name, selection):
    case = prepared(name, selection)
    case.poison()
    for slot in range(3):
        case.work.launch(slot)
    assert case.check(0).ok and case.check(2).ok
    case.poison()
    assert not case.check(0).ok and not case.check(2).ok


@pytest.mark.parametrize(("name", "selection"), CASES)
def test_the_answer_of_another_buffer_set_is_wrong(three_slots, name, selection):
    case = prepared(name, selection)
    case.work.launch(0)
    outputs_of(case)[2][...] = outputs_of(case)[0]
    assert case.check(0).ok and not case.check(2).ok


@pytest.mark.parametrize(("name", "selection"), CASES)
def test_spoiled_inputs_do_not_pass_for_right(three_slots, name, selection):
    case = prepared(name, selection)
    for array in inputs_of(case)[0]:
        array[...] = 0
    case.work.launch(0)
    assert not case.check(0).ok


def test_what_needs_a_clock_says_so():
    with pytest.raises(NoDeviceError, match="it needs a CUDA device"):
        load_family("timer").target("emu:h100")
