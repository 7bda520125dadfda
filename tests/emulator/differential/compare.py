"""Replays fixtures on the emulator and reports where it differs from what was recorded.

PYTHONPATH=tests/emulator python -m differential.compare [FIXTURES] [--out results/h200/NAME]
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from gpukit.emulator.errors import EmulatorError

from .cases import GROUPS
from .check import Difference, compare
from .emulated import Emulated
from .fixture import GOLDEN, HUNG, NOT_RUN, Fixture, Record
from .model import ApiCase, Case, Ulps, Within


@dataclass
class Report:
    """The outcome of a group. ``problems`` maps a case to what is wrong with it."""

    group: str
    cases: int = 0
    compared: int = 0
    worst_ulps: float = 0.0
    worst_share: float = 0.0  # of a stated bound
    problems: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)  # by the recording device
    unrecorded: dict[str, str] = field(default_factory=dict)
    info: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0


def replay(group: str, fixture: Fixture) -> Report:
    """Run every case of a group on the emulator."""
    report, device, begin = Report(group, info=fixture.info), Emulated(), time.perf_counter()
    for case in GROUPS[group]():
        report.cases += 1
        record = fixture.records.get(case.name)
        if record is None or record.error in (NOT_RUN, HUNG):
            report.unrecorded[case.name] = "absent" if record is None else record.error
        elif record.digest != case.digest():
            report.problems[case.name] = "not recorded in this form; record again"
        elif record.error:
            _refuse(report, device, case, record)
        else:
            _compare(report, device, case, record.ptx, record.outputs)
    report.seconds = time.perf_counter() - begin
    return report


def _compare(
    report: Report, device: Emulated, case: Case | ApiCase, ptx: str, want: list[bytes]
) -> None:
    report.compared += 1
    try:
        with np.errstate(all="ignore"):
            found = compare(case.comparison, want, device.run(case, ptx))
    except Exception as error:
        report.problems[case.name] = f"{type(error).__name__}: {error}"
        return
    if found.wrong:
        report.problems[case.name] = _words(found)
    if isinstance(case.comparison, Ulps):
        report.worst_ulps = max(report.worst_ulps, found.worst)
    elif isinstance(case.comparison, Within):
        report.worst_share = max(report.worst_share, found.worst)


def _refuse(report: Report, device: Emulated, case: Case | ApiCase, record: Record) -> None:
    """What the hardware refuses, the emulator must refuse too."""
    report.refused[case.name] = record.error
    try:
        device.run(case, record.ptx)
    except EmulatorError:
        return
    report.problems[case.name] = f"accepted by the emulator, but {record.error}"


def _words(found: Difference) -> str:
    worst = f", worst distance {found.worst:g}" if found.worst else ""
    return f"{found.wrong} of {found.total} elements differ{worst}; {found.example}"


def replay_all(folder: Path) -> list[Report]:
    """Every group that has a fixture."""
    paths = {group: folder / f"{group}.npz" for group in GROUPS}
    return [replay(g, Fixture.load(p)) for g, p in paths.items() if p.exists()]


def as_json(reports: list[Report]) -> str:
    """All numbers, and all cases with problems."""
    return json.dumps([vars(r) for r in reports], indent=1)


def as_markdown(reports: list[Report]) -> str:
    """A table of the groups and a list of the cases that differ."""
    info = reports[0].info if reports else {}
    total, bad = sum(r.compared for r in reports), sum(len(r.problems) for r in reports)
    lines = [
        "# The emulator against hardware",
        "",
        f"Recorded on {info.get('device', '?')} ({info.get('driver', '?')}) on "
        f"{info.get('recorded', '?')}: {total} cases compared, {bad} differ.",
        "",
        "Worst: the largest distance in units of the last place where a case allows any, and in "
        "percent of the stated bound for matrix multiplications. All else agrees bit for bit.",
        "",
        "| group | cases | compared | differ | refused by hardware | not recorded | worst ulp "
        "| worst share |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {r.group} | {r.cases} | {r.compared} | {len(r.problems)} | {len(r.refused)} "
        f"| {len(r.unrecorded)} | {r.worst_ulps:g} | {100 * r.worst_share:.0f} % |"
        for r in reports
    ]
    for title, chosen in (
        ("Differ", "problems"),
        ("Refused by the hardware, and by the emulator unless listed above", "refused"),
        ("Not recorded", "unrecorded"),
    ):
        found = [(r.group, *item) for r in reports for item in getattr(r, chosen).items()]
        if found:
            lines += ["", f"## {title}", ""]
            lines += [f"* `{name}` ({group}): {_short(text)}" for group, name, text in found]
    return "\n".join(lines) + "\n"


def _short(text: str) -> str:
    return " ".join(text.split())[:300]


def main(arguments: list[str] | None = None) -> int:
    """Command line; returns 1 if anything differs."""
    parser = argparse.ArgumentParser(description="Replay recorded outputs on the emulator.")
    parser.add_argument("fixtures", type=Path, nargs="?", default=GOLDEN)
    parser.add_argument("--out", type=Path, help="writes OUT.json and OUT.md")
    given = parser.parse_args(arguments)
    reports = replay_all(given.fixtures)
    if given.out:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.with_suffix(".json").write_text(as_json(reports) + "\n")
        given.out.with_suffix(".md").write_text(as_markdown(reports))
    print(as_markdown(reports))
    return 1 if not reports or any(r.problems for r in reports) else 0


if __name__ == "__main__":
    sys.exit(main())
