"""The options of ``gpukit bench FAMILY``: one for each axis, then those that all families share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from gpukit.bench.axes import Choices

from .options import PATH, Parsed, Seconds
from .output import FORMATS, SORTS

if TYPE_CHECKING:
    from gpukit.bench.model import Axis, Family

L2_STATES = ("flush", "rotate", "hot")
METHODS = ("events", "graph", "cupti")
LOADS = ("burst", "sustained")
#: Seconds of load before the samples of a sustained row, unless told otherwise.
SUSTAIN_S = 3.0


def key(axis: Axis) -> str:
    """Return the parameter name of an axis; no common option can have it."""
    return f"axis_{axis.name}"


def axis_option(axis: Axis) -> click.Option:
    """Return ``--<name>``: repeatable, every value a comma list."""
    between = "/" if "/" in axis.metavar else "x"
    default = ",".join(_shown(value, between) for value in axis.default)
    return click.Option(
        [f"--{axis.name.replace('_', '-')}", key(axis)],
        type=Parsed(axis.parse, axis.metavar),
        multiple=True,
        help=f"{axis.help}  [default: {default}]" if default else axis.help,
        hidden=axis.hidden,
    )


def _shown(value: Any, between: str) -> str:
    return between.join(map(str, value)) if isinstance(value, tuple) else str(value)


def common_options(family: Family) -> list[click.Option]:
    """Return the options that do not come from axes."""
    return [*_measuring_options(family), *_load_options(), *_result_options()]


def _measuring_options(family: Family) -> list[click.Option]:
    peers = ", ".join(family.peers) or "this family has none"
    return [
        click.Option(["--device"], default="auto", show_default=True, help="cuda:0, 1, ..."),
        click.Option(
            ["--l2"],
            type=Parsed(Choices(L2_STATES), "STATE[,...]"),
            multiple=True,
            help="Cold by flush (default; rotate with --method graph), cold by rotate, or hot.",
        ),
        click.Option(["--bust-cache"], is_flag=True, help="The same as --l2 rotate."),
        click.Option(["--hot"], is_flag=True, help="The same as --l2 hot."),
        click.Option(
            ["--method", "methods"],
            type=Parsed(Choices(METHODS), "METHOD[,...]"),
            multiple=True,
            help="How to time: events (default), graph or cupti.",
        ),
        click.Option(
            ["--peer", "peers"],
            type=Parsed(Choices((*family.peers, "none")), "NAME[,...]"),
            multiple=True,
            help=f"Peers to time beside ours: {peers}, none or all (default).",
        ),
        click.Option(
            ["--budget"],
            type=Seconds(),
            default=1.0,
            show_default=True,
            help="Time for the samples of one case and each of its peers.",
        ),
        click.Option(
            ["--timeout"],
            type=Seconds(),
            help="Give a case up after this long; its row is incomplete.",
        ),
        click.Option(
            ["--isolate/--no-isolate"],
            default=True,
            help="Run cases in a worker process (default), or in this one to debug.",
        ),
    ]


def _load_options() -> list[click.Option]:
    return [
        click.Option(
            ["--load", "loads"],
            type=Parsed(Choices(LOADS), "LOAD[,...]"),
            multiple=True,
            help="burst (default): timed at once; sustained: after seconds of the same work, ours "
            "and the peers in turns, so that clocks and power settle.",
        ),
        click.Option(
            ["--sustained"],
            type=Seconds(),
            help=f"Seconds of load before sustained rows [default: {SUSTAIN_S:g}]; without --load, "
            "both kinds of rows.",
        ),
    ]


def _result_options() -> list[click.Option]:
    return [
        click.Option(
            ["--out"],
            type=PATH,
            help="Write rows to this .json, .csv or .md file as they finish.",
        ),
        click.Option(["--resume"], is_flag=True, help="Run only what --out does not hold yet."),
        click.Option(["--force"], is_flag=True, help="Replace the file of --out."),
        click.Option(
            ["--format", "how"],
            type=click.Choice(FORMATS),
            default="table",
            show_default=True,
            help="Of the rows on standard output.",
        ),
        click.Option(["--sort"], type=click.Choice(list(SORTS)), help="Order rows, best first."),
        click.Option(
            ["--published"],
            is_flag=True,
            help="Show figures of others: below, and those of ladder rungs beside our rows too.",
        ),
        click.Option(
            ["--counters"], is_flag=True, help="Show every counter below (emulated devices)."
        ),
        click.Option(["--explain"], is_flag=True, help="Say what the columns mean."),
        click.Option(["--dry-run"], is_flag=True, help="List the cases; needs no GPU."),
    ]
