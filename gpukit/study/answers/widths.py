"""Do wide accesses pay, and where?"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby

from gpukit import dtypes
from gpukit.bench.model import Row
from gpukit.study import words
from gpukit.study.design import COLD, HOT, setting
from gpukit.study.evidence import Evidence
from gpukit.study.table import FASTER, SLOWER, Ratio, Table, op_of, rate, traffic

TITLE = "Do wide accesses pay, and where?"


@dataclass(frozen=True)
class Gain:
    """A width on one problem; ``ratio`` is its time over that of single elements."""

    row: Row
    vec: int
    ratio: Ratio


def gains(table: Table) -> list[Gain]:
    """Every width beside single elements, one vector per thread each, by size."""
    found = []
    for op, dtype, n, state in table.problems():
        single = table.get(op, dtype, n, state, setting(1))
        for vec in (2, 4, 8, 16, 32):
            row = table.get(op, dtype, n, state, setting(vec))
            if single and row and state in (COLD, HOT):
                found.append(Gain(row, vec, table.ratio(row, single)))
    return found


def widest(found: list[Gain]) -> list[Gain]:
    """The widest access of each problem."""
    best: dict[tuple[object, ...], Gain] = {}
    for gain in found:
        key = (gain.row.kernel, gain.row.dtype, gain.row.shape["n"], gain.row.l2)
        if key not in best or gain.vec > best[key].vec:
            best[key] = gain
    return list(best.values())


def answer(evidence: Evidence) -> list[str]:
    """See the module."""
    found = gains(evidence.table)
    if not found:
        return []
    wide = sorted(widest(found), key=_group)
    lines = [f"- {_verdict(list(group))}" for _, group in groupby(wide, key=_group)]
    return [*lines, "", *_in_flight(evidence), *_table(evidence, found)]


def _group(gain: Gain) -> tuple[str, str, str, int]:
    return op_of(gain.row), gain.row.dtype, gain.row.l2, gain.vec


def _verdict(group: list[Gain]) -> str:
    """One op, dtype, state and width over all sizes."""
    first = group[0]
    size = first.vec * dtypes.parse(first.row.dtype).itemsize
    name = (f"{op_of(first.row)} {first.row.dtype}, {words.STATES[first.row.l2]}: {first.vec} "
            f"elements ({size} bytes) per access")
    faster = [gain for gain in group if gain.ratio.verdict == FASTER]
    slower = [gain for gain in group if gain.ratio.verdict == SLOWER]
    said = [_range(kind, some, len(group))
            for kind, some in (("pay", faster), ("cost", slower)) if some]
    rest = len(group) - len(faster) - len(slower)
    if rest:
        said.append(f"make no distinguishable difference at {rest} of {len(group)} sizes")
    return f"{name} {'; '.join(said)}"


def _range(kind: str, some: list[Gain], all_sizes: int) -> str:
    """How much a width pays or costs, from the least to the most, and at which sizes."""
    shares = sorted(abs(1 / gain.ratio.value - 1) for gain in some)
    span = words.percent(shares[0]) + (f" to {words.percent(shares[-1])}" if shares[1:] else "")
    if len(some) == all_sizes > 1:
        return f"**{kind} {span}** at all {all_sizes} sizes"
    return f"**{kind} {span}** at {words.listed(words.size(traffic(g.row)) for g in some)}"


def _in_flight(evidence: Evidence) -> list[str]:
    """Single elements with as many bytes in flight as the widest access."""
    table, body = evidence.table, []
    for n in table.sizes("copy", "f32", COLD):
        four, wide = (table.get("copy", "f32", n, COLD, params)
                      for params in (setting(1, unroll=4), setting(4)))
        if four and wide:
            body.append((words.size(traffic(wide)), f"{rate(four):.0f}", f"{rate(wide):.0f}",
                         table.ratio(wide, four)))
    if not body:
        return []
    same = sum(not line[-1].told_apart for line in body)
    return ["Is it the width, or the bytes in flight? Four single f32 loads per thread have as "
            "many in flight as one of four elements; the two are not distinguishable at "
            f"{same} of {len(body)} sizes (cold).", "",
            *words.table(("traffic", "4 x 1 element GB/s", "1 x 4 elements GB/s",
                          "time 1 x 4 / 4 x 1"), body)]


def _table(evidence: Evidence, found: list[Gain]) -> list[str]:
    """Copies, cold: the time of each width over that of single elements."""
    lines = []
    for dtype in ("f32", "bf16", "e4m3"):
        mine = [g for g in found if g.row.dtype == dtype and g.row.l2 == COLD
                and op_of(g.row) == "copy"]
        vecs = sorted({gain.vec for gain in mine})
        sizes = sorted({traffic(gain.row) for gain in mine})
        body = [(words.size(size), *(next((str(g.ratio) for g in mine if g.vec == vec
                                           and traffic(g.row) == size), "-") for vec in vecs))
                for size in sizes]
        if body:
            lines += [f"Copy of {dtype}, cold: time of so many elements per access over that of "
                      "one.", "", *words.table(("traffic", *map(str, vecs)), body)]
    return lines
