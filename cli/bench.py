"""``gpukit bench FAMILY``: options made from the family's axes, then the sweep."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import click

from gpukit.errors import ArgumentError, GpukitError

from . import terminal
from .bench_options import LOADS, SUSTAIN_S, axis_option, common_options, key
from .lazy import NamedGroup
from .main import FAILED, INTERRUPTED, OK, USAGE
from .options import merged

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from gpukit.bench.columns import Column
    from gpukit.bench.execute import CaseOptions
    from gpukit.bench.model import Case, Family, Row
    from gpukit.bench.store import Store


class FamilyGroup(NamedGroup):
    """One command for each family there is."""

    kind = "family"

    def names(self) -> Collection[str]:
        from gpukit.bench.families import families

        return families().keys()

    def summaries(self) -> Mapping[str, str]:
        return {name: _summary(name) for name in self.names()}

    def load(self, name: str) -> click.Command:
        from gpukit.bench.families import load_family

        return family_command(load_family(name))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        return super().resolve_command(ctx, _respelled(args))


def _respelled(args: list[str]) -> list[str]:
    """`attention --decode` is `attention-decode`, and its `--paged` is `--page 16`."""
    if args[:1] == ["attention"] and "--decode" in args:
        args = ["attention-decode", *(word for word in args[1:] if word != "--decode")]
    if args[:1] == ["attention-decode"] and "--paged" in args:
        args = [*(word for word in args if word != "--paged"), "--page", "16"]
    return args


def _summary(name: str) -> str:
    """Return a family's line of help; one that does not load must not hide the others."""
    from gpukit.bench.families import load_family

    try:
        return load_family(name).summary
    except GpukitError as problem:
        return str(problem)


@click.group(
    cls=FamilyGroup,
    epilog="GPUKIT_FAMILIES='name=module:attribute' adds a family of your own; so does the entry "
    "point group gpukit.families.",
)
def bench() -> None:
    """Measure a family of kernels: every case checked before and after it is timed."""


def family_command(family: Family) -> click.Command:
    """Return the command of one family."""

    def run(**values: Any) -> int:
        selection = {axis.name: merged(values.pop(key(axis))) for axis in family.axes}
        return _bench(family, {k: v for k, v in selection.items() if v}, **values)

    axes, common = [*map(axis_option, family.axes)], common_options(family)
    taken = {name for option in common for name in option.opts}
    for axis in axes:
        if axis.opts[0] in taken:
            raise ArgumentError(
                f"family {family.name!r}: {axis.opts[0]} is a common option; "
                "its axis needs another name"
            )
    return click.Command(family.name, callback=run, params=[*axes, *common], help=family.summary)


def _bench(
    family: Family,
    selection: dict[str, tuple[Any, ...]],
    *,
    l2: tuple[tuple[str, ...], ...],
    bust_cache: bool,
    hot: bool,
    methods: tuple[tuple[str, ...], ...],
    peers: tuple[tuple[str, ...], ...],
    budget: float,
    loads: tuple[tuple[str, ...], ...],
    sustained: float | None,
    how: str,
    sort: str | None,
    published: bool,
    counters: bool,
    explain: bool,
    dry_run: bool,
    out: Path | None,
    resume: bool,
    force: bool,
    **running: Any,
) -> int:
    from gpukit.bench.runner import select_cases
    from gpukit.bench.store import open_store

    chosen = merged(methods) or ("events",)
    states = _states(merged(l2), chosen, bust_cache=bust_cache, hot=hot)
    emulated = _emulated(family, running["device"], dry_run)
    if counters:
        _check_counters(emulated or dry_run, running["device"], how)
    when = merged(loads) or (LOADS if sustained else LOADS[:1])
    cases = select_cases(family, selection, states, chosen, when, emulated=emulated)
    options = _case_options(family, merged(peers), budget, sustained or SUSTAIN_S)
    if dry_run:
        return _list_cases(cases, options, how)
    store = open_store(out, resume=resume, force=force)
    if emulated:
        terminal.warn("emulated GPU: results are checked and counted, not timed")
    rows, interrupted = _sweep(family, cases, options, store, **running)
    _print(rows, how, sort, published)
    if counters and how == "table":
        _print_counters(rows)
    if explain:
        _explain(rows, how)
    if published:
        _print_published(family.name, how)
    return INTERRUPTED if interrupted else _exit_code(rows)


def _emulated(family: Family, device: str, dry_run: bool) -> bool:
    """Return whether the sweep runs on the emulator; a dry run does not look for a GPU."""
    return not (dry_run and device == "auto") and family.emulated(device)


def _check_counters(emulated: bool, device: str, how: str) -> None:
    """Refuse to count on hardware; rows in full hold their counters anyway."""
    from gpukit.devices.models import MODELS

    if not emulated:
        known = " or ".join(f"emu:{name}" for name in MODELS)
        raise ArgumentError(f"--counters: {device} is hardware and does not count; use {known}")
    if how == "markdown":
        terminal.warn("--counters: every counter is in --format table, csv and json only")


def _states(
    l2: tuple[str, ...], methods: tuple[str, ...], *, bust_cache: bool, hot: bool
) -> tuple[str, ...]:
    """Return the L2 states asked for; by default cold, in the way that the method allows."""
    states = (*l2, *(["rotate"] if bust_cache else []), *(["hot"] if hot else []))
    return tuple(dict.fromkeys(states)) or (("rotate",) if methods == ("graph",) else ("flush",))


def _case_options(
    family: Family, peers: tuple[str, ...], budget: float, sustain_s: float
) -> CaseOptions:
    from gpukit.bench.execute import CaseOptions
    from gpukit.measure import TimingOptions

    wanted = tuple(name for name in peers or family.peers if name != "none")
    debug = bool(click.get_current_context().obj.debug)
    return CaseOptions(TimingOptions(budget_s=budget, sustain_s=sustain_s), wanted, debug)


def _sweep(
    family: Family,
    cases: Sequence[Case],
    options: CaseOptions,
    store: Store,
    *,
    device: str,
    isolate: bool,
    timeout: float | None,
) -> tuple[list[Row], bool]:
    """Run the sweep; return its rows in the order of the cases, and whether it was cut short."""
    from gpukit.bench.runner import SweepOptions, run_sweep

    from .progress import SweepProgress

    command = ("gpukit", *sys.argv[1:])
    sweep = SweepOptions(options, device, isolate, timeout, command)
    progress = SweepProgress()
    try:
        with progress:
            run_sweep(family, cases, sweep, store, progress)
    except KeyboardInterrupt:
        done = f"{len(progress.rows)} of {progress.total or len(cases)} cases done"
        hint = "; --resume runs the rest" if store.resumable else ""
        terminal.warn(f"gpukit: interrupted, {done}{hint}")
        return _in_order(cases, progress.rows.values()), True
    return _in_order(cases, progress.rows.values()), False


def _in_order(cases: Sequence[Case], rows: Any) -> list[Row]:
    by_case = {row.case_key: row for row in rows}
    return [by_case[case.key] for case in cases if case.key in by_case]


def _print(rows: Sequence[Row], how: str, sort: str | None, published: bool) -> None:
    from .output import ordered, print_rows

    print_rows(ordered(rows, sort), how, _published_beside(rows) if published else ())


def _published_beside(rows: Sequence[Row]) -> Sequence[Column]:
    """Return the figures of others that belong to single rows."""
    from gpukit.bench.published import published, published_column

    column = published_column(rows, published() or ())
    return () if column is None else (column,)


def _print_counters(rows: Sequence[Row]) -> None:
    """Print every counter of the rows that have any."""
    from gpukit.bench.counters import counter_columns

    from .output import print_columns

    counted = [row for row in rows if row.counters]
    if counted:
        click.echo()
        print_columns(counted, counter_columns(counted))


def _explain(rows: Sequence[Row], how: str) -> None:
    """Say what the columns mean: below a table, but never within data."""
    from gpukit.bench.columns import legend

    for header, meaning in legend(rows).items():
        click.echo(f"{header:<8}  {meaning}", err=how != "table")


def _print_published(family: str, how: str) -> None:
    from gpukit.bench.published import PATH as TABLE
    from gpukit.bench.published import published

    from .output import print_published

    figures = published(family)
    if how != "table":
        terminal.warn("--published: figures of others are shown with --format table only")
    elif figures is None:
        terminal.warn(f"--published: {TABLE} is not there; it comes with the repository only")
    elif figures:
        print_published(figures)
    else:
        terminal.warn(f"--published: nothing published for {family}")


def _list_cases(cases: Sequence[Case], options: CaseOptions, how: str) -> int:
    from gpukit.bench.runner import estimate_seconds

    from .progress import plan

    if how == "json":
        click.echo(json.dumps([vars(case) for case in cases], indent=1))
    else:
        click.echo("\n".join(case.key for case in cases))
    terminal.warn(plan(len(cases), estimate_seconds(cases, options)))
    return OK


def _exit_code(rows: Sequence[Row]) -> int:
    """Return 1 when a case failed, 2 when none could run at all, and 0 otherwise."""
    statuses = {row.status for row in rows}
    if statuses & {"wrong", "error", "incomplete"}:
        return FAILED
    if statuses == {"unsupported"}:
        terminal.warn(f"gpukit: error: {rows[0].message}")
        return USAGE
    return OK
