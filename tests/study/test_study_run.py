"""The run: contests checked and timed as a whole, resumed, and what goes wrong told in rows."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from clocked import ClockedTarget

pytest.importorskip("cuda.bindings.nvrtc")

from gpukit import kernels
from gpukit.bench.families import buffers
from gpukit.bench.model import Case, Row
from gpukit.bench.store import MemoryStore, open_store
from gpukit.bench.target import open_target
from gpukit.errors import LaunchError
from gpukit.study import contest, design, run
from gpukit.study.facts import gather
from gpukit.study.report import report


class Watcher:
    """Counts what it is told."""

    def __init__(self) -> None:
        self.todo, self.kept, self.rows = 0, 0, list[Row]()

    def planned(self, todo: int, kept: Any, seconds: float | None, info: Any) -> None:
        self.todo, self.kept = todo, len(kept)

    def running(self, case: Case) -> None:
        return None

    def finished(self, row: Row) -> None:
        self.rows.append(row)


def cases(*states: str) -> list[Case]:
    """The emulator's f32 copies, as a device with a clock would get them."""
    return [dataclasses.replace(case, l2=state, method="events")
            for state in states for case in design.emulated_cases() if case.dtype == "f32"]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """No ceiling, nothing compiled ahead, two small buffer sets."""
    monkeypatch.setattr(run, "prebuild", lambda wanted, device: None)
    monkeypatch.setattr(buffers, "ROTATE_OVER_L2", 0.001)


def study(store: Any, wanted: list[Case], target: ClockedTarget | None = None) -> Watcher:
    watcher = Watcher()
    run.run_study(wanted, target or ClockedTarget(), store, watcher, 5.0)
    return watcher


def test_a_contest_is_timed_together_and_every_row_has_its_samples() -> None:
    target, store = ClockedTarget(), MemoryStore()
    study(store, cases("rotate", "hot"), target)
    assert [len(works) for works in target.timed_works] == [5, 5]
    assert [row.l2 for row in store.rows] == ["rotate"] * 5 + ["hot"] * 5
    assert {row.status for row in store.rows[:5]} == {"ok"}
    assert {row.status for row in store.rows[5:]} == {"cache-resident"}
    assert all(len(row.samples_us) == 20 and row.error == 0 for row in store.rows)


def test_resuming_runs_whole_contests_and_only_what_is_missing(tmp_path: Path) -> None:
    out, wanted = tmp_path / "rows.json", cases("rotate", "hot")
    study(open_store(out), wanted[:7])  # the second contest lacks three
    again = study(open_store(out, resume=True), wanted)
    assert (again.todo, again.kept) == (5, 5)
    rows = open_store(out, resume=True).rows
    assert sorted(row.case_key for row in rows) == sorted(case.key for case in wanted)
    assert study(open_store(out, resume=True), wanted).todo == 0


def test_a_wrong_result_is_told_and_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    judge = contest._Judge.__call__

    def spoilt(self: Any, work: Any) -> Any:
        result = judge(self, work)
        return dataclasses.replace(result, ok="vec=2" not in work.name, error=7.0)

    monkeypatch.setattr(contest._Judge, "__call__", spoilt)
    target, store = ClockedTarget(), MemoryStore()
    study(store, cases("rotate"), target)
    assert [row.status for row in store.rows].count("wrong") == 1
    (wrong,) = [row for row in store.rows if row.status == "wrong"]
    assert wrong.params["vec"] == 2 and wrong.time_us is None and "7 x tolerance" in wrong.message
    assert len(target.timed_works[0]) == 4


def test_a_result_spoilt_while_timing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    prepare, kept = run.FAMILY.prepare, list[Any]()

    def keeping(self: Any, *arguments: Any) -> Any:
        kept.append(prepare(*arguments))
        return kept[-1]

    class Spoiling(ClockedTarget):
        def time(self, works: Any, options: Any) -> Any:
            timings = super().time(works, options)
            kept[-1].outputs[-1][...] = 0
            return timings

    monkeypatch.setattr(type(run.FAMILY), "prepare", keeping)
    store = MemoryStore()
    study(store, cases("rotate"), Spoiling())
    assert {row.status for row in store.rows} == {"wrong"}
    assert all("right before timing, wrong after it" in row.message for row in store.rows)


def test_a_launch_that_the_problem_does_not_take_costs_its_row_alone() -> None:
    first, *others = cases("rotate")
    odd = dataclasses.replace(first, params={**first.params, "vec": 8})
    store = MemoryStore()
    study(store, [first, odd, *others])
    assert [row.status for row in store.rows] == ["ok", "unsupported", "ok", "ok", "ok", "ok"]
    assert "moves at most 16" in store.rows[1].message


def test_a_broken_device_ends_the_run_and_keeps_the_rows(tmp_path: Path) -> None:
    class Broken(ClockedTarget):
        def time(self, works: Any, options: Any) -> Any:
            if options.l2 == "hot":
                raise RuntimeError("an illegal memory access")
            return super().time(works, options)

    out = tmp_path / "rows.json"
    with pytest.raises(LaunchError, match="--resume goes on in a fresh process"):
        study(open_store(out), cases("rotate", "hot", "flush"), Broken())
    rows = open_store(out, resume=True).rows
    assert [row.status for row in rows] == ["ok"] * 5 + ["error"] * 5
    assert study(open_store(out, resume=True), cases("rotate", "hot", "flush")).todo == 10


def test_an_interrupt_keeps_the_contests_that_are_over(tmp_path: Path) -> None:
    class Impatient(ClockedTarget):
        def time(self, works: Any, options: Any) -> Any:
            if options.l2 == "hot":
                raise KeyboardInterrupt
            return super().time(works, options)

    out = tmp_path / "rows.json"
    with pytest.raises(KeyboardInterrupt):
        study(open_store(out), cases("rotate", "hot"), Impatient())
    assert len(open_store(out, resume=True).rows) == 5


@pytest.mark.parametrize(("used", "least", "most"), [(0, 0.019, 0.021), (1000, 0.003, 0.005)])
def test_time_is_shared_among_the_cases_left(used: float, least: float, most: float) -> None:
    budget = run.Budget(21.5)
    budget.begun -= used
    assert least < budget.options(1000, 10).budget_s < most
    assert budget.options(1, 1).budget_s <= 0.05


def test_an_emulated_device_counts_and_its_report_claims_no_time() -> None:
    target, store, watcher = open_target("emu:h100"), MemoryStore(), Watcher()
    run.run_study(design.emulated_cases(), target, store, watcher, 5.0)
    assert {row.status for row in store.rows} == {"ok"} and len(store.rows) == watcher.todo
    facts = gather(target)
    text = report(store.rows, facts, {})
    assert f"**Bytes:** {len(store.rows)} of {len(store.rows)} launches moved exactly" in text
    silent = 6 if facts["turns"] else 7  # counting 32-bit counters' savings takes a disassembler
    assert "there is no clock" in text and text.count("Not answered: ") == silent
    assert "GB/s per SM" not in text


def test_the_kernel_that_looks_where_ctas_are_tells_each_its_sm() -> None:
    device = open_target("emu:h100").device
    sm = device.empty((3,), "uint32")
    sm[...] = 999
    device.compile(kernels.get("timing.where"), {}).launch((3,), (32,), (100, sm))
    assert len(set(sm.tolist())) == 3 and max(sm) < device.properties.sm_count
