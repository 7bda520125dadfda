"""Replays what a GPU answered, and proves the machinery with the emulator on both sides."""

from __future__ import annotations

import os
import re
import time

import numpy as np
import pytest

from gpukit.emulator.instructions import known

from . import alu, check, record
from .cases import GROUPS
from .compare import Report, as_json, as_markdown, replay, replay_all
from .fixture import GOLDEN, NOT_RUN, Fixture
from .model import EXACT, Ulps, Within
from .worker import open_device

SAMPLE = "float_approximate"


@pytest.mark.parametrize("group", GROUPS)
def test_the_emulator_agrees_with_hardware(group, capsys):
    path = GOLDEN / f"{group}.npz"
    if not path.exists():
        pytest.skip(f"{path.name} has not been recorded on a GPU")
    report = replay(group, Fixture.load(path))
    with capsys.disabled():
        print(f" {report.compared} cases, {len(report.refused)} refused by the GPU, "
              f"{len(report.unrecorded)} not recorded", end="")  # fmt: skip
    assert not report.problems, "\n".join(f"{n}: {p}" for n, p in report.problems.items())
    assert report.compared


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """One group, recorded on the emulator through the recorder's own command line."""
    folder = tmp_path_factory.mktemp("fixtures")
    assert record.main(["--out", str(folder), "--group", SAMPLE, "--device", "emulator"]) == 0
    return folder


def test_recording_and_replaying_agree(recorded):
    (report,) = replay_all(recorded)
    assert (report.group, report.cases, report.compared) == (SAMPLE, 34, 34)
    assert not report.problems
    assert report.info["device"] == "gpukit.emulator"


def test_a_changed_bit_is_found(recorded):
    fixture = Fixture.load(recorded / f"{SAMPLE}.npz")
    name = next(iter(fixture.records))
    first = bytearray(fixture.records[name].outputs[0])
    first[13] ^= 4
    fixture.records[name].outputs[0] = bytes(first)
    report = replay(SAMPLE, fixture)
    assert list(report.problems) == [name]
    assert report.problems[name].startswith("1 of ")
    assert "output 0, element 3: 0x" in report.problems[name]


def test_a_record_of_another_kernel_is_stale(recorded):
    fixture = Fixture.load(recorded / f"{SAMPLE}.npz")
    fixture.records[next(iter(fixture.records))].digest = "00000000"
    assert list(replay(SAMPLE, fixture).problems.values()) == [
        "not recorded in this form; record again"
    ]


def test_what_was_not_recorded_is_no_problem_but_named(recorded):
    fixture = Fixture.load(recorded / f"{SAMPLE}.npz")
    first, second, *_ = fixture.records
    del fixture.records[first]
    fixture.records[second].error = NOT_RUN
    report = replay(SAMPLE, fixture)
    assert report.unrecorded == {first: "absent", second: "not run"}
    assert (report.compared, report.problems) == (32, {})


def test_accepting_what_the_hardware_refused_is_a_problem(recorded):
    fixture = Fixture.load(recorded / f"{SAMPLE}.npz")
    name = next(iter(fixture.records))
    fixture.records[name].error = "DriverError: illegal"
    report = replay(SAMPLE, fixture)
    assert report.problems == {name: "accepted by the emulator, but DriverError: illegal"}
    fixture.records[name].ptx = fixture.records[name].ptx.replace(".visible", "broken")
    report = replay(SAMPLE, fixture)
    assert (list(report.refused), report.problems) == ([name], {})


def test_fixtures_keep_everything(recorded, tmp_path):
    fixture = Fixture.load(recorded / f"{SAMPLE}.npz")
    fixture.save(tmp_path / "again.npz")
    assert Fixture.load(tmp_path / "again.npz") == fixture


# Devices that fail, as a GPU may


class Faulty:
    """Answers zeros, except where the case's number says otherwise."""

    info = {"device": "faulty"}  # noqa: RUF012

    def run(self, case):
        behaviour = BEHAVIOUR.get([c.name for c in GROUPS[SAMPLE]()].index(case.name))
        if behaviour is not None:
            behaviour()
        return [np.zeros_like(out.values) for out in case.outputs]


class Lost(RuntimeError):  # noqa: N818
    lost = True


def _refuse():
    raise RuntimeError("refused")


def _lose():
    raise Lost("context lost")


BEHAVIOUR = {
    1: _refuse,
    3: _lose,
    4: lambda: os._exit(9),
    6: lambda: time.sleep(60),
}


def _record(tmp_path, device, deadline=60.0, stall=4.0):
    limits = record.Limits(stall, time.monotonic() + deadline)
    return record.record_group(SAMPLE, device, tmp_path, limits)


def test_one_bad_case_costs_one_case(tmp_path):
    fixture = _record(tmp_path, f"{__name__}:Faulty")
    errors = [r.error for r in fixture.records.values()]
    assert errors[:7] == [
        "",
        "RuntimeError: refused",
        "",
        "Lost: context lost",
        "hung or ended its process",
        "",
        "hung or ended its process",
    ]
    assert not any(errors[7:])
    assert all(r.outputs for r in fixture.records.values() if not r.error)


class AlwaysLost:
    """Loses its context at every case."""

    info = {"device": "lost"}  # noqa: RUF012

    def run(self, case):
        raise Lost(case.name)


@pytest.mark.slow
def test_every_case_may_cost_a_process(tmp_path):
    fixture = _record(tmp_path, f"{__name__}:AlwaysLost")
    assert [r.error for r in fixture.records.values()] == [f"Lost: {n}" for n in fixture.records]


def test_a_device_that_cannot_be_opened_ends_the_group(tmp_path):
    fixture = _record(tmp_path, f"{__name__}:NoSuchDevice")
    assert {r.error for r in fixture.records.values()} == {NOT_RUN}


def test_the_deadline_keeps_what_there_is(tmp_path):
    begin = time.monotonic()
    fixture = _record(tmp_path, f"{__name__}:Faulty", deadline=5, stall=60)
    assert time.monotonic() - begin < 15
    assert [bool(r.outputs) for r in fixture.records.values()][5:8] == [True, False, False]
    assert list(fixture.records.values())[-1].error == "not run"


# Comparing


def _compare(comparison, recorded, got):
    return check.compare(comparison, [recorded.tobytes()], [got])


def test_exact_comparison_sees_the_sign_of_zero_and_nan_payloads():
    a = np.array([0.0, np.nan, 1.0], "f4")
    b = a.copy()
    b.view("u4")[0:2] ^= np.array([1 << 31, 1], "u4")
    assert _compare(EXACT, a, b).wrong == 2
    assert _compare(EXACT, a, a).wrong == 0


def test_ulps():
    a = np.array([1.0, -0.0, np.inf, np.nan, 1e-45, 2.0], "f4")
    b = a.copy()
    b.view("u4")[0] += 3
    b[4] = -1e-45
    b.view("u4")[3] ^= 1
    found = _compare(Ulps("f4", 2), a, b)
    assert (found.wrong, found.worst) == (1, 3)
    assert _compare(Ulps("f4", 3), a, b).wrong == 0
    assert _compare(Ulps("f4", 0, 1e-6), a, b).wrong == 0
    assert _compare(Ulps("f4", 9), a, np.where(np.isinf(a), 1, a).astype("f4")).wrong == 1


def test_bounds():
    a, b = np.array([1.0, np.nan, 8.0]), np.array([1.5, np.nan, 9.0])
    found = _compare(Within("f8", 0.5, 0.125), a, b)
    assert found.wrong == 0
    assert 0.6 < found.worst < 0.8
    assert _compare(Within("f8", 0.5), a, b).wrong == 1
    assert _compare(Within("f8", 0.5), a, np.array([1.5, 0.0, 8.0])).wrong == 1


def test_outputs_of_another_size_differ():
    assert _compare(EXACT, np.zeros(3, "u4"), np.zeros(4, "u4")).wrong


def test_reports_name_what_differs():
    report = Report("alu", 3, 2, worst_ulps=1, problems={"add.u32": "1 of 256"},
                    refused={"x.y": "INVALID"}, info={"device": "H"})  # fmt: skip
    text = as_markdown([report])
    assert "| alu | 3 | 2 | 1 | 1 | 0 | 1 |" in text
    assert "* `add.u32` (alu): 1 of 256" in text
    assert '"add.u32": "1 of 256"' in as_json([report])


# Cases


def test_names_are_unique_and_there_are_many_cases():
    total = 0
    for make in GROUPS.values():
        names = [case.name for case in make()]
        assert len(set(names)) == len(names)
        total += len(names)
    assert total > 1500


# Without a value to compare, refused by the emulator, or ending the kernel.
NOT_COVERED = {"brkpt", "cp.async.bulk.prefetch.tensor", "discard", "mma.sp",
               "mma.sp::ordered_metadata", "setmaxnreg", "trap", "wgmma.mma_async.sp"}  # fmt: skip


# No hardware of ours has these: they rest on documentation alone.
BLACKWELL = re.compile(r"tcgen05\.|clusterlaunchcontrol\.")


def test_every_instruction_of_the_emulator_is_covered():
    text = "\n".join(case.ptx for make in GROUPS.values() for case in make())
    found = {tuple(word.split(".")) for word in re.findall(r"[a-z][\w:]*(?:\.[\w:]+)*", text)}
    prefixes = {".".join(words[:n]) for words in found for n in range(1, len(words) + 1)}
    assert {name for name in known() if name not in prefixes and not BLACKWELL.match(name)} == \
        NOT_COVERED


def test_inputs_are_the_same_everywhere():
    """The generator is part of every fixture: its numbers must never change."""
    form = alu.Form("add.f32", ("f32", "f32"), ("f32",))
    assert alu.case(form).digest() == DIGEST


DIGEST = "719c665d"


def test_a_device_is_found_by_name():
    assert open_device("emulator").info["device"] == "gpukit.emulator"
