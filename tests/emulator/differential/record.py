"""Records what a device answers to every case: one fixture per group.

    PYTHONPATH=tests/emulator python -m differential.record --out DIR [--group NAME ...]

or ``python -m tests.emulator.differential.record``, from the repository's root. Each group runs in
processes of its own, several groups at a time. A process that hangs or loses its device costs one
case, however often that happens: the next process goes on behind it. At the deadline everything
stops and what there is gets saved.
"""

from __future__ import annotations

import argparse
import base64
import os
import platform
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .cases import GROUPS
from .fixture import HUNG, NOT_RUN, Fixture, Record
from .worker import read_journal, tried_cases

PACKAGE = __package__ or ""
PARENT = Path(__file__).resolve().parents[PACKAGE.count(".") + 1]  # holds the package
REPOSITORY = Path(__file__).resolve().parents[3]


@dataclass(frozen=True)
class Limits:
    """Seconds: without progress until a process is ended, and when (monotonic) all must end."""

    stall: float
    deadline: float


def record_group(group: str, device: str, folder: Path, limits: Limits) -> Fixture:
    """Run a group to its end, or as far as the limits allow."""
    journal, before = folder / f"{group}.jsonl", -1
    # A process that ends without having tried a case would do so again.
    while before < (tried := len(tried_cases(journal))) and time.monotonic() < limits.deadline:
        before = tried
        if _work(group, device, journal, limits) == 0:
            break
    return _collect(group, journal)


def _work(group: str, device: str, journal: Path, limits: Limits) -> int:
    """One process; its exit status, nonzero if it had to be ended."""
    before = os.environ.get("PYTHONPATH")
    path = os.pathsep.join(filter(None, [str(PARENT), str(REPOSITORY), before]))
    command = [sys.executable, "-m", f"{PACKAGE}.worker", group, device, str(journal)]
    with (journal.parent / f"{group}.log").open("a") as log:
        process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path}, stdout=log,
                                   stderr=log)  # fmt: skip
        try:
            return _watch(process, journal, limits)
        finally:
            process.kill()
            process.wait()


def _watch(process: subprocess.Popen[bytes], journal: Path, limits: Limits) -> int:
    size, since = 0, time.monotonic()
    while process.poll() is None:
        now, grown = time.monotonic(), journal.stat().st_size if journal.exists() else 0
        if grown != size:
            size, since = grown, now
        if now - since > limits.stall or now > limits.deadline:
            return -1
        time.sleep(0.05)
    return process.returncode


def _collect(group: str, journal: Path) -> Fixture:
    """The journal of a group as a fixture; every case gets a record."""
    info, found = _machine(), {}
    for entry in read_journal(journal):
        info.update(entry.get("info", {}))
        if "case" in entry:
            found[entry["case"]] = entry
    records = {}
    for case in GROUPS[group]():
        entry = found.get(case.name, {"error": NOT_RUN})
        outputs = [base64.b64decode(text) for text in entry.get("outputs", ())]
        error = entry.get("error", "" if "outputs" in entry else HUNG)
        records[case.name] = Record(case.digest(), case.ptx, outputs, error)
    log = journal.with_suffix(".log")
    if not found and log.exists():
        print(f"{group}: nothing ran\n{log.read_text()[-2000:]}", file=sys.stderr)
    return Fixture(info, records)


def _machine() -> dict[str, Any]:
    return {
        "recorded": time.strftime("%Y-%m-%d"),
        "python": platform.python_version(),
        "numpy": np.__version__,
    }


def main(arguments: list[str] | None = None) -> int:
    """Command line; returns 0 if every group gave outputs."""
    parser = argparse.ArgumentParser(description="Record the differential suite's outputs.")
    parser.add_argument("--out", type=Path, required=True, help="folder for the fixtures")
    parser.add_argument("--group", action="append", choices=sorted(GROUPS), help="default: all")
    parser.add_argument("--device", default="cuda", help="cuda, emulator or module:Class")
    parser.add_argument("--jobs", type=int, default=min(8, os.cpu_count() or 1))
    parser.add_argument("--stall", type=float, default=20, help="seconds without progress")
    parser.add_argument("--deadline", type=float, default=85, help="seconds for everything")
    given = parser.parse_args(arguments)
    given.out.mkdir(parents=True, exist_ok=True)
    limits = Limits(given.stall, time.monotonic() + given.deadline)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(given.jobs) as pool:

        def one(group: str) -> bool:
            fixture = record_group(group, given.device, Path(folder), limits)
            fixture.save(given.out / f"{group}.npz")
            return _tell(group, fixture)

        return 0 if all(list(pool.map(one, given.group or GROUPS))) else 1


def _tell(group: str, fixture: Fixture) -> bool:
    failed = {name: r.error for name, r in fixture.records.items() if r.error}
    total = len(fixture.records)
    print(f"{group}: {total - len(failed)} of {total} cases", flush=True)
    for name, error in list(failed.items())[:5]:
        print(f"  {name}: {error[:300]}", flush=True)
    return len(failed) < total


if __name__ == "__main__":
    sys.exit(main())
