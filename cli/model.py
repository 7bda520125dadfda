"""``gpukit model``."""

from __future__ import annotations

import json
from pathlib import Path

import click

from .options import PATH
from .outputs import check_outputs, writing
from .table import Field, print_table

#: Measured on an H200 and committed; an installed package has none.
_LADDER = Path(__file__).resolve().parents[1] / "results" / "h200" / "matmul_ladder.json"
_HEADER = ("gpu", "rung", "bound", "model_us", "model_TFLOPS", "known_TFLOPS", "known", "error_%")
_OUT = "--out "
_WORDS = ("gpu", "bound", "known")


@click.command()
@click.argument("family", type=click.Choice(["matmul"]))
@click.option("--ladder", type=PATH, default=_LADDER, show_default="the committed one",
              help="Results of `gpukit bench matmul --kernel all --shape 4096` on an H200.")
@click.option("--out", type=PATH, help="Also write everything to this file, as JSON.")
def model(family: str, ladder: Path, out: Path | None) -> None:
    """Model how long the rungs of both ladders take at 4096^3.

    Counters of the emulator over rates of the GPU. What nobody publishes is fitted to the ladder
    measured on an H200 and carried over to a B200. A model, not a measurement: its error stands
    in the table.
    """
    from gpukit.bench.store import replace_text
    from gpukit.bench.timemodel.table import model as modelled
    from gpukit.errors import ArgumentError

    if not ladder.is_file():
        hint = "; the committed one comes with the repository only" if ladder == _LADDER else ""
        raise ArgumentError(f"--ladder: there is no {ladder}{hint}")
    if out is not None:
        check_outputs([(_OUT, out)], ladder, "the measured ladder")
    found = modelled(ladder, lambda text: click.echo(text, err=True))
    cells = [tuple(str(row.get(name, "-")) for row in found["rows"]) for name in _HEADER]
    print_table([Field(name, column, name not in _WORDS)
                 for name, column in zip(_HEADER, cells, strict=True)])
    if out is not None:
        with writing(_OUT, out):
            replace_text(out, json.dumps(found, indent=1) + "\n")
