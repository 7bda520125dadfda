"""The report of the elementwise study: its questions in order, each answered from rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from gpukit.bench.model import Row
from gpukit.measure import quantile
from gpukit.study import words
from gpukit.study.answers import (
    counted,
    defaults,
    grids,
    indices,
    l2,
    others,
    peak,
    sms,
    turns,
    widths,
)
from gpukit.study.evidence import Evidence
from gpukit.study.table import LEAST_NOISE

#: The questions by name, which is also that of their figures.
QUESTIONS = {"l2": l2, "grids": grids, "widths": widths, "indices": indices, "turns": turns,
             "sms": sms, "peak": peak, "defaults": defaults, "others": others}
_NO_CLOCK = ("Not answered: this device is emulated and has no clock. What was counted stands "
             "above.")
_NO_ROWS = "Not answered: the rows for it were not measured."


def report(rows: Sequence[Row], facts: Mapping[str, Any], figures: Mapping[str, str]) -> str:
    """Return the report as Markdown; ``figures`` maps questions to files to show in them."""
    evidence = Evidence(rows, facts)
    timed = bool(facts["device"]["timed"])
    parts = [f"# Elementwise bandwidth: a study on {evidence.device}\n", *_opening(evidence, timed)]
    if not timed:
        parts += [f"## {counted.TITLE}\n", *counted.answer(evidence)]
    for number, (name, question) in enumerate(QUESTIONS.items(), 1):
        lines = question.answer(evidence) or [_NO_ROWS if timed else _NO_CLOCK]
        parts += [f"## {number}. {question.TITLE}\n", *_figure(name, question.TITLE, figures),
                  *lines, ""]
    return _tidy("\n".join(parts))


def _figure(name: str, title: str, figures: Mapping[str, str]) -> list[str]:
    return [f"![{title}]({figures[name]})", ""] if name in figures else []


def _opening(evidence: Evidence, timed: bool) -> list[str]:
    """How to read what follows."""
    properties = evidence.properties
    device = (f"{properties.sm_count} SMs, {properties.threads_per_sm} threads each, "
              f"{words.size(properties.l2_bytes)} of L2, {properties.arch}.")
    if not timed:
        return [f"{device} This device is emulated: instructions, sectors and bytes are counted, "
                "exactly; there is no clock, and no sentence below is about time.", ""]
    return [device, "", _method(), "", _noise(evidence), "", *_statuses(evidence)]


def _method() -> str:
    return ("Every number below comes from the rows beside this file, every sentence with a result "
            "from code that read them. Traffic is bytes read plus bytes written; GB = 1e9 bytes, "
            "MiB = 2^20. Launches of one problem in one L2 state are timed in turns on the same "
            "buffers, in another order each turn; states follow one another. *Cold* rotates over "
            "buffers of more than three times the L2, so that evicting what earlier launches wrote "
            "is part of the time; *flushed* reads twice the L2 before each launch; *hot* repeats "
            "the launch on the same buffers. Two launches are compared by the ratio of their "
            "medians, with the interval it lies in (95 % intervals of both medians, from ranks); "
            "`=` marks ratios that are not distinguishable from 1: the interval does not lie "
            "beyond the noise.")


def _noise(evidence: Evidence) -> str:
    """What equal launches differ by."""
    gaps = [gap for _, gap in evidence.table.twins]
    if not gaps:
        return "No launch was timed twice, so that the noise is not known from these rows."
    large = [gap for size, gap in evidence.table.twins if size >= 4 * evidence.l2_bytes]
    text = (f"Noise: {len(gaps)} pairs of rows are one and the same launch under two names. They "
            f"differ by {words.percent(quantile(gaps, 0.5), 2)} in the median and "
            f"{words.percent(quantile(gaps, 0.95), 2)} at the 95th percentile")
    if large:
        text += (f"; {words.percent(quantile(large, 0.95), 2)} at sizes of four times the L2 and "
                 "more")
    return (f"{text}. A difference counts if it exceeds that percentile for problems of about its "
            f"size, and {words.percent(LEAST_NOISE)}.")


def _statuses(evidence: Evidence) -> list[str]:
    found = Counter(row.status for row in evidence.rows)
    counts = words.listed(f"{number} {status}" for status, number in found.most_common())
    return [f"{len(evidence.rows)} rows: {counts}.", ""]


def _tidy(text: str) -> str:
    """No two blank lines in a row, one line end at the end."""
    while "\n\n\n" in text:
        text = text.replace("\n\n\n", "\n\n")
    return text.strip() + "\n"
