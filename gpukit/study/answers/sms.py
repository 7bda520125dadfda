"""How far is one SM from the pin bandwidth, and how many SMs does it take?"""

from __future__ import annotations

import math
from dataclasses import dataclass

from gpukit.bench.model import Row
from gpukit.study import words
from gpukit.study.design import (
    COLD,
    FLUSHED,
    HOT,
    ONE_SM_TRAFFIC,
    SMS_TRAFFIC,
    elements,
    setting,
)
from gpukit.study.evidence import Evidence
from gpukit.study.table import Table, fastest, rate

TITLE = "How far is one SM from the pins?"
WARP = 32
_ENOUGH = 0.95  # of what all SMs reach


@dataclass(frozen=True)
class Alone:
    """One CTA on one SM; ``flight`` is the bytes of loads that it can have in flight."""

    row: Row
    flight: int


def alone(table: Table, state: str) -> list[Alone]:
    """The copy by one CTA, 16 bytes per access, by bytes in flight."""
    rows = table.contest("copy", "f32", elements("copy", "f32", ONE_SM_TRAFFIC), state)
    found = [Alone(row, flight(row)) for row in rows
             if row.params.get("grid") == 1 and row.params["vec"] == 4]
    return sorted(found, key=lambda one: (one.flight, one.row.params["block"]))


def flight(row: Row) -> int:
    """Bytes that a CTA's loads have in flight at most."""
    return int(row.params["block"]) * int(row.params["vec"]) * 4 * int(row.params["unroll"])


def latency_ns(table: Table, state: str) -> float | None:
    """How long a turn of one warp takes: a load, the wait for it, a store."""
    row = table.get("copy", "f32", elements("copy", "f32", ONE_SM_TRAFFIC), state,
                    setting(4, 1, WARP, 1))
    if row is None or row.time_us is None:
        return None
    return 1e3 * row.time_us / (row.shape["n"] / (4 * WARP))


def some(table: Table) -> dict[int, list[Row]]:
    """Number of SMs to the rows of so many CTAs, one unroll each."""
    rows = table.contest("copy", "f32", elements("copy", "f32", SMS_TRAFFIC), COLD)
    counts = sorted({int(row.params["grid"]) for row in rows if _counted(row)})
    return {count: [row for row in rows if row.params.get("grid") == count] for count in counts}


def _counted(row: Row) -> bool:
    return isinstance(row.params.get("grid"), int)


def answer(evidence: Evidence) -> list[str]:
    """See the module."""
    one, few = alone(evidence.table, FLUSHED), some(evidence.table)
    if not one or not few:
        return []
    return [_distance(evidence, one), "", *_little(evidence, one), *_alone_table(evidence, one),
            *_spread(evidence, few), *_widths(evidence)]


def _distance(evidence: Evidence, one: list[Alone]) -> str:
    best, pin = max(one, key=lambda a: rate(a.row)), evidence.pin_gbs
    text = (f"**One SM copies at {rate(best.row):.1f} GB/s at best** (read and written, from "
            f"memory; block {best.row.params['block']}, {best.row.params['unroll']} loads of 16 "
            "bytes in flight per thread)")
    if not pin:
        return f"{text}."
    return (f"{text}: {words.percent(rate(best.row) / pin)} of the {pin:.0f} GB/s of the pins, so "
            f"that at least {math.ceil(pin / rate(best.row))} such SMs are needed; this GPU has "
            f"{evidence.properties.sm_count}.")


def _little(evidence: Evidence, one: list[Alone]) -> list[str]:
    """Little's law with the latency of this very kernel."""
    cold, hot = (latency_ns(evidence.table, state) for state in (FLUSHED, HOT))
    if cold is None or hot is None:
        return []
    lines = [f"A warp alone takes {cold:.0f} ns per turn (load, wait, store) from memory, "
             f"{hot:.0f} ns from L2: latencies as this kernel meets them."]
    if evidence.pin_gbs:
        need = evidence.pin_gbs / 2 * cold
        each = need / evidence.properties.sm_count
        resident = 16 * evidence.properties.threads_per_sm
        lines.append(f"By Little's law the reads of a copy at pin bandwidth, half of "
                     f"{evidence.pin_gbs:.0f} GB/s, need {need / 1e6:.2f} MB in flight, "
                     f"{each / 1024:.1f} KiB per SM; the threads an SM can hold have "
                     f"{resident / 1024:.0f} KiB in flight with one 16-byte load each.")
    short = [rate(a.row) < 0.8 * 2 * a.flight / cold for a in one]
    departing = next((a for at, a in enumerate(one) if all(short[at:])), None)
    if departing:
        lines.append("One SM follows the law (time = latency) up to less than "
                     f"{departing.flight / 1024:.0f} KiB in flight; there it reaches "
                     f"{words.percent(rate(departing.row) / (2 * departing.flight / cold), 0)} of "
                     "what the law allows: from there on the SM's own path to memory binds.")
    return [" ".join(lines), ""]


def _alone_table(evidence: Evidence, one: list[Alone]) -> list[str]:
    """One SM: GB/s by threads and loads in flight, from memory and from L2."""
    blocks = sorted({int(a.row.params["block"]) for a in one})
    unrolls = sorted({int(a.row.params["unroll"]) for a in one})
    lines = []
    for state, name in ((FLUSHED, "from memory"), (HOT, "from L2")):
        rates = {(a.row.params["block"], a.row.params["unroll"]): rate(a.row)
                 for a in alone(evidence.table, state)}
        body = [(block, *(words.number(rates.get((block, unroll)), 1) for unroll in unrolls))
                for block in blocks]
        lines += [f"One SM, {name}: GB/s by threads (down) and 16-byte loads in flight per thread.",
                  "", *words.table(("threads", *map(str, unrolls)), body)]
    return lines


def _spread(evidence: Evidence, few: dict[int, list[Row]]) -> list[str]:
    """Some SMs: one CTA of 1024 threads each."""
    best = {count: row for count, rows in few.items() if (row := fastest(rows))}
    pin = evidence.pin_gbs
    body = [(count, _placed(evidence, count), row.params["unroll"], f"{rate(row):.0f}",
             f"{rate(row) / count:.1f}", words.percent(rate(row) / pin) if pin else "-",
             f"{flight(row) * count / 1e6:.2f}") for count, row in best.items()]
    return [_enough(best, evidence.properties.sm_count), "",
            *words.table(("CTAs", "on SMs", "loads in flight per thread", "GB/s", "GB/s per SM",
                          "of the pins", "MB in flight"), body)]


def _enough(best: dict[int, Row], sms: int) -> str:
    """How many SMs do almost what all of them do."""
    if sms not in best:
        return f"One CTA of 1024 threads on each of some SMs; all {sms} were not timed."
    most = rate(best[sms])
    enough = min(count for count, row in best.items() if rate(row) >= _ENOUGH * most)
    return (f"**{enough} of {sms} SMs suffice** for {words.percent(_ENOUGH, 0)} of what all of "
            f"them reach with one CTA of 1024 threads each ({most:.0f} GB/s; the numbers of SMs "
            "tried are those of the table).")


def _placed(evidence: Evidence, ctas: int) -> str:
    """On how many SMs so many CTAs were found to be."""
    return str((evidence.facts.get("placement") or {}).get(str(ctas), "-"))


def _widths(evidence: Evidence) -> list[str]:
    """Width of access on one SM, one load per thread."""
    n = elements("copy", "f32", ONE_SM_TRAFFIC)
    body = []
    for block in (256, 1024):
        rows = [evidence.table.get("copy", "f32", n, FLUSHED, setting(vec, 1, block, 1))
                for vec in (1, 2, 4)]
        if all(rows):
            body.append((block, *(f"{rate(row):.1f}" for row in rows if row)))
    if not body:
        return []
    return ["One SM, from memory, one load per thread: GB/s by f32 elements per access.", "",
            *words.table(("threads", "1", "2", "4"), body)]
