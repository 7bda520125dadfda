"""``gpukit demo``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from . import terminal
from .lazy import LazyGroup
from .options import PATH
from .outputs import writing
from .table import Field, print_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpukit.demo import Found

_DEMOS = {"wgmma": ("gpukit_cli.demo:wgmma", "Find out where wgmma's elements lie.")}
_SAYS = {True: "as predicted", False: "DIFFERS"}


@click.command(cls=LazyGroup, commands=_DEMOS, name="demo")
def demo() -> None:
    """See what the hardware does, beside what it should do."""


@click.command()
@click.option("--case", "name", default="all", show_default=True, metavar="NAME",
              help="One of the cases of the table, with pictures of what was found, or all.")
@click.option("--device", default="auto", show_default=True, help="cuda:0, emu:h100, ...")
@click.option("--out", type=PATH, help="Write what was found to this .json file.")
def wgmma(name: str, device: str, out: Path | None) -> int:
    """Find out where wgmma takes A and B from and where it puts D.

    Every element gets a number that names its place; the multiplication shows which number is
    read where. The table says whether that is what the layout algebra predicts.
    """
    from gpukit import demo as demos

    found = demos.wgmma(name, device)
    _print(found)
    if len(found) == 1 and found[0].ok:
        _print_pictures(found[0])
    if out is not None:
        with writing("--out ", out):
            out.write_text(json.dumps([_plain(one) for one in found]) + "\n")
    return 0 if all(one.ok for one in found) else 1


def _print(found: Sequence[Found]) -> None:
    click.echo(f"wgmma on {found[0].device}: where the elements of D, A and B lie")
    cases = [one.case for one in found]
    print_table([
        Field("case", tuple(case.name for case in cases)),
        Field("instruction", tuple(f"{case.shape}.{case.acc}.{case.dtype}" for case in cases)),
        Field("swizzle", tuple(case.swizzle for case in cases), rank=1),
        Field("a", tuple(case.a for case in cases), rank=1),
        Field("b", tuple(case.b for case in cases), rank=1),
        *(Field(which, tuple(_SAYS[getattr(one, which.lower()).same] for one in found))
          for which in "DAB"),
    ])
    from gpukit.demo.pictures import differences

    for one in found:
        for line in differences(one):
            terminal.warn(f"{one.case.name}: {line}")


def _print_pictures(found: Found) -> None:
    from gpukit.demo.pictures import pictures

    from .grid import print_picture

    for picture in pictures(found):
        click.echo()
        print_picture(picture)


def _plain(found: Found) -> dict[str, Any]:
    """A result as JSON has it."""
    maps = {which: {"found": one.found.tolist(), "same": one.same}
            for which, one in (("d", found.d), ("a", found.a), ("b", found.b))}
    return {"case": vars(found.case), "device": found.device, "ok": found.ok, **maps}
