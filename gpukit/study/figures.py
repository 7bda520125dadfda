"""The figures of the report, one for each question that has something to show."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpukit.bench.model import Row
from gpukit.bench.plot import new_figure
from gpukit.measure import median_interval
from gpukit.study import words
from gpukit.study.answers import defaults, grids, indices, l2, others, sms
from gpukit.study.design import BLOCK, COLD, FLUSHED, HOT, setting, widths
from gpukit.study.evidence import Evidence
from gpukit.study.table import rate, traffic

# Okabe and Ito's colours: told apart by the colour-blind too.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#8c8c8c")
_MIB = 1 << 20
Points = Iterable[tuple[float, float]]


def draw(rows: Sequence[Row], facts: Mapping[str, Any], folder: Path) -> dict[str, str]:
    """Draw what the rows show into ``folder``; returns the files by question.

    Raises:
        MissingDependencyError: Matplotlib is not installed.
        OSError: a file cannot be written.
    """
    evidence = Evidence(rows, facts)
    drawn = {}
    for name, figure in (_FIGURES.items() if evidence.table else ()):
        picture = figure(evidence)
        if any(axes.has_data() for axes in picture.axes):
            _save(picture, folder / f"{name}.svg")
            drawn[name] = f"{name}.svg"
    return drawn


def _save(figure: Any, path: Path) -> None:
    """Equal rows give equal files: no date, no random ids."""
    from matplotlib import rc_context

    with rc_context({"svg.hashsalt": path.stem, "svg.fonttype": "path"}):
        figure.savefig(path, metadata={"Date": None, "Creator": None})


def _panels(count: int, down: int = 1, height: float = 3.8, **shared: Any) -> tuple[Any, list[Any]]:
    figure = new_figure("the figures of a study", 9.5, height)
    axes = figure.subplots(down, count, squeeze=False, **shared)
    return figure, list(axes.flat)


def _by_traffic(axes: Any, title: str, label: str) -> None:
    axes.set_xscale("log", base=2)
    ticks = [8, 32, 128, 512, 2048]
    axes.set_xticks(ticks, [words.size(tick * _MIB).replace(" ", "\n") for tick in ticks])
    axes.set_xlabel("traffic, read + written")
    axes.set_ylabel(label)
    axes.set_title(title, fontsize=10)
    axes.grid(alpha=0.3)


def _line(axes: Any, points: Points, label: str, colour: int, style: str = "-") -> None:
    ordered = sorted(points)
    if ordered:
        axes.plot(*zip(*ordered, strict=True), style, marker="o", markersize=3.5, linewidth=1.4,
                  label=label, color=COLOURS[colour % len(COLOURS)])


def _rates(axes: Any, rows: Iterable[Row], label: str, colour: int) -> None:
    """Rates by traffic, with the interval of each median."""
    ordered = sorted(rows, key=traffic)
    if not ordered:
        return
    xs, ys = [traffic(row) / _MIB for row in ordered], [rate(row) for row in ordered]
    spans = [_rate_interval(row) for row in ordered]
    below = [y - low for y, (low, _) in zip(ys, spans, strict=True)]
    above = [high - y for y, (_, high) in zip(ys, spans, strict=True)]
    axes.errorbar(xs, ys, (below, above), marker="o", markersize=3.5, linewidth=1.4, capsize=2,
                  label=label, color=COLOURS[colour])


def _rate_interval(row: Row) -> tuple[float, float]:
    """Where the rate lies; stored samples are rounded, so that it may miss the rate by as much."""
    low, high = median_interval(row.samples_us)
    if not 0 < low <= high < float("inf"):
        return rate(row), rate(row)
    return (min(rate(row), traffic(row) / high / 1e3), max(rate(row), traffic(row) / low / 1e3))


def _legend(axes: Any, **where: Any) -> None:
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=8, **where)


def _l2(evidence: Evidence) -> Any:
    figure, (axes,) = _panels(1, height=4.2)
    found = l2.points(evidence)
    for colour, (name, rows) in enumerate({
            "hot: the same buffers": [p.hot for p in found],
            "flushed": [p.flushed for p in found],
            "cold: rotating buffers": [p.cold for p in found]}.items()):
        _rates(axes, rows, name, colour)
    if found:
        axes.axvline(evidence.l2_bytes / _MIB, color="grey", linestyle="--", linewidth=1)
        axes.annotate(f"L2, {words.size(evidence.l2_bytes)}", (evidence.l2_bytes / _MIB, 0),
                      (4, 6), textcoords="offset points", fontsize=8, color="dimgrey")
        _pin(axes, evidence)
        axes.set_ylim(bottom=0)
    _by_traffic(axes, f"Copy of f32 on {evidence.device}", "GB/s")
    _legend(axes, loc="upper right")
    return figure


def _pin(axes: Any, evidence: Evidence) -> None:
    if evidence.pin_gbs:
        axes.axhline(evidence.pin_gbs, color="black", linestyle=":", linewidth=1,
                     label=f"pins, {evidence.pin_gbs:.0f} GB/s")


def _grids(evidence: Evidence) -> Any:
    figure, panels = _panels(2, sharey=True)
    pairs = [pair for pair in grids.pairs(evidence.table)
             if pair.capped.kernel.endswith(".copy") and pair.capped.dtype == "f32"
             and pair.whole.params == setting(4, 1, BLOCK)]
    best = [pair for key, pair in grids.best_pairs(evidence.table) if key[:2] == ("copy", "f32")]
    for axes, state in zip(panels, (COLD, HOT), strict=True):
        for colour, cap in enumerate(sorted({int(p.capped.params["waves"]) for p in pairs})):
            _line(axes, _relative([p for p in pairs if p.capped.l2 == state
                                   and p.capped.params["waves"] == cap]),
                  words.times(cap, "wave"), colour)
        _line(axes, _relative([p for p in best if p.capped.l2 == state]), "best of either", 6, "--")
        axes.axhline(1, color="black", linewidth=0.8)
        _by_traffic(axes, f"Copy of f32, {words.STATES[state]}", "rate of capped / whole grid")
    _legend(panels[0], ncols=2)
    return figure


def _relative(pairs: list[grids.Pair]) -> Points:
    return [(traffic(pair.capped) / _MIB, 1 / pair.ratio.value) for pair in pairs]


def _widths(evidence: Evidence) -> Any:
    figure, panels = _panels(3, 2, 6.4)
    table = evidence.table
    cells = [(state, dtype) for state in (COLD, HOT) for dtype in ("f32", "bf16", "e4m3")]
    for axes, (state, dtype) in zip(panels, cells, strict=True):
        for colour, vec in enumerate(widths(dtype, 32)):
            rows = (table.get("copy", dtype, n, state, setting(vec))
                    for n in table.sizes("copy", dtype, state))
            _rates(axes, filter(None, rows), words.times(vec, "element"), colour)
        axes.set_ylim(bottom=0)
        _by_traffic(axes, f"Copy of {dtype}, {words.STATES[state]}", "GB/s")
        _legend(axes)
    return figure


def _indices(evidence: Evidence) -> Any:
    figure, panels = _panels(2, sharey=True)
    found = indices.pairs(evidence.table)
    launches = list(dict.fromkeys(indices.launch(pair) for pair in found))
    for axes, state in zip(panels, (COLD, HOT), strict=True):
        for colour, launch in enumerate(launches):
            _line(axes, [(traffic(p.narrow) / _MIB, p.ratio.value) for p in found
                         if p.narrow.l2 == state and indices.launch(p) == launch], launch, colour)
        axes.axhline(1, color="black", linewidth=0.8)
        _by_traffic(axes, f"Copy of f32, {words.STATES[state]}", "time with 64 / with 32 bits")
    _legend(panels[1])
    return figure


def _sms(evidence: Evidence) -> Any:
    figure, (left, right) = _panels(2, height=4.2)
    _one_sm(left, evidence)
    few = sms.some(evidence.table)
    unrolls = sorted({int(row.params["unroll"]) for rows in few.values() for row in rows})
    for colour, unroll in enumerate(unrolls):
        _line(right, [(count, rate(row)) for count, rows in few.items() for row in rows
                      if row.params["unroll"] == unroll],
              f"{words.times(unroll, 'load')} per thread", colour)
    if few:
        _pin(right, evidence)
        right.set_ylim(bottom=0)
    right.set_xlabel("SMs with one CTA of 1024 threads")
    right.set_ylabel("GB/s")
    right.set_title("Some SMs, cold", fontsize=10)
    right.grid(alpha=0.3)
    _legend(right)
    return figure


def _one_sm(axes: Any, evidence: Evidence) -> None:
    """Rate by bytes in flight, and what Little's law allows with the latency of a warp alone."""
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    top = 0.0
    for colour, (state, name) in enumerate(((FLUSHED, "from memory"), (HOT, "from L2"))):
        found = sms.alone(evidence.table, state)
        _dots(axes, [(one.flight / 1024, rate(one.row)) for one in found], name, colour)
        latency = sms.latency_ns(evidence.table, state)
        if latency and found:
            ends = [found[0].flight, found[-1].flight]
            axes.plot([end / 1024 for end in ends], [2 * end / latency for end in ends], "--",
                      linewidth=1, color=COLOURS[colour], label=f"Little's law at {latency:.0f} ns")
            top = max(top, *(rate(one.row) for one in found))
    if top:
        axes.set_ylim(1, 2 * top)
        ticks = [2**shift for shift in range(9) if 2**shift <= 2 * top]
        axes.set_yticks(ticks, map(str, ticks))
    axes.set_xticks([0.5, 2, 8, 32, 128], ["0.5", "2", "8", "32", "128"])
    axes.set_xlabel("KiB of loads in flight")
    axes.set_ylabel("GB/s")
    axes.set_title("One SM", fontsize=10)
    axes.grid(alpha=0.3)
    _legend(axes)


def _dots(axes: Any, points: Points, label: str, colour: int) -> None:
    ordered = sorted(points)
    if ordered:
        axes.plot(*zip(*ordered, strict=True), "o", markersize=4, alpha=0.8, label=label,
                  color=COLOURS[colour % len(COLOURS)])


def _defaults(evidence: Evidence) -> Any:
    figure, panels = _panels(2, sharey=True)
    found = defaults.regrets(evidence)
    for axes, state in zip(panels, (COLD, FLUSHED), strict=True):
        for colour, dtype in enumerate(dict.fromkeys(regret.own.dtype for regret in found)):
            for told, marker in ((True, "o"), (False, "x")):
                points = [(traffic(r.own) / _MIB, 100 * (r.ratio.value - 1)) for r in found
                          if (r.own.l2, r.own.dtype) == (state, dtype)
                          and r.ratio.told_apart == told]
                _scatter(axes, points, marker, colour,
                         dtype + ("" if told else ", not distinguishable"))
        _by_traffic(axes, f"The library's rule, {words.STATES[state]}", "% slower than the best")
    _legend(panels[0])
    return figure


def _scatter(axes: Any, points: Points, marker: str, colour: int, label: str) -> None:
    ordered = sorted(points)
    if ordered:
        axes.scatter(*zip(*ordered, strict=True), marker=marker, s=18, alpha=0.8, label=label,
                     color=COLOURS[colour])


def _others(evidence: Evidence) -> Any:
    figure, panels = _panels(2)
    found = others.figures()
    for axes, state in zip(panels, (COLD, HOT), strict=True):
        ours = others.shares(evidence, state)
        for colour, (name, values) in enumerate({
                evidence.device: ours,
                **{gpu: others.by_size(found, words.STATES[state], gpu) for gpu in others.GPUS},
        }.items()):
            _line(axes, [(size / _MIB, 100 * share) for size, share in values.items()], name,
                  colour)
        if state == HOT:
            axes.set_yscale("log", base=2)
            ticks = [50, 100, 200, 400, 800]
            axes.set_yticks(ticks, map(str, ticks))
        else:
            axes.set_ylim(0, 105)
        axes.axhline(100, color="black", linewidth=0.8)
        _by_traffic(axes, f"Copy of f32, {words.STATES[state]}", "% of the datasheet's bandwidth")
    _legend(panels[0])
    return figure


_FIGURES: dict[str, Callable[[Evidence], Any]] = {
    "l2": _l2, "grids": _grids, "widths": _widths, "indices": _indices, "sms": _sms,
    "defaults": _defaults, "others": _others}
