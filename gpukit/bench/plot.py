"""Speed against problem size, drawn with Matplotlib (the ``plot`` extra)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpukit.bench.model import TIMED_STATUSES, Row
from gpukit.errors import ArgumentError, missing

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

#: What can be drawn upwards: row field to axis label.
QUANTITIES = {
    "gbs": "GB/s (read + write, GB = 1e9 bytes)",
    "tflops": "TFLOP/s",
    "time_us": "microseconds",
    "pct_peak": "% of datasheet peak",
    "pct_ceiling": "% of measured ceiling",
}

# Matplotlib has ten colours to go round; then the style of the line changes.
_COLOURS = 10
_LINE_STYLES = ("-", "--", ":", "-.")

#: From this arithmetic intensity on, FLOP/s say more of a kernel than GB/s.
FLOPS_PER_BYTE = 10


def plot(rows: Iterable[Row], path: Path, *, x: str | None = None, y: str | None = None) -> None:
    """Draw one line for each kernel variant into ``path`` (.png, .svg, .pdf).

    ``x`` names a dimension of the shape or a parameter, by default the numeric one with the most
    different values; ``y`` is one of `QUANTITIES`, by default TFLOP/s for rows that compute
    and GB/s for rows that move data.

    Raises:
        ArgumentError: no row has a speed, or ``x`` or ``y`` is not in the rows.
        MissingDependencyError: Matplotlib is not installed.
    """
    timed = [row for row in rows if row.status in TIMED_STATUSES and row.time_us]
    if not timed:
        raise ArgumentError("nothing to plot: no row has a time (emulated devices have no clock)")
    x = _choose_x(timed, x)
    y = _choose_y(timed, y)
    figure = new_figure("gpukit plot")
    axes = figure.add_subplot()
    lines = series(timed, x, y)
    for index, (label, points) in enumerate(lines.items()):
        style = _LINE_STYLES[index // _COLOURS % len(_LINE_STYLES)]
        axes.plot([*points], [*points.values()], style, marker="o", markersize=4, label=label)
    _decorate(axes, timed, x, QUANTITIES[y])
    heights = [height for points in lines.values() for height in points.values()]
    axes.set_ylim(0, 1.05 * max(heights, default=1.0))
    figure.legend(loc="outside right upper", fontsize="small")
    try:
        figure.savefig(path, dpi=150)
    except (OSError, ValueError) as problem:
        raise ArgumentError(f"--out {path}: {problem}") from problem


def series(rows: Sequence[Row], x: str, y: str) -> dict[str, dict[float, float]]:
    """Return the lines to draw: label to points, each x to its y, in increasing x."""
    varying = _varying(rows, x)
    lines: dict[str, dict[float, float]] = {}
    for row in rows:
        values, height = _values(row), getattr(row, y)
        if _is_number(values.get(x)) and height is not None:
            label = " ".join(str(values[name]) for name in varying if name in values)
            lines.setdefault(label or row.family, {})[values[x]] = height
    return {label: dict(sorted(points.items())) for label, points in lines.items()}


def _values(row: Row) -> dict[str, Any]:
    """Return all that tells rows apart, by name."""
    who = {"family": row.family, "device": row.device, "kernel": row.kernel, "dtype": row.dtype}
    how = {"l2": row.l2, "method": row.method, "load": row.load}
    return {**who, **row.shape, **row.params, **how}


def _varying(rows: Sequence[Row], x: str) -> list[str]:
    """Return the names whose values differ between rows, ``x`` and what moves with it aside."""
    names = dict.fromkeys(name for row in rows for name in _values(row) if name != x)
    several = [n for n in names if len({_values(row).get(n) for row in rows}) > 1]
    return [n for n in several if not _follows(n, x, rows)]


def _follows(name: str, x: str, rows: Sequence[Row]) -> bool:
    """Whether a dimension is set by ``x``, as in square matrices."""
    pairs = {(row.shape.get(x), row.shape.get(name)) for row in rows}
    return None not in {n for _, n in pairs} and len(pairs) == len({a for a, _ in pairs})


def _choose_x(rows: Sequence[Row], x: str | None) -> str:
    counts = {
        name: len({_values(row).get(name) for row in rows})
        for name in dict.fromkeys(name for row in rows for name in _numeric(row))
    }
    if not counts:
        raise ArgumentError("nothing to plot against: the rows have no numeric dimension")
    if x is not None and x not in counts:
        raise ArgumentError(f"--x {x!r} is not in the rows; there is {', '.join(counts)}")
    return x or max(counts, key=lambda name: counts[name])


def _numeric(row: Row) -> list[str]:
    values = {**row.shape, **row.params}
    return [name for name, value in values.items() if _is_number(value)]


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _choose_y(rows: Sequence[Row], y: str | None) -> str:
    if y is not None and y not in QUANTITIES:
        raise ArgumentError(f"--y {y!r} is not one of {', '.join(QUANTITIES)}")
    y = y or _natural_y(rows)
    if all(getattr(row, y) is None for row in rows):
        raise ArgumentError(f"--y {y!r}: no row has it")
    return y


def _natural_y(rows: Sequence[Row]) -> str:
    """Return TFLOP/s for rows that compute much per byte, GB/s for those that move data."""
    rates = [(row.tflops or 0.0, row.gbs or 0.0) for row in rows]
    tflops, gbs = max(tflops for tflops, _ in rates), max(gbs for _, gbs in rates)
    if tflops and 1e3 * tflops >= FLOPS_PER_BYTE * gbs:
        return "tflops"
    return "gbs" if gbs else "time_us"


def new_figure(purpose: str, width: float = 9, height: float = 5) -> Any:
    """Return an empty Matplotlib figure of so many inches.

    Raises:
        MissingDependencyError: Matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure  # no pyplot: no display, no global state
    except ImportError:
        raise missing("Matplotlib", "plot", purpose) from None
    return Figure(figsize=(width, height), layout="constrained")


def _decorate(axes: Any, rows: Sequence[Row], x: str, ylabel: str) -> None:
    devices = ", ".join(dict.fromkeys(row.device for row in rows))
    families = ", ".join(dict.fromkeys(row.family for row in rows))
    axes.set_title(f"{families} on {devices}")
    axes.set_xlabel(x)
    axes.set_ylabel(ylabel)
    if min(_positions(rows, x)) > 0:
        axes.set_xscale("log", base=2)
    axes.grid(alpha=0.3)


def _positions(rows: Sequence[Row], x: str) -> list[float]:
    return [values[x] for values in map(_values, rows) if _is_number(values.get(x))]
