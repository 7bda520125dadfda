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
def plot(file: Path, out: Path | None, x: str | None, y: str | None) -> None:
    """Draw the result FILE (.json or .csv): speed against problem size, a line per variant."""
    from gpukit.bench.plot import plot as draw
    from gpukit.bench.store import read_rows

    picture = out or Path(file).with_suffix(".png")
    draw(read_rows(file), picture, x=x, y=y)
    terminal.warn(f"wrote {picture}")
