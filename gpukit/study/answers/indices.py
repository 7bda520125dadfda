"""What do 32-bit indices save?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from gpukit.bench.model import Row
from gpukit.measure import median
from gpukit.study import words
from gpukit.study.evidence import Evidence
from gpukit.study.table import FASTER, SLOWER, Ratio, Table, traffic
from gpukit.study.turns import FORMS

TITLE = "What do 32-bit indices save?"


@dataclass(frozen=True)
class Pair:
    """One launch with either counter; ``ratio`` is the time with 64 bits over that with 32."""

    narrow: Row
    ratio: Ratio


def pairs(table: Table) -> list[Pair]:
    """Every launch that was timed with both counters."""
    return [pair for key in table.problems() for pair in _pairs(table, table.contest(*key))]


def _pairs(table: Table, rows: list[Row]) -> Iterator[Pair]:
    for row in rows:
        if row.params.get("index") == "u64":
            op, dtype, n = row.kernel.partition(".")[2], row.dtype, row.shape["n"]
            narrow = table.get(op, dtype, n, row.l2, {**row.params, "index": "u32"})
            if narrow:
                yield Pair(narrow, table.ratio(row, narrow))


def answer(evidence: Evidence) -> list[str]:
    """See the module."""
    found = pairs(evidence.table)
    timed = [_time(found), ""] if found else []
    return [*timed, *_instructions(evidence), *_table(found)]


def _time(found: list[Pair]) -> str:
    slower = [pair for pair in found if pair.ratio.verdict == SLOWER]
    faster = sum(pair.ratio.verdict == FASTER for pair in found)
    rest = len(found) - len(slower) - faster
    text = (f"**In time:** of {len(found)} launches timed with both, 64 bits are slower in "
            f"{len(slower)}, faster in {faster}, and not distinguishable in {rest}.")
    if not slower:
        return text
    top = max(slower, key=lambda pair: pair.ratio.value)
    return (f"{text} The most that 32 bits save is {words.percent(top.ratio.value - 1)}, at "
            f"{words.size(traffic(top.narrow))}, {words.STATES[top.narrow.l2]}, "
            f"{_how(top.narrow)}.")


def _instructions(evidence: Evidence) -> list[str]:
    """Counted from machine code, for the target of this device."""
    arch, turns = evidence.properties.arch, evidence.facts.get("turns", [])
    lines = [line for form in FORMS if (line := _saved(turns, arch, form))]
    return ["**In instructions per loop turn** (see the next question): " + "; ".join(lines) + ".",
            ""] if lines else []


def _saved(turns: list[dict[str, Any]], arch: str, form: str) -> str:
    counts = {turn["index"]: turn["instructions"] for turn in turns
              if (turn["arch"], turn["kernel"], turn["vec"]) == (arch, form, 4)}
    if len(counts) < 2:
        return ""
    return (f"{form} on {arch} takes {counts['u32']} with 32 bits and {counts['u64']} with 64, "
            f"{words.percent(1 - counts['u32'] / counts['u64'], 0)} fewer")


def _table(found: list[Pair]) -> list[str]:
    """By launch and L2 state, over all sizes."""
    body = []
    for how, group in groupby(sorted(found, key=_group), key=_group):
        ratios = [pair.ratio for pair in group]
        values = sorted(ratio.value for ratio in ratios)
        body.append((*how, len(ratios), sum(r.verdict == SLOWER for r in ratios),
                     sum(r.verdict == FASTER for r in ratios), f"{values[0]:.3f}",
                     f"{median(values):.3f}", f"{values[-1]:.3f}"))
    head = ("launch", "L2", "sizes", "64 bits slower", "64 bits faster",
            "lowest time 64 / 32", "median", "highest")
    return words.table(head, body, left=2)


def launch(pair: Pair) -> str:
    """How the pair was launched, the counter aside."""
    return _how(pair.narrow)


def _group(pair: Pair) -> tuple[str, str]:
    return launch(pair), words.STATES[pair.narrow.l2]


def _how(row: Row) -> str:
    waves = row.params.get("waves")
    loop = "no loop" if waves is None else f"looping, {words.times(int(waves), 'wave')}"
    return f"{words.times(int(row.params['vec']), 'element')} per access, {loop}"
