"""Does the library's own rule choose well?

The rule is asked again here: every block and unroll that it may pick was measured, so that a rule
can be judged by rows that are older than itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from gpukit import dtypes
from gpukit.bench.model import Row
from gpukit.ops.launch import Rule, rule, wave_bytes
from gpukit.study import words
from gpukit.study.design import COLD, FLUSHED, setting, wide
from gpukit.study.evidence import Evidence
from gpukit.study.table import SLOWER, Key, Ratio, Table, fastest, op_of, rate, traffic

TITLE = "Does the library's rule choose well?"


@dataclass(frozen=True)
class Regret:
    """The launch that the rule picks for a problem beside the best launch measured; ``ratio`` is
    time over time, at least 1."""

    own: Row
    best: Row
    ratio: Ratio


def regrets(evidence: Evidence) -> list[Regret]:
    """Every problem, cold or flushed, with a choice of blocks and unrolls."""
    table, found = evidence.table, []
    for key in table.problems():
        ways = choices(table, key) if key[3] in (COLD, FLUSHED) else {}
        own = ways.get(rule(key[2] * dtypes.parse(key[1]).itemsize, evidence.properties))
        if own and len(ways) > 1 and (best := fastest(ways.values())):
            found.append(Regret(own, best, table.ratio(own, best)))
    return found


def choices(table: Table, key: Key) -> dict[Rule, Row]:
    """The one-pass launches of a problem with widest accesses, by block and unroll."""
    vec = wide(key[1])
    return {Rule(int(row.params["block"]), int(row.params["unroll"])): row
            for row in table.contest(*key)
            if row.params and row.params == {**setting(vec), "block": row.params["block"],
                                             "unroll": row.params["unroll"]}}


def answer(evidence: Evidence) -> list[str]:
    """See the module."""
    found = regrets(evidence)
    if not found:
        return []
    return [_verdict(found), "", *_rule(evidence), *_rivals(evidence, found),
            *_by_size(evidence, found), *_worst(found), *_ops(found)]


def _verdict(found: list[Regret]) -> str:
    off = [regret for regret in found if regret.ratio.verdict == SLOWER]
    text = (f"**On average {words.percent(_geomean(found) - 1)} off the best** block and unroll of "
            f"each problem, over {len(found)} problems, cold or flushed; told apart from it at "
            f"{len(off)}")
    if not off:
        return f"{text}."
    top = max(off, key=lambda regret: regret.ratio.value)
    return f"{text}, at worst by {words.percent(top.ratio.value - 1)} ({_problem(top.own)})."


def _geomean(found: list[Regret]) -> float:
    return math.exp(sum(math.log(regret.ratio.value) for regret in found) / len(found))


def _rule(evidence: Evidence) -> list[str]:
    properties = evidence.properties
    one = wave_bytes(properties)
    return [f"The rule (`gpukit.ops.launch.rule`) counts waves: {properties.sm_count} SMs x "
            f"{properties.threads_per_sm} threads x 16 bytes = {words.size(one)} of an array each "
            "here. What it picks on this device:", "",
            *words.table(("array", "waves", "block", "loads in flight per thread"),
                         list(_picks(evidence)))]


def _picks(evidence: Evidence) -> Iterator[tuple[str, str, int, int]]:
    """The rule at powers of two, one line for each change."""
    before = None
    for shift in range(10, 34):
        picked = rule(1 << shift, evidence.properties)
        if picked != before:
            waves = (1 << shift) / wave_bytes(evidence.properties)
            yield f"from {words.size(1 << shift)}", f"{waves:.3g}", picked.block, picked.unroll
        before = picked


def _rivals(evidence: Evidence, found: list[Regret]) -> list[str]:
    """The rule beside choices that never change: mean and worst time over the best."""
    table = evidence.table
    ways = [choices(table, _key(regret.own)) for regret in found]
    fixed = [way for way in ways[0] if all(way in other for other in ways)]
    body = [("the rule", *_score([regret.ratio.value for regret in found]))]
    for way in sorted(fixed):
        times = [(other[way].time_us or 0) / (regret.best.time_us or 1)
                 for other, regret in zip(ways, found, strict=True)]
        body.append((f"block {way.block} x {way.unroll} always", *_score(times)))
    ranked = sorted(body, key=lambda line: line[1])
    place = [line[0] for line in ranked].index("the rule") + 1
    return [f"Beside one block and unroll for every problem, the rule comes {_ordinal(place)} of "
            f"{len(ranked)} by its mean.", "",
            *words.table(("choice", "mean time / best", "worst"), ranked)]


def _key(row: Row) -> Key:
    return op_of(row), row.dtype, row.shape["n"], row.l2


def _score(ratios: list[float]) -> tuple[str, str]:
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    return f"{mean:.4f}", f"{max(ratios):.3f}"


def _ordinal(place: int) -> str:
    return {1: "first", 2: "second", 3: "third"}.get(place, f"{place}th")


def _by_size(evidence: Evidence, found: list[Regret]) -> list[str]:
    """For each size the choice that suits its problems best on average, and the rule."""
    body = []
    for waves, group in _sizes(evidence, found):
        ways = [choices(evidence.table, _key(regret.own)) for regret in group]
        scores = {way: math.exp(sum(math.log((other[way].time_us or 0) / (r.best.time_us or 1))
                                    for other, r in zip(ways, group, strict=True)) / len(group))
                  for way in ways[0] if all(way in other for other in ways)}
        if not scores:  # nothing that all of them were launched with
            continue
        best = min(scores, key=lambda way: scores[way])
        own = group[0].own.launch
        body.append((words.STATES[group[0].own.l2], words.size(_array(group[0].own)),
                     f"{waves:.2f}", len(group),
                     f"{best.block} x {best.unroll}", f"{scores[best]:.3f}",
                     f"{own['block']} x {own['unroll']}", f"{_geomean(group):.3f}"))
    return ["By array size: the block and unroll that are best on average over its problems, and "
            "the rule's.", "",
            *words.table(("L2", "array", "waves", "problems", "best", "mean time / best", "rule",
                          "mean time / best"), body, left=2)]


def _sizes(evidence: Evidence, found: list[Regret]) -> Iterator[tuple[float, list[Regret]]]:
    """Problems whose arrays are about as large, by waves."""
    groups: dict[tuple[str, str], list[Regret]] = {}
    for regret in sorted(found, key=lambda r: (r.own.l2 == FLUSHED, _array(r.own))):
        groups.setdefault((regret.own.l2, words.size(_array(regret.own))), []).append(regret)
    for group in groups.values():
        yield _array(group[0].own) / wave_bytes(evidence.properties), group


def _array(row: Row) -> int:
    """Bytes of each array."""
    return traffic(row) // (3 if op_of(row) in ("add", "axpy") else 2)


def _worst(found: list[Regret]) -> list[str]:
    """The problems where the rule is told to be behind, the worst first."""
    off = sorted((r for r in found if r.ratio.verdict == SLOWER), key=lambda r: -r.ratio.value)
    body = [(_problem(r.own), f"{r.own.launch['block']} x {r.own.launch['unroll']}",
             f"{r.best.launch['block']} x {r.best.launch['unroll']}", f"{rate(r.own):.0f}",
             f"{rate(r.best):.0f}", r.ratio) for r in off[:20]]
    head = ("problem", "rule", "best", "rule GB/s", "best GB/s", "time rule / best")
    return [f"Where it is told apart from the best ({len(off)} problems, the worst 20 at most):",
            "", *words.table(head, body, left=3)] if body else []


def _ops(found: list[Regret]) -> list[str]:
    """Regret by op and dtype."""
    body = []
    for op, dtype in dict.fromkeys((op_of(r.own), r.own.dtype) for r in found):
        mine = [r for r in found if (op_of(r.own), r.own.dtype) == (op, dtype)]
        body.append((op, dtype, len(mine), *_score([r.ratio.value for r in mine])))
    return ["By op, over its sizes:", "",
            *words.table(("op", "dtype", "problems", "mean time / best", "worst"), body, left=2)]


def _problem(row: Row) -> str:
    return f"{op_of(row)} {row.dtype} of {words.size(traffic(row))}, {words.STATES[row.l2]}"
