"""``gpukit compare``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from gpukit.bench.columns import NOTHING, number

from .main import FAILED, OK
from .options import PATH, Share
from .table import Field, print_table

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from gpukit.bench.compare import Change, Comparison


@click.command()
@click.argument("old", type=PATH)
@click.argument("new", type=PATH)
@click.option(
    "--noise", type=Share(), default=0.01, help="Change that is no change.  [default: 1%]"
)
@click.option(
    "--fail-over",
    type=Share(),
    default=0.0,
    help="Fail only when a case is slower by more.  [default: any SLOWER fails]",
)
@click.option("--across-devices", is_flag=True, help="Match cases whatever device they ran on.")
@click.option("--format", "how", type=click.Choice(["table", "json"]), default="table")
def compare(
    old: Path, new: Path, noise: float, fail_over: float, across_devices: bool, how: str
) -> int:
    """Compare the results OLD and NEW (.json) case by case.

    FASTER and SLOWER: the whole 95 % interval of the ratio of medians lies beyond the noise.
    SAME: all of it lies within. AMBIGUOUS: neither. BROKEN: the case passed, and now does not or
    lost its speed. MISSING: it passed, and NEW lacks it. FIXED: it did not pass, and now does.
    UNMEASURED: it passes in neither. Cases without a time (emulated devices) are SAME or CHANGED
    by their counters.

    Exits 1 when a case is SLOWER (by more than --fail-over), BROKEN or MISSING, and when no case
    could be compared at all.
    """
    from gpukit.bench import compare as comparing
    from gpukit.bench.model import Row
    from gpukit.bench.store import read_samples

    documents = [read_samples(path) for path in (old, new)]
    before, after = ([Row.from_dict(row) for row in d["rows"]] for d in documents)
    result = comparing.compare(before, after, noise=noise, across_devices=across_devices)
    environments = [document.get("environments", {}) for document in documents]
    differences = comparing.environment_changes(environments[0], environments[1])
    if how == "json":
        click.echo(json.dumps(_document(result, differences, fail_over), indent=1))
    else:
        _print(result, differences, fail_over)
    return FAILED if result.failed(fail_over) else OK


def _print(result: Comparison, differences: dict[str, tuple[Any, Any]], fail_over: float) -> None:
    if result.changes:
        print_table(_fields(result.changes))
    for name, (before, after) in differences.items():
        click.echo(f"environment: {name} was {before}, is {after}")
    for label, keys in (("only in OLD", result.only_old), ("only in NEW", result.only_new)):
        for key in keys:
            click.echo(f"{label}: {key}")
    for change in result.regressions(fail_over):
        click.echo(f"regression: {change.key}: {_reason(change)}")
    if result.changes:
        click.echo(_totals(result))
    if result.empty:
        click.echo("nothing to compare: no case that passed in OLD or NEW is in the other")


def _fields(changes: Sequence[Change]) -> list[Field]:
    return [
        Field("verdict", tuple(change.verdict for change in changes)),
        Field("case", tuple(change.key for change in changes)),
        Field("old us", tuple(number(c.old.time_us, 3) for c in changes), True, 2),
        Field("new us", tuple(number(_new_time(c), 3) for c in changes), True, 2),
        Field("change %", tuple(_percent(change.ratio) for change in changes), True),
        Field("95 % interval", tuple(map(_interval, changes)), True, 1),
    ]


def _new_time(change: Change) -> float | None:
    return change.new.time_us if change.new else None


def _percent(ratio: float | None) -> str:
    return NOTHING if ratio is None else f"{100 * (ratio - 1):+.2f}"


def _interval(change: Change) -> str:
    if change.low is None or change.high is None:
        return NOTHING
    return f"{_percent(change.low)} to {_percent(change.high)}"


def _reason(change: Change) -> str:
    if change.new is None:
        return "not in NEW"
    if change.ratio is None:
        return f"{change.new.status}, {change.new.message or 'no speed'}"
    return f"{100 * (change.ratio - 1):.2f} % slower"


def _totals(result: Comparison) -> str:
    counts: dict[str, int] = {}
    for change in result.changes:
        counts[change.verdict] = counts.get(change.verdict, 0) + 1
    return ", ".join(f"{count} {verdict}" for verdict, count in counts.items())


def _document(
    result: Comparison, differences: dict[str, tuple[Any, Any]], fail_over: float
) -> dict[str, Any]:
    failed = {change.key for change in result.regressions(fail_over)}
    return {
        "changes": [
            {
                "key": change.key,
                "verdict": change.verdict,
                "ratio": change.ratio,
                "regression": change.key in failed,
            }
            for change in result.changes
        ],
        "failed": result.failed(fail_over),
        "only_old": list(result.only_old),
        "only_new": list(result.only_new),
        "environment": {name: list(pair) for name, pair in differences.items()},
    }
