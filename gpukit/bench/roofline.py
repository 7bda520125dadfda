"""A roofline from measured ceilings: what rows reach, under what the parts do by themselves.

The roofs come from a result of `gpukit bench ceilings` of the same model of GPU: memory by reading
DRAM and L2, tensor cores by wgmma on random data. They are what hardware did, not what a datasheet
promises; `gpukit.measure.peaks` has the latter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpukit.bench.model import TIMED_STATUSES, Row
from gpukit.errors import ArgumentError

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes

_MEMORY = {"ceilings.dram": "DRAM", "ceilings.l2": "L2"}


@dataclass(frozen=True)
class Roofs:
    """Measured ceilings of one GPU: GB/s of ``memory`` by name, TFLOPS of ``tensor`` by dtype."""

    device: str
    memory: Mapping[str, float]
    tensor: Mapping[str, float]

    @classmethod
    def of(cls, rows: Iterable[Row]) -> Roofs:
        """The best of the rows of `gpukit bench ceilings`: reads, and wgmma on random data.

        Raises `ArgumentError` when no row is one, or when they are of several GPUs.
        """
        timed = [row for row in rows if row.family == "ceilings" and row.status in TIMED_STATUSES]
        devices = {row.device for row in timed}
        if len(devices) != 1:
            raise ArgumentError("the ceilings must be timed rows of `gpukit bench ceilings` of one "
                                f"GPU; found {', '.join(sorted(devices)) or 'none'}")
        reads = [(_MEMORY[row.kernel], row.gbs) for row in timed
                 if row.kernel in _MEMORY and row.params.get("op") == "read"]
        products = [(row.dtype, row.tflops) for row in timed
                    if row.kernel == "ceilings.wgmma" and row.params.get("data") == "random"]
        return cls(devices.pop(), _best(reads), _best(products))

    def attainable(self, dtype: str, flops_per_byte: float) -> float:
        """TFLOPS that DRAM and the tensor cores allow; `ArgumentError` for an unknown dtype."""
        if dtype not in self.tensor:
            raise ArgumentError(f"dtype={dtype!r}: {self.device} has measured ceilings for "
                                f"{', '.join(self.tensor) or 'none'}")
        slope = self.memory.get("DRAM", float("inf"))
        return min(self.tensor[dtype], slope * flops_per_byte / 1e3)


def _best(rates: Iterable[tuple[str, float | None]]) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, rate in rates:
        found[name] = max(found.get(name, 0.0), rate or 0.0)
    return {name: rate for name, rate in found.items() if rate}


def plot_roofline(rows: Iterable[Row], ceilings: Iterable[Row], path: Path) -> None:
    """Draw rows that compute and move data as points under the measured roofs.

    Raises:
        ArgumentError: no such row, ceilings of another GPU, or a file that cannot be written.
        MissingDependencyError: Matplotlib is not installed.
    """
    from gpukit.bench.plot import new_figure

    roofs = Roofs.of(ceilings)
    points = [row for row in rows if row.status in TIMED_STATUSES and row.tflops and row.gbs]
    if not points:
        raise ArgumentError("nothing to plot: no row has both TFLOPS and GB/s")
    if {row.device for row in points} != {roofs.device}:
        raise ArgumentError(f"the ceilings are of {roofs.device}, the rows of "
                            f"{', '.join(sorted({row.device for row in points}))}")
    figure = new_figure("gpukit plot --roofline")
    axes = figure.add_subplot()
    _draw_roofs(axes, roofs, points)
    _draw_points(axes, points)
    _decorate(axes, roofs)
    figure.legend(loc="outside right upper", fontsize="small")
    try:
        figure.savefig(path, dpi=150)
    except (OSError, ValueError) as problem:
        raise ArgumentError(f"--out {path}: {problem}") from problem


def intensity(row: Row) -> float:
    """FLOP per byte that the problem must move."""
    assert row.tflops and row.gbs
    return 1e3 * row.tflops / row.gbs


def _draw_roofs(axes: Axes, roofs: Roofs, points: Sequence[Row]) -> None:
    used = {row.dtype for row in points}
    flat = {name: rate for name, rate in roofs.tensor.items() if name in used} or roofs.tensor
    top = max(flat.values(), default=1e3)
    left = min(1.0, *(intensity(row) for row in points)) / 2
    right = 4 * max(1e3 * top / min(roofs.memory.values(), default=1e3),
                    *(intensity(row) for row in points))
    for name, rate in roofs.memory.items():
        ridge = 1e3 * top / rate
        axes.plot([left, ridge], [rate * left / 1e3, top], "-", color="0.4" if name == "DRAM" else
                  "0.7", label=f"{name} read, {rate:.0f} GB/s")
    for (name, rate), style in zip(flat.items(), ("-", "--", ":", "-.") * 4, strict=False):
        axes.plot([1e3 * rate / max(roofs.memory.values(), default=1e3), right], [rate, rate],
                  style, color="black", label=f"wgmma {name}, {rate:.0f} TFLOPS")


def _draw_points(axes: Axes, points: Sequence[Row]) -> None:
    by_label: dict[str, list[Row]] = {}
    for row in points:
        by_label.setdefault(f"{row.kernel} {row.dtype}", []).append(row)
    for label, some in by_label.items():
        axes.plot([intensity(row) for row in some], [row.tflops or 0.0 for row in some], "o",
                  markersize=5, label=label)


def _decorate(axes: Any, roofs: Roofs) -> None:
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=10)
    axes.set_xlabel("FLOP per byte that the problem must move")
    axes.set_ylabel("TFLOP/s")
    axes.set_title(f"{roofs.device}, under ceilings measured on it")
    axes.grid(alpha=0.3, which="both")
