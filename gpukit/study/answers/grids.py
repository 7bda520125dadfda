"""Does a wave-capped grid ever win?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gpukit.bench.model import Row
from gpukit.study import words
from gpukit.study.design import COLD, HOT
from gpukit.study.evidence import Evidence
from gpukit.study.table import (
    AMBIGUOUS,
    FASTER,
    SLOWER,
    Key,
    Ratio,
    Table,
    fastest,
    op_of,
    rate,
    traffic,
)

TITLE = "Does a wave-capped grid ever win?"
_NAMED = 4  # wins told one by one
_SAME_WAY = ("vec", "unroll", "block", "index")


@dataclass(frozen=True)
class Pair:
    """A capped grid, and the grid of one pass it is compared with; ``ratio`` is time over time."""

    capped: Row
    whole: Row
    ratio: Ratio


def pairs(table: Table) -> list[Pair]:
    """Every capped grid beside the whole grid that differs in nothing else."""
    return [pair for key in table.problems() if key[3] in (COLD, HOT)
            for pair in _pairs(table, table.contest(*key))]


def _pairs(table: Table, rows: list[Row]) -> Iterator[Pair]:
    whole = {_way(row): row for row in rows if row.params.get("grid") == "gs1"}
    for row in rows:
        if row.params.get("grid") == "gs2" and _way(row) in whole:
            other = whole[_way(row)]
            yield Pair(row, other, table.ratio(row, other))


def _way(row: Row) -> tuple[object, ...]:
    return tuple(row.params[name] for name in _SAME_WAY)


def best_pairs(table: Table) -> list[tuple[Key, Pair]]:
    """For each problem with capped grids, the best of either kind."""
    found = []
    for key in table.problems():
        rows = [row for row in table.contest(*key) if row.params.get("index") == "u32"]
        capped = fastest(row for row in rows if row.params["grid"] == "gs2")
        whole = fastest(row for row in rows if row.params["grid"] == "gs1")
        if capped and whole and key[3] in (COLD, HOT):
            found.append((key, Pair(capped, whole, table.ratio(capped, whole))))
    return found


def answer(evidence: Evidence) -> list[str]:
    """See the module."""
    every, best = pairs(evidence.table), best_pairs(evidence.table)
    if not every:
        return []
    return [_best(best), "", *_best_table(best), _alike(every), "", *_counts(every)]


def _best(best: list[tuple[Key, Pair]]) -> str:
    """The verdict that counts: each kind of grid at its best block and unroll."""
    wins = [(key, pair) for key, pair in best if pair.ratio.verdict == FASTER]
    lost = sum(pair.ratio.verdict == SLOWER for _, pair in best)
    count = (f"of {len(best)} problems the best capped grid loses {lost}, wins {len(wins)}, and is "
             f"not distinguishable from the best whole grid in {len(best) - lost - len(wins)}")
    if not wins:
        said = all(pair.ratio.verdict != AMBIGUOUS for _, pair in best)
        return (f"**{'No' if said else 'Not distinguishably'}.** With block and unroll at their "
                f"best for either kind of grid, {count}.")
    wins.sort(key=lambda win: win[1].ratio.value)
    where = words.listed(f"{_problem(pair.capped)} ({words.percent(1 - pair.ratio.value)} with "
                         f"{_how(pair.capped)})" for _, pair in wins[:_NAMED])
    most = "" if len(wins) <= _NAMED else f" (the {_NAMED} largest gains)"
    return (f"**Yes, at {where}**{most}. With block and unroll at their best for either kind, "
            f"{count}.")


def _alike(every: list[Pair]) -> str:
    """Caps beside whole grids of the same block and unroll."""
    wins = [pair for pair in every if pair.ratio.verdict == FASTER]
    text = (f"Against the whole grid of the same block, unroll and width, a cap is faster in "
            f"{len(wins)} of {len(every)} pairs.")
    if not wins:
        return text
    top = min(wins, key=lambda pair: pair.ratio.value)
    return (f"{text} Its largest gain is {words.percent(1 - top.ratio.value)}, at "
            f"{_problem(top.capped)} with {_how(top.capped)}; that is worth something only where "
            "the whole grid of that block and unroll is a good choice to begin with.")


def _best_table(best: list[tuple[Key, Pair]]) -> list[str]:
    head = ("problem", "L2", "whole grid", "capped grid", "whole GB/s", "capped GB/s",
            "time capped / whole")
    body = [(_problem(pair.capped, state=False), words.STATES[key[3]], _how(pair.whole),
             _how(pair.capped), f"{rate(pair.whole):.0f}", f"{rate(pair.capped):.0f}", pair.ratio)
            for key, pair in best if key[:2] == ("copy", "f32")]
    return words.table(head, body, left=4)


def _counts(every: list[Pair]) -> list[str]:
    """Wins and losses by cap and L2 state."""
    body = []
    for state in (COLD, HOT):
        for cap in sorted({int(pair.capped.params["waves"]) for pair in every}):
            ratios = [p.ratio for p in every
                      if p.capped.l2 == state and p.capped.params["waves"] == cap]
            if ratios:
                values = sorted(ratio.value for ratio in ratios)
                body.append((words.STATES[state], cap, len(ratios), _count(ratios, FASTER),
                             _count(ratios, SLOWER), f"{values[0]:.3f}",
                             f"{values[len(values) // 2]:.3f}", f"{values[-1]:.3f}"))
    head = ("L2", "waves", "pairs", "faster", "slower", "lowest time ratio", "median", "highest")
    return words.table(head, body)


def _count(ratios: list[Ratio], kind: str) -> int:
    return sum(ratio.verdict == kind for ratio in ratios)


def _problem(row: Row, *, state: bool = True) -> str:
    text = f"{op_of(row)} {row.dtype} of {words.size(traffic(row))}"
    return f"{text}, {words.STATES[row.l2]}" if state else text


def _how(row: Row) -> str:
    waves = f"{words.times(int(row.params['waves']), 'wave')} of " if "waves" in row.params else ""
    unroll = f" x {row.params['unroll']}" if row.params["unroll"] != 1 else ""
    return f"{waves}block {row.params['block']}{unroll}"
