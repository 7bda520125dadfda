"""The study on a GPU: a few contests, really timed, and the facts only hardware can tell."""

from __future__ import annotations

from typing import Any

import pytest

from gpukit.bench.model import Case, Row
from gpukit.bench.store import MemoryStore
from gpukit.bench.target import open_target
from gpukit.study import design
from gpukit.study.answers import peak, sms
from gpukit.study.evidence import Evidence
from gpukit.study.facts import gather
from gpukit.study.report import report
from gpukit.study.run import run_study

pytestmark = pytest.mark.gpu


class Silent:
    """Watches nothing."""

    def planned(self, todo: int, kept: Any, seconds: float | None, info: Any) -> None: ...
    def running(self, case: Case) -> None: ...
    def finished(self, row: Row) -> None: ...


@pytest.fixture(scope="module")
def evidence() -> Evidence:
    """The smallest copies in every state, and one SM alone."""
    target, store = open_target("cuda:0"), MemoryStore()
    wanted = [case for case in design.cases(target.device.properties, design.QUICK)
              if case.kernel == "elementwise.copy" and case.dtype == "f32"
              and case.shape["n"] in (8 * design.MIB // 8, design.ONE_SM_TRAFFIC // 8)]
    run_study(wanted, target, store, Silent(), 3.0)
    assert len(store.rows) == len(wanted)
    return Evidence(store.rows, gather(target))


def test_every_row_is_right_and_timed(evidence: Evidence) -> None:
    assert {row.status for row in evidence.rows} <= {"ok", "cache-resident"}
    assert all(row.samples_us and row.time_us for row in evidence.rows)


def test_few_ctas_are_on_as_many_sms(evidence: Evidence) -> None:
    assert all(int(ctas) == found for ctas, found in evidence.facts["placement"].items())


def test_the_driver_tells_a_peak_that_no_cold_copy_exceeds(evidence: Evidence) -> None:
    limit = peak.theoretical(evidence.memory)
    assert limit is not None
    assert all((row.gbs or 0) < limit for row in evidence.rows if row.l2 != "hot")


def test_memory_is_farther_away_than_l2(evidence: Evidence) -> None:
    cold, hot = (sms.latency_ns(evidence.table, state) for state in ("flush", "hot"))
    assert cold and hot and 100 < hot < cold < 5000


def test_the_report_has_its_answers(evidence: Evidence) -> None:
    text = report(evidence.rows, evidence.facts, {})
    assert "**Theoretical:" in text and "pairs of rows are one and the same launch" in text
