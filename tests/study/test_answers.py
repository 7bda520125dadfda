"""The answers follow the rows: what is planted is found, and nothing else is."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import pytest
from clocked import GPU, LATENCY_US, SM_MOST, Law, facts, no_law, rows

from gpukit import dtypes
from gpukit.bench.model import Case, Row
from gpukit.ops.launch import Decision
from gpukit.study import design
from gpukit.study.answers import defaults, grids, indices, l2, others, peak, sms, widths
from gpukit.study.evidence import Evidence
from gpukit.study.facts import mismatch
from gpukit.study.report import QUESTIONS, report
from gpukit.study.table import SLOWER

CASES = design.cases(GPU, design.QUICK)


def evidence(law: Law = no_law, cases: Sequence[Case] = CASES, **how: float) -> Evidence:
    return Evidence(rows(cases, law, **how), facts())  # type: ignore[arg-type]


EVEN = evidence()


def verdict(lines: list[str]) -> str:
    return lines[0].replace("\n", " ")


def test_l2_stops_flattering_where_nothing_is_left_of_it() -> None:
    """The invented L2 holds nothing from twice its size on."""
    assert l2.last_flattered(l2.points(EVEN)) == 64 << 20
    assert verdict(l2.answer(EVEN)).startswith("**From 100 MiB of traffic on** (2 times the L2 of "
                                               "50 MiB)")


def test_a_device_whose_caches_never_help_is_not_flattered() -> None:
    cold = [case for case in CASES if case.l2 != "hot"]
    slow = [_as(row, "hot") for row in rows([c for c in cold if c.l2 == "rotate"])]
    found = Evidence([*rows(cold), *slow], facts())
    assert verdict(l2.answer(found)).startswith("**At no size**")


def _as(row: Row, state: str) -> Row:
    row.l2 = state
    return row


def test_flushing_is_told_to_spare_the_writes_that_stay_behind() -> None:
    """Half of the invented L2."""
    text = " ".join(l2.answer(EVEN))
    (spared,) = re.findall(r"spares the traffic of ([\d.]+) MiB at 100 MiB", text)
    assert float(spared) == pytest.approx(25, rel=0.1)


def test_caps_that_cost_are_not_recommended() -> None:
    def costly(case: Case, decision: Decision) -> float:
        return 1.05 if case.params.get("grid") == "gs2" else 1.0

    found = evidence(costly)
    assert verdict(grids.answer(found)).startswith("**No.**")
    assert all(pair.ratio.verdict == SLOWER for pair in grids.pairs(found.table))


def test_a_cap_that_wins_is_named_with_its_gain() -> None:
    def winning(case: Case, decision: Decision) -> float:
        four = case.params.get("waves") == 4 and case.params["block"] == 256
        return 0.9 if four and case.shape["n"] == (64 << 20) // 8 else 1.0

    text = verdict(grids.answer(evidence(winning)))
    assert text.startswith("**Yes, at copy f32 of 64 MiB")
    assert re.search(r"copy f32 of 64 MiB, cold \((9\.\d|10\.\d) % with 4 waves of block 256", text)


def test_noise_makes_no_winner() -> None:
    noisy = evidence(spread=0.1, samples=20)
    assert "**Not distinguishably.**" in verdict(grids.answer(noisy))
    assert not [pair for pair in indices.pairs(noisy.table) if pair.ratio.told_apart]


def test_what_was_not_timed_is_not_claimed() -> None:
    """Neither of all SMs without a row of all, nor of a width at sizes that lack it."""
    some = [row for row in EVEN.rows if row.params.get("grid") != GPU.sm_count]
    assert "suffice" not in " ".join(sms.answer(Evidence(some, facts())))
    smallest = min(row.shape["n"] for row in EVEN.rows if row.dtype == "e4m3")
    lacking = [row for row in EVEN.rows
               if (row.shape["n"], row.params.get("vec")) != (smallest, 16)]
    lines = [line for line in widths.answer(Evidence(lacking, facts()))
             if line.startswith("- copy e4m3, cold")]
    assert [re.findall(r": (\d+) elements", line) for line in lines] == [["8"], ["16"]]


def test_a_copy_that_is_faster_cold_is_not_called_the_same() -> None:
    odd = evidence(lambda case, decision: 9.0 if case.l2 == "hot" else 1.0)
    assert verdict(l2.answer(odd)) == ("**At no size**: hot is nowhere distinguishably faster than "
                                       "cold.")


@pytest.mark.parametrize("sample", [float("nan"), float("inf"), 0.0])
def test_rows_without_numbers_answer_nothing(sample: float) -> None:
    for row in (broken := evidence().rows):
        row.samples_us = [sample] * 20
    text = report(broken, facts(), {})
    assert text.count("Not answered") == len(QUESTIONS) - 2  # machine code, and what is computed


def test_widths_pay_where_they_do_and_cost_where_they_cost() -> None:
    def uneven(case: Case, decision: Decision) -> float:
        wide = int(decision.tunables["vec"]) * dtypes.parse(case.dtype).itemsize == 16
        return 10.0 if wide and case.dtype == "f16" else 1.0

    lines = widths.answer(evidence(uneven))
    paying, costing = (next(line for line in lines if line.startswith(f"- exp {dtype}, cold"))
                       for dtype in ("bf16", "f16"))
    assert "8 elements (16 bytes) per access **pay" in paying and "at all 2 sizes" in paying
    assert "**cost" in costing and "pay" not in costing


def test_equal_widths_are_not_told_apart() -> None:
    """Four single loads have as many bytes in flight as one of four, which is all that counts."""
    text = "\n".join(widths.answer(EVEN))
    assert "the two are not distinguishable at 3 of 3 sizes" in text


def test_what_wide_counters_cost_is_found() -> None:
    def slow(case: Case, decision: Decision) -> float:
        return 1.04 if decision.tunables["index"] == "u64" else 1.0

    found = indices.pairs(evidence(slow).table)
    assert found and all(pair.ratio.verdict == SLOWER for pair in found)
    assert not [pair for pair in indices.pairs(EVEN.table) if pair.ratio.told_apart]
    assert "not distinguishable in" in verdict(indices.answer(EVEN))


def test_one_sm_obeys_littles_law_until_its_own_limit() -> None:
    assert sms.latency_ns(EVEN.table, "flush") == pytest.approx(1e3 * LATENCY_US, rel=0.05)
    best = max(one.row.gbs or 0 for one in sms.alone(EVEN.table, "flush"))
    assert best == pytest.approx(SM_MOST / 1e3, rel=0.05)
    text = " ".join(sms.answer(EVEN))
    assert "**One SM copies at" in text and "**50 of 100 SMs suffice**" in text


@pytest.mark.parametrize(("bits", "transfers", "ghz", "want"), [
    (5120, 2, 1.215, 1555.2), (384, 8, 1.5625, 600.0), (6144, 2, 3.201, 4916.7)])
def test_the_peak_is_bus_times_transfers_times_clock(bits: int, transfers: int, ghz: float,
                                                     want: float) -> None:
    assert peak.gbs(bits, transfers, ghz) == pytest.approx(want, rel=1e-4)


def test_the_published_parts_have_the_peaks_of_their_datasheets() -> None:
    for part in peak.PARTS:
        assert peak.gbs(part.bits, part.transfers, part.ghz) == pytest.approx(part.datasheet,
                                                                              rel=0.001)


def test_ceilings_stay_apart() -> None:
    lines = peak.answer(EVEN)
    assert "5120 bits / 8 x 2 transfers x 2.600 GHz = 3328 GB/s" in lines[0]
    table = [line for line in lines if line.startswith("| ") and "GB/s" not in line]
    names = [line.split("|")[1].strip() for line in table]
    assert [name.split()[0].rstrip(":") for name in names[1:5]] == [
        "theoretical", "datasheet", "measured", "measured"]


def test_a_driver_that_tells_no_clock_gives_no_peak() -> None:
    silent = Evidence(EVEN.rows, facts(clock_mhz_nvml=None, clock_mhz_driver=None))
    assert peak.theoretical(silent.memory) is None
    assert "no theoretical peak" in peak.answer(silent)[0]


def test_a_rule_that_chooses_badly_is_told_so() -> None:
    """On the invented GPU blocks of 1024 are a fifth faster: the rule never takes them."""
    def large(case: Case, decision: Decision) -> float:
        return 1.0 if decision.block == 1024 else 1.2

    found = defaults.regrets(evidence(large))
    assert found and all(regret.best.launch["block"] == 1024 for regret in found)
    assert all(regret.ratio.verdict == SLOWER for regret in found)
    text = "\n".join(defaults.answer(evidence(large)))
    assert re.search(r"\*\*On average (1[89]|20)\.\d % off the best\*\*", text)
    assert "| 1024 x 1 |" in text or "| 1024 x 4 |" in text


def test_where_launches_are_equal_the_rule_is_as_good_as_any() -> None:
    found = defaults.regrets(EVEN)
    assert found and not [regret for regret in found if regret.ratio.told_apart]


def test_published_figures_stand_beside_ours() -> None:
    assert others.by_size(others.figures(), "cold", "A100-40GB")[8 << 20] == 0.584
    assert others.by_size(others.figures(), "gs2", "L4")[16 << 20] == 627
    text = "\n".join(others.answer(EVEN))
    assert "| 8 MiB | 61" in text and "58.4 %" in text


@pytest.mark.parametrize("name", QUESTIONS)
def test_no_question_is_answered_without_rows(name: str) -> None:
    nothing = Evidence([], facts())
    assert not nothing.table
    if name not in ("turns", "peak"):
        assert QUESTIONS[name].answer(nothing) == []


def test_a_report_answers_every_question_and_says_how_sure_it_is() -> None:
    text = report(EVEN.rows, facts(), {"l2": "l2.svg"})
    assert "Not answered" not in text
    assert [int(n) for n in re.findall(r"^## (\d+)\. ", text, re.MULTILINE)] == list(range(1, 10))
    assert "![Where does L2 stop flattering?](l2.svg)" in text
    assert "one and the same launch under two names" in text
    assert "\n\n\n" not in text and text.endswith("\n")


def test_twins_measure_the_noise() -> None:
    def uneven(case: Case, decision: Decision) -> float:
        return 1.03 if not case.params else 1.0

    assert EVEN.table.noise(1 << 30) == pytest.approx(0.005)
    assert evidence(uneven).table.noise(1 << 30) == pytest.approx(0.03, rel=0.1)


def test_rows_that_were_not_timed_or_are_wrong_do_not_count() -> None:
    broken: Callable[[Row], Row] = lambda row: _with(row, "wrong")  # noqa: E731
    assert not Evidence([broken(row) for row in rows(CASES[:20])], facts()).table


def _with(row: Row, status: str) -> Row:
    row.status = status
    return row


def test_rows_are_reported_on_with_facts_of_their_own_device_only() -> None:
    mine = facts()
    assert mismatch(EVEN.rows, mine) == "" == mismatch([], mine)
    emulated = {**mine, "device": {**mine["device"], "timed": False, "name": "emulated H100"}}
    assert mismatch(EVEN.rows, emulated) == "rows of Test GPU, facts of emulated H100"
    other = {**mine, "device": {**mine["device"], "name": "Other GPU"}}
    assert mismatch(EVEN.rows, other) == "rows of Test GPU, facts of Other GPU"
    foreign = Row.of(Case("matmul", "matmul.k1", "bf16", {"m": 1}), GPU.name, GPU.arch, "")
    assert mismatch([foreign], mine) == "rows of matmul, not of a study"
    assert all(mismatch([], broken) for broken in ({}, [], None, {"device": {"timed": True}}))
