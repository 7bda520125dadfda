"""What ``gpukit emulate`` prints: faults with their source lines, counters, arrays."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from .table import Field, print_table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from gpukit.emulator import Counters, KernelFault
    from gpukit.emulator.source_text import SourceText
    from gpukit.emulator.trials import Trial

HOT_LINES = 10
QUOTED_LINES = 12
_GLOBAL, _SHARED = ("global_loads", "global_stores", "global_atomics"), (
    "shared_loads", "shared_stores", "shared_atomics")  # fmt: skip


def print_tables(
    trials: Sequence[Trial], arrays: Mapping[int, Any], folders: Sequence[Path], seed: int
) -> bool:
    """Print everything for people; returns whether something is wrong."""
    from gpukit.emulator.trials import differences

    for trial in trials:
        _print_trial(trial, folders, seed)
    unequal = differences(trials)
    for line in unequal:
        click.echo(line)
    for number, array in arrays.items():
        click.echo(f"args[{number}], {array.dtype} {list(array.shape)}:\n{array}")
    first = trials[0].result
    if first is not None:
        print_counters(first.counters, folders)
    return bool(unequal) or any(trial.fault for trial in trials)


def _print_trial(trial: Trial, folders: Sequence[Path], seed: int) -> None:
    schedule = f"policy {trial.policy}, seed {seed}"
    if trial.fault is not None:
        print_fault(trial.fault, folders, schedule)
    if trial.result is not None:
        printed = trial.result.output
        click.echo(printed, nl=bool(printed) and not printed.endswith("\n"))
        click.echo(f"{schedule}: ok")


def print_fault(fault: KernelFault, folders: Sequence[Path], schedule: str) -> None:
    """Print a report, then the text of the source lines that it names."""
    from gpukit.emulator.source_text import SourceText

    click.echo(f"{type(fault).__name__} ({schedule})\n{fault}")
    if fault.address is not None:
        click.echo(f"address 0x{fault.address:x}")
    text = SourceText(folders)
    for place, quoted in _quotes(str(fault), text)[:QUOTED_LINES]:
        click.echo(f"  {place:<24}  {quoted}")


def _quotes(report: str, text: SourceText) -> list[tuple[str, str]]:
    """The places that a report names, with their text; without those that have none."""
    places = dict.fromkeys(re.findall(r"[\w.+-]+\.\w+:\d+", report))
    return [(place, line) for place in places if (line := _quote(place, text))]


# Counters


def print_counters(counters: Counters, folders: Sequence[Path]) -> None:
    """Print the counters as a few small tables; what is zero is left out."""
    total = counters.warp_instructions
    click.echo(f"{total} warp instructions, {100 * counters.active_lanes:.1f} % of lanes active\n")
    print_table(_instruction_fields(counters))
    _print_traffic("global memory", counters, _GLOBAL)
    _print_traffic("shared memory", counters, _SHARED)
    if counters.extra:
        click.echo()
        names, values = zip(*sorted(counters.extra.items()), strict=True)
        print_table([Field("counter", names), Field("value", tuple(map(str, values)), True)])
    click.echo()
    print_table(_line_fields(counters, folders))


def _instruction_fields(counters: Counters) -> list[Field]:
    classes = sorted(counters.instructions.items(), key=lambda item: -item[1])
    return _counted("class", [name for name, _ in classes], [n for _, n in classes], counters)


def _counted(
    header: str, names: Sequence[str], counts: Sequence[int], counters: Counters
) -> list[Field]:
    total = max(1, counters.warp_instructions)
    return [
        Field(header, tuple(names)),
        Field("warp inst", tuple(map(str, counts)), numeric=True),
        Field("%", tuple(f"{100 * n / total:.1f}" for n in counts), numeric=True),
    ]


def _print_traffic(title: str, counters: Counters, groups: Sequence[str]) -> None:
    """One row for each kind of access that happened, derived counters included."""
    from gpukit.emulator.frame import entries

    rows: dict[str, Any] = {g: {} for g in groups if getattr(counters, g).requests}
    for entry in entries(asdict(counters)):
        if entry.group in rows:
            rows[entry.group][entry.counter.replace("_per_", "/")] = entry.value
    if not rows:
        return
    click.echo()
    names = next(iter(rows.values()))
    cells = {name: tuple(_number(row[name]) for row in rows.values()) for name in names}
    kinds = tuple(group.split("_")[1] for group in rows)
    print_table([Field(title, kinds), *(Field(name, cells[name], True) for name in cells)])


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.2f}"


def _line_fields(counters: Counters, folders: Sequence[Path]) -> list[Field]:
    """The source lines with most instructions, in the file nearest to the kernel's own."""
    from gpukit.emulator.source_text import SourceText

    text = SourceText(folders)
    hot = sorted(counters.lines.items(), key=lambda item: -item[1])[:HOT_LINES]
    places = [place for place, _ in hot]
    shown = [place.partition(" (")[0] for place in places]
    callers = [place.partition(" (inlined at ")[2].rstrip(")") for place in places]
    return [
        *_counted("source line", shown, [count for _, count in hot], counters),
        Field("inlined at", tuple(c.replace(" (inlined at ", " < ") for c in callers), rank=2),
        Field("text", tuple(_quote(place, text) for place in shown), rank=1),
    ]


def _quote(place: str, text: SourceText) -> str:
    file, _, line = place.rpartition(":")
    return text.line(file, int(line)) if line.isdecimal() else ""


# JSON


def print_document(
    trials: Sequence[Trial], arrays: Mapping[int, Any], folders: Sequence[Path], seed: int
) -> bool:
    """Print one JSON object; returns whether something is wrong."""
    from gpukit.emulator.trials import differences

    unequal = differences(trials)
    document = {
        "seed": seed,
        "trials": [_trial(trial) for trial in trials],
        "differences": unequal,
        "arrays": {number: array.astype(object).tolist() for number, array in arrays.items()},
    }
    click.echo(json.dumps(document, indent=1, default=float))
    return bool(unequal) or any(trial.fault for trial in trials)


def _trial(trial: Trial) -> dict[str, Any]:
    result, fault = trial.result, trial.fault
    return {
        "policy": trial.policy,
        "counters": None if result is None else asdict(result.counters),
        "output": "" if result is None else result.output,
        "fault": None if fault is None else _fault(fault),
    }


def _fault(fault: KernelFault) -> dict[str, Any]:
    return {
        "kind": type(fault).__name__,
        "where": fault.where,
        "what": fault.what,
        "address": fault.address,
    }
