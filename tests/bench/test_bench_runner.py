"""Sweeps: isolation, timeouts, resuming, what is stored and what is told."""

from __future__ import annotations

import json
import multiprocessing
import time
from dataclasses import dataclass, replace

import pytest
from fake_family import CEILING, FAMILY, NAME, FakeFamily, Sticky

from gpukit.bench.emulated_target import UNTIMED
from gpukit.bench.execute import CaseOptions
from gpukit.bench.model import Case, Row
from gpukit.bench.runner import SweepOptions, estimate_seconds, run_sweep, select_cases
from gpukit.bench.session import Setup
from gpukit.bench.store import MemoryStore, open_store
from gpukit.bench.worker import IsolatedSession
from gpukit.errors import ArgumentError, GpukitError, NoDeviceError
from gpukit.measure import TimingOptions

CASE_OPTIONS = CaseOptions(TimingOptions(budget_s=0.5, warmup_s=0.25), peers=("twin",))
LOCAL = SweepOptions(CASE_OPTIONS, isolate=False)
ISOLATED = SweepOptions(CASE_OPTIONS)


class Watcher:
    """Remembers what a sweep says."""

    def __init__(self) -> None:
        self.todo, self.kept, self.seconds, self.said = 0, 0, 0.0, []

    def planned(self, todo, kept, seconds, info):
        self.todo, self.kept, self.seconds = todo, len(kept), seconds

    def running(self, case):
        self.said.append(case.kernel)

    def finished(self, row):
        self.said.append(row.status)


def sweep(kernels, options=LOCAL, store=None, **axes):
    store = store or MemoryStore()
    watcher = Watcher()
    cases = select_cases(FAMILY, {"kernel": tuple(kernels), **axes})
    run_sweep(FAMILY, cases, options, store, watcher)
    return store, watcher


def statuses(store):
    return {row.kernel: row.status for row in store.rows}


def test_cases_cross_l2_states_and_methods():
    cases = select_cases(FAMILY, {"n": (1, 2)}, ("flush", "hot"), ("events", "cupti"))
    assert [(c.shape["n"], c.l2, c.method) for c in cases] == [
        (n, l2, method) for n in (1, 2) for l2 in ("flush", "hot") for method in ("events", "cupti")
    ]
    assert len({case.key for case in cases}) == 8


def test_pairs_that_cannot_be_timed_are_left_out_unless_alone():
    cases = select_cases(FAMILY, {}, ("flush", "rotate"), ("events", "graph"))
    assert ("flush", "graph") not in {(case.l2, case.method) for case in cases}
    assert len(cases) == 3
    with pytest.raises(ArgumentError, match="flush"):
        select_cases(FAMILY, {}, ("flush",), ("graph",))


def test_axes_left_out_take_their_defaults_and_repeats_run_once():
    (case,) = select_cases(FAMILY, {"n": (5, 5)})
    assert (case.kernel, case.dtype, case.params["slots"]) == ("scale", "f32", 4)


def test_no_case_is_an_error():
    with pytest.raises(ArgumentError, match="fake: no case fits"):
        select_cases(FAMILY, {"n": (666,)})


def test_a_huge_product_is_refused_before_it_is_made():
    with pytest.raises(ArgumentError, match="fake: these options make 1000000 combinations"):
        select_cases(FAMILY, {"n": tuple(range(1000)), "sleep_ms": tuple(range(1000))})


def test_sustained_cases_come_after_all_bursts_and_have_keys_of_their_own():
    cases = select_cases(FAMILY, {"n": (1, 2)}, loads=("burst", "sustained"))
    assert [case.load for case in cases] == ["burst", "burst", "sustained", "sustained"]
    assert "load" not in cases[0].key
    assert cases[2].key == f"{cases[0].key} load=sustained"
    row = Row.of(cases[2], "GPU", "sm_90", "")
    assert row.case_key == cases[2].key


def test_the_estimate_counts_peers():
    cases = [Case("fake", "scale", "f32", {"n": n}) for n in range(10)]
    assert estimate_seconds(cases, CASE_OPTIONS) == pytest.approx(10 * (0.25 + 0.5 * 2 + 1))
    options = replace(CASE_OPTIONS, timing=replace(CASE_OPTIONS.timing, sustain_s=3.0))
    cases[0] = replace(cases[0], load="sustained")
    assert estimate_seconds(cases, options) == pytest.approx(10 * (0.25 + 0.5 * 2 + 1) + 3)
    untimed = [replace(case, l2=UNTIMED, method=UNTIMED) for case in cases]
    assert estimate_seconds(untimed, CASE_OPTIONS) is None


def test_a_sweep_tells_what_it_does():
    store, watcher = sweep(["scale", "wrong"])
    assert statuses(store) == {"scale": "ok", "wrong": "wrong"}
    assert watcher.said == ["scale", "ok", "wrong", "wrong"]
    assert (watcher.todo, watcher.kept) == (2, 0)
    assert watcher.seconds == pytest.approx(2 * (0.25 + 0.5 * 2 + 1))


def test_a_crash_and_a_sticky_error_cost_their_own_case_only():
    store, _ = sweep(["sticky", "scale", "dies", "fast", "raises", "noisy"], ISOLATED)
    assert statuses(store) == {
        "sticky": "error",
        "scale": "ok",
        "dies": "error",
        "fast": "ok",
        "raises": "error",
        "noisy": "ok",
    }
    messages = {row.kernel: row.message for row in store.rows}
    assert messages["sticky"] == "CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access"
    assert messages["dies"] == "the process running this case was killed by SIGKILL"
    assert messages["raises"] == "ValueError: first line second line"
    assert not multiprocessing.active_children()
    assert not Sticky.broken  # nothing ran here


def test_in_one_process_a_sticky_error_spoils_the_rest(monkeypatch):
    monkeypatch.setattr(Sticky, "broken", False)
    store, _ = sweep(["sticky", "scale"], LOCAL)
    assert statuses(store) == {"sticky": "error", "scale": "error"}


def test_a_case_that_takes_too_long_is_incomplete():
    started = time.monotonic()
    store, _ = sweep(["hangs", "scale"], replace(ISOLATED, timeout_s=1.0))
    assert time.monotonic() - started < 30
    assert statuses(store) == {"hangs": "incomplete", "scale": "ok"}
    assert "no answer after 1 s" in store.rows[0].message


def test_a_timeout_needs_a_worker():
    with pytest.raises(ArgumentError, match="--no-isolate"):
        sweep(["scale"], replace(LOCAL, timeout_s=1.0))


def test_ceilings_are_measured_once_a_run_even_across_workers(tmp_path, monkeypatch):
    log, out = tmp_path / "log", tmp_path / "r.json"
    monkeypatch.setenv("FAKE_CEILING_LOG", str(log))
    sweep(["scale", "raises", "fast"], ISOLATED, open_store(out), dtype=("f32", "bf16"))
    assert sorted(log.read_text().split()) == ["bf16", "f32"]
    (run,) = json.loads(out.read_text())["runs"]
    assert run["ceilings"] == {"f32": CEILING, "bf16": None}


def test_opening_the_device_fails_as_itself():
    with pytest.raises(NoDeviceError, match="no fake device here"):
        sweep(["scale"], replace(ISOLATED, device="none"))
    with pytest.raises(GpukitError, match="ended with exit code 7"):
        sweep(["scale"], replace(ISOLATED, device="crash"))
    assert not multiprocessing.active_children()


@dataclass(frozen=True)
class Unpicklable(FakeFamily):
    secret: object = None


def test_a_family_that_does_not_travel_is_an_error_not_a_hang():
    family = Unpicklable(secret=lambda: None)
    with pytest.raises(ArgumentError, match="'fake' cannot travel to a worker process"):
        IsolatedSession(Setup(family, "0", CASE_OPTIONS))
    assert not multiprocessing.active_children()


@pytest.mark.parametrize("suffix", [".json", ".csv"])
def test_resume_runs_what_is_missing_and_what_failed(tmp_path, monkeypatch, suffix):
    monkeypatch.setenv("FAKE_MARKER", str(tmp_path / "marker"))
    out = tmp_path / f"r{suffix}"
    sweep(["scale", "dies-once", "unsupported", "wrong"], ISOLATED, open_store(out))
    store, watcher = sweep(
        ["scale", "dies-once", "unsupported", "wrong", "fast"],
        ISOLATED,
        open_store(out, resume=True),
    )
    assert (watcher.todo, watcher.kept) == (2, 3)
    assert watcher.said == ["dies-once", "ok", "fast", "ok"]
    assert statuses(store) == {
        "scale": "ok",
        "dies-once": "ok",
        "unsupported": "unsupported",
        "wrong": "wrong",
        "fast": "ok",
    }
    again = open_store(out, resume=True)
    assert len(again.rows) == 5
    assert {row.key for row in again.rows} == {row.key for row in store.rows}


def test_resume_leaves_rows_of_other_sweeps_alone(tmp_path):
    out = tmp_path / "r.json"
    sweep(["raises"], LOCAL, open_store(out))
    store, _ = sweep(["scale"], LOCAL, open_store(out, resume=True))
    assert statuses(store) == {"raises": "error", "scale": "ok"}


def test_an_interrupt_keeps_the_rows_and_notes_an_unfinished_run(tmp_path):
    class Impatient(Watcher):
        def finished(self, row):
            super().finished(row)
            if len(self.said) == 4:
                raise KeyboardInterrupt

    out = tmp_path / "r.json"
    cases = select_cases(FAMILY, {"n": (1, 2, 3, 4, 5)})
    with pytest.raises(KeyboardInterrupt):
        run_sweep(FAMILY, cases, ISOLATED, open_store(out), Impatient())
    document = json.loads(out.read_text())
    assert [row["shape"]["n"] for row in document["rows"]] == [1, 2]
    assert document["runs"][0]["complete"] is False
    assert document["rows"][0]["device"] == NAME
    assert not multiprocessing.active_children()
