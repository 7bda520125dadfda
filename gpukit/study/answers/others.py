"""What others published, beside ours."""

from __future__ import annotations

import re
from collections.abc import Mapping

from gpukit.bench.model import Row
from gpukit.bench.published import Published, published
from gpukit.study import words
from gpukit.study.answers.sms import alone
from gpukit.study.design import (
    BLOCK,
    COLD,
    FLUSHED,
    FUNCTIONS_ELEMENTS,
    HOT,
    ONE_SM_TRAFFIC,
    WAVES,
    elements,
    idle_grid,
    setting,
)
from gpukit.study.evidence import Evidence
from gpukit.study.table import rate, traffic

TITLE = "What others published, beside ours"
FAMILY = "elementwise-study"
GPUS = ("A100-40GB", "A10", "L4")
_PROBLEM = re.compile(r"copy of (\d+) MiB traffic")
_MIB = 1 << 20


def figures() -> list[Published]:
    """The published study's figures; none outside of the repository."""
    return published(FAMILY) or []


def by_size(found: list[Published], row: str, gpu: str) -> dict[int, float]:
    """Traffic in bytes to figure, of one row and GPU."""
    return {int(size[1]) * _MIB: figure.value for figure in found
            if (figure.row, figure.gpu) == (row, gpu)
            and (size := _PROBLEM.match(figure.problem))}


def answer(evidence: Evidence) -> list[str]:
    """See the module."""
    found = figures()
    if not found or not evidence.table:
        return ["The published figures come with the repository (results/published.csv)."
                ] if not found else []
    return [f"From {found[0].source.partition(',')[0]} (2024), read from its charts; its GPUs are "
            f"{words.listed(GPUS)}, ours is {evidence.device}. Shares are of each GPU's datasheet "
            "bandwidth.", "", *_shares(evidence, found), *_caps(evidence, found),
            *_vectors(evidence, found), *_one_sm(evidence, found), *_functions(evidence, found)]


def _shares(evidence: Evidence, found: list[Published]) -> list[str]:
    """Copies by traffic, cold and hot."""
    lines = []
    for state, row, name in ((COLD, "cold", "Cold (caches busted)"),
                             (HOT, "hot", "Hot (the same buffers each time)")):
        ours = shares(evidence, state)
        theirs = {gpu: by_size(found, row, gpu) for gpu in GPUS}
        lines += [f"{name}: share of the datasheet's bandwidth.", "",
                  *_sized(ours, theirs, evidence, words.percent)]
    return lines


def shares(evidence: Evidence, state: str) -> dict[int, float]:
    """Traffic to our share of the datasheet's bandwidth."""
    return {size: share for size, one in _own(evidence, state).items()
            if (share := _share(evidence, one)) is not None}


def _own(evidence: Evidence, state: str) -> dict[int, Row]:
    """The f32 copy by the library's own launch, by traffic."""
    rows = (evidence.table.get("copy", "f32", n, state, {})
            for n in evidence.table.sizes("copy", "f32", state))
    return {traffic(row): row for row in rows if row is not None}


def _share(evidence: Evidence, row: Row) -> float | None:
    sheet = evidence.memory.get("datasheet_gbs")
    return rate(row) / sheet if sheet else None


def _sized(ours: Mapping[int, float], theirs: Mapping[str, Mapping[int, float]],
           evidence: Evidence, text: object = None) -> list[str]:
    """One line for each size that anyone published."""
    show = text if callable(text) else (lambda value: f"{value:.3f}")
    sizes = sorted({size for values in theirs.values() for size in values})
    body = [(words.size(size), *(show(values[size]) if size in values else "-"
                                 for values in (ours, *theirs.values()))) for size in sizes]
    return words.table(("traffic", evidence.device, *theirs), body)


def _caps(evidence: Evidence, found: list[Published]) -> list[str]:
    """Rate of a grid capped at 32 waves over that of a whole grid, hot as published."""
    idle = idle_grid(evidence.properties)
    ours = {**_relative(evidence, HOT, setting(4, grid=idle), setting(4)),
            **_relative(evidence, COLD, setting(4, grid="gs2", waves=WAVES), setting(4)),
            **_relative(evidence, HOT, setting(4, grid="gs2", waves=WAVES), setting(4))}
    theirs = {gpu: _over(by_size(found, "gs2", gpu), by_size(found, "gs1", gpu)) for gpu in GPUS}
    return [f"Rate of a grid of {WAVES} waves over that of a grid of one pass, block {BLOCK}, 4 "
            "f32 per access, hot (cold where we have no hot rows). Like the published ones, our "
            "grids of this table have as many CTAs for small problems as for large.",
            "", *_sized(ours, theirs, evidence)]


def _vectors(evidence: Evidence, found: list[Published]) -> list[str]:
    ours = _relative(evidence, HOT, setting(4), setting(1))
    theirs = {gpu: _over(by_size(found, "vec 4", gpu), by_size(found, "vec 1", gpu))
              for gpu in GPUS}
    return ["Rate with 4 f32 per access over that with 1, hot.", "",
            *_sized(ours, theirs, evidence)]


def _relative(evidence: Evidence, state: str, upper: dict[str, int | str | bool],
              lower: dict[str, int | str | bool]) -> dict[int, float]:
    """By traffic, the rate of one launch over that of another."""
    table, ratios = evidence.table, {}
    for n in table.sizes("copy", "f32", state):
        one, other = (table.get("copy", "f32", n, state, params) for params in (upper, lower))
        if one and other:
            ratios[traffic(one)] = rate(one) / rate(other)
    return ratios


def _over(upper: Mapping[int, float], lower: Mapping[int, float]) -> dict[int, float]:
    return {size: value / lower[size] for size, value in upper.items() if size in lower}


def _one_sm(evidence: Evidence, found: list[Published]) -> list[str]:
    """One SM by elements per access; ours with the published block and with a full one."""
    body: list[tuple[object, ...]] = []
    n = elements("copy", "f32", ONE_SM_TRAFFIC)
    for block in (BLOCK, 1024):
        rows = [evidence.table.get("copy", "f32", n, FLUSHED, setting(vec, 1, block, 1))
                for vec in (1, 2, 4)]
        if any(rows):
            body.append((f"{evidence.device}, {block} threads",
                         *(f"{rate(row):.1f}" if row else "-" for row in rows)))
    if best := max(alone(evidence.table, FLUSHED), key=lambda one: rate(one.row), default=None):
        body.append((f"{evidence.device}, its best launch", "-", "-", f"{rate(best.row):.1f}"))
    for gpu in ("A100", "A10", "L4"):
        values = {figure.problem[-1]: figure.value for figure in found
                  if figure.row == "one SM" and figure.gpu == gpu}
        body.append((gpu, *(f"{values[vec]:.1f}" if vec in values else "-" for vec in "124")))
    return ["One SM, GB/s by f32 elements per access.", "",
            *words.table(("GPU", "1", "2", "4"), body)]


def _functions(evidence: Evidence, found: list[Published]) -> list[str]:
    """The problem that all functions were published for, cold."""
    body: list[tuple[object, ...]] = []
    for op, name in (("exp", "all but erf"), ("erf", "erf")):
        for dtype in ("f32", "bf16"):
            theirs = {figure.gpu: figure.value for figure in found
                      if figure.row == "functions, cold"
                      and figure.problem.startswith(f"1024x3072 elements, {name}, {dtype}")}
            ours = evidence.table.get(op, dtype, FUNCTIONS_ELEMENTS, COLD, {})
            share = _share(evidence, ours) if ours else None
            body.append((f"{name} (ours: {op})", dtype, words.percent(share) if share else "-",
                         *(words.percent(theirs[gpu]) if gpu in theirs else "-" for gpu in GPUS)))
    return ["Functions of 1024 x 3072 elements, cold: share of the datasheet's bandwidth.", "",
            *words.table(("function", "dtype", evidence.device, *GPUS), body, left=2)]
