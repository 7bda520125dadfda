"""``gpukit plot``."""

from __future__ import annotations

from pathlib import Path

import click

from . import terminal
from .options import PATH


@click.command()
@click.argument("file", type=PATH)
@click.option("--out", type=PATH, help="Picture to write (.png, .svg, .pdf); FILE's name + .png.")
@click.option("--x", help="Dimension or parameter along the bottom.")
@click.option("--y", help="gbs, tflops, time_us, pct_peak or pct_ceiling.")
@click.option("--roofline", type=PATH, metavar="CEILINGS",
              help="Draw TFLOPS against FLOP per byte, under the roofs of this result of `gpukit "
              "bench ceilings`.")
def plot(file: Path, out: Path | None, x: str | None, y: str | None,
         roofline: Path | None) -> None:
    """Draw the result FILE (.json or .csv): speed against problem size, a line per variant."""
    from gpukit.bench.plot import plot as draw
    from gpukit.bench.roofline import plot_roofline
    from gpukit.bench.store import read_rows

    picture = out or Path(file).with_suffix(".png")
    if roofline is None:
        draw(read_rows(file), picture, x=x, y=y)
    elif x is not None or y is not None:
        raise click.UsageError("--x and --y say what to draw without --roofline")
    else:
        plot_roofline(read_rows(file), read_rows(roofline), picture)
    terminal.warn(f"wrote {picture}")
