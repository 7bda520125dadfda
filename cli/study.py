"""``gpukit study``: designed measurements, and a report of the answers computed from them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpukit.errors import ArgumentError, MissingDependencyError

from . import terminal
from .lazy import LazyGroup
from .main import FAILED, INTERRUPTED, OK
from .options import PATH, Seconds
from .outputs import writing
from .table import Field, print_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpukit.bench.model import Case, Target
    from gpukit.bench.store import Store
    from gpukit.study.turns import Turn

#: Seconds of measuring unless told otherwise: the whole study, and the quick one.
_BUDGET_S, _QUICK_S = 120.0, 25.0
_ROWS, _FACTS, _REPORT = "rows.json", "facts.json", "report.md"


STUDIES = {"elementwise": ("gpukit_cli.study:elementwise",
                           "L2, grids, access widths, counters, SMs, and the library's rule.")}


@click.group(cls=LazyGroup, commands=STUDIES)
def study() -> None:
    """Answer a list of questions about this GPU, each from rows measured for it."""


@click.command()
@click.option("--device", default="auto", show_default=True, help="cuda:0, 1, emu:h100, ...")
@click.option("--quick", is_flag=True, help="Fewer sizes, ops and launches; about a minute.")
@click.option("--budget", type=Seconds(), show_default=f"{_BUDGET_S:g}, {_QUICK_S:g} with --quick",
              help="Time for all measurements, compiling aside.")
@click.option("--out", type=PATH, help=f"Folder for {_ROWS}, {_FACTS}, {_REPORT} and the figures.")
@click.option("--resume", is_flag=True, help="Measure only what the folder does not hold yet.")
@click.option("--force", is_flag=True, help="Measure everything anew.")
@click.option("--report-only", is_flag=True, help="Report on what the folder holds; needs no GPU.")
@click.option("--sass-only", is_flag=True,
              help="Count the instructions of a loop turn and no more; needs no GPU.")
@click.option("--arch", "archs", multiple=True, metavar="ARCH",
              help="What --sass-only counts for, sm_80 say; repeatable.")
@click.option("--listing", is_flag=True, help="With --sass-only, print the instructions as well.")
@click.option("--dry-run", is_flag=True, help="List the cases.")
def elementwise(device: str, quick: bool, budget: float | None, out: Path | None, resume: bool,
                force: bool, report_only: bool, sass_only: bool, archs: tuple[str, ...],
                listing: bool, dry_run: bool) -> int:
    """Elementwise bandwidth: L2, grids, access widths, counters, one SM, and the library's rule.

    Measures (on an emulated device: counts) every case, then writes a report whose conclusions
    are computed from the rows. Without --out the report goes to standard output.
    """
    if (archs or listing) and not sass_only:
        raise ArgumentError("--arch and --listing go with --sass-only")
    if sass_only and out is not None:
        raise ArgumentError("--sass-only prints a table and writes nothing: leave out --out")
    if sass_only:
        return _count_turns(archs, listing)
    if report_only:
        return _report_only(out)
    if out is None and resume:
        raise ArgumentError("--resume needs --out FOLDER, the folder to continue")
    if out is not None and out.is_file():
        raise ArgumentError(f"--out {out} is a file; the study needs a folder")
    return _study(device, quick, budget or (_QUICK_S if quick else _BUDGET_S), out, resume, force,
                  dry_run)


def _study(device: str, quick: bool, budget: float, out: Path | None, resume: bool, force: bool,
           dry_run: bool) -> int:
    from gpukit.bench.store import open_store
    from gpukit.bench.target import open_target

    target = open_target(device)
    cases = _cases(target, quick)
    if dry_run:
        click.echo("\n".join(case.key for case in cases))
        return OK
    store = open_store(out and out / _ROWS, resume=resume, force=force)
    if not target.timed:
        terminal.warn("emulated GPU: instructions, sectors and bytes are counted; there is no "
                      "clock, and what needs one stays unanswered")
    facts = _facts(target)
    _require_match(store.rows, facts, out)
    if out is not None:  # before the rows: whatever ends the run, they can be reported on
        _write(out / _FACTS, json.dumps(facts, indent=1) + "\n")
    if not _run(cases, target, store, budget):
        return INTERRUPTED
    _report(store.rows, facts, out)
    return _exit_code(store)


def _cases(target: Target, quick: bool) -> list[Case]:
    from gpukit.study import design

    if not target.timed:
        return design.emulated_cases()
    return design.cases(target.device.properties, design.QUICK if quick else design.FULL)


def _run(cases: Sequence[Case], target: Target, store: Store, budget: float) -> bool:
    """Run the study; return whether it came to its end."""
    from gpukit.study.run import run_study

    from .progress import SweepProgress

    progress = SweepProgress()
    try:
        with progress:
            run_study(cases, target, store, progress, budget, ("gpukit", *sys.argv[1:]))
    except KeyboardInterrupt:
        hint = "; --resume runs the rest, --report-only reports on these" if store.resumable else ""
        terminal.warn(f"gpukit: interrupted, {len(progress.rows)} of {len(cases)} cases done{hint}")
        return False
    return True


def _facts(target: Target) -> dict[str, Any]:
    from gpukit.study.facts import gather

    return gather(target)


def _exit_code(store: Store) -> int:
    bad = [row for row in store.rows if row.status in ("wrong", "error")]
    for row in bad[:5]:
        terminal.warn(f"gpukit: error: {row.case_key}: {row.message}")
    return FAILED if bad else OK


def _report_only(out: Path | None) -> int:
    from gpukit.bench.store import read_rows

    if out is None:
        raise ArgumentError("--report-only needs --out FOLDER, the folder to report on")
    rows = read_rows(out / _ROWS)
    try:
        facts = json.loads((out / _FACTS).read_text(encoding="utf-8"))
    except (OSError, ValueError) as problem:
        raise ArgumentError(f"--out {out}: {_FACTS} cannot be read: {problem}") from problem
    _require_match(rows, facts, out)
    _report(rows, facts, out)
    return OK


def _require_match(rows: Sequence[Any], facts: Any, out: Path | None) -> None:
    """Refuse rows of one device with facts of another."""
    from gpukit.study.facts import mismatch

    if reason := mismatch(rows, facts):
        raise ArgumentError(f"--out {out}: {reason}")


def _report(rows: Sequence[Any], facts: dict[str, Any], out: Path | None) -> None:
    """Write the report and its figures, or print it without."""
    from gpukit.study.report import report

    if out is None:
        click.echo(report(rows, facts, {}), nl=False)
        return
    _write(out / _REPORT, report(rows, facts, _figures(rows, facts, out)))
    terminal.warn(f"wrote {out / _REPORT}")


def _figures(rows: Sequence[Any], facts: dict[str, Any], out: Path) -> dict[str, str]:
    """Draw what there is to draw; without Matplotlib the report has no figures."""
    from gpukit.study.figures import draw

    try:
        return draw(rows, facts, out)
    except MissingDependencyError as problem:
        terminal.warn(f"no figures: {problem}")
        return {}


def _write(path: Path, text: str) -> None:
    from gpukit.bench.store import replace_text

    with writing("--out ", path):
        replace_text(path, text)


def _count_turns(archs: tuple[str, ...], listing: bool) -> int:
    from gpukit.study.turns import ARCHS, count_turns

    turns = count_turns(archs or ARCHS)
    print_table(_turn_fields(turns))
    if listing:
        for turn in turns:
            title = f"{turn.kernel} {turn.arch} vec {turn.vec} {turn.index}"
            click.echo("\n  ".join((f"\n{title}", *turn.listing)))
    return OK


def _turn_fields(turns: Sequence[Turn]) -> list[Field]:
    from gpukit.study.turns import published_turns

    columns: dict[str, list[Any]] = {
        "kernel": [turn.kernel for turn in turns],
        "arch": [turn.arch for turn in turns],
        "vec": [turn.vec for turn in turns],
        "index": [turn.index for turn in turns],
        "instructions": [turn.instructions for turn in turns],
        "published": [published_turns(turn) or "-" for turn in turns],
        "bytes": [turn.bytes for turn in turns],
    }
    return [Field(name, tuple(map(str, cells)), name not in ("kernel", "arch", "index"))
            for name, cells in columns.items()]
