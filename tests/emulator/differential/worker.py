"""Runs the cases of one group on one device in a process of its own, and keeps a journal.

Every case is announced before it runs, so that whoever reads the journal of a process that hung or
died knows which case was to blame. Cases that a journal already names are left out.
"""

from __future__ import annotations

import base64
import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .cases import GROUPS

DEVICES = {"emulator": "emulated:Emulated", "cuda": "hardware:Hardware"}


def open_device(name: str) -> Any:
    """The device of a name of ``DEVICES``, or of "module:Class"."""
    module, factory = DEVICES.get(name, name).split(":")
    prefix = f"{__package__}." if name in DEVICES else ""
    return getattr(importlib.import_module(prefix + module), factory)()


def read_journal(path: Path) -> Iterator[dict[str, Any]]:
    """The entries; a line that was cut off by the end of its process is dropped."""
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            yield json.loads(line)
        except json.JSONDecodeError:
            continue


def tried_cases(path: Path) -> set[str]:
    """The cases that a journal names."""
    return {entry["case"] for entry in read_journal(path) if "case" in entry}


def main(group: str, device_name: str, journal: str) -> int:
    """Returns 3 if the device is lost and a new process should go on."""
    path = Path(journal)
    tried = tried_cases(path)
    device = open_device(device_name)
    with path.open("a", buffering=1) as file:
        file.write(json.dumps({"info": device.info}) + "\n")
        for case in GROUPS[group]():
            if case.name in tried:
                continue
            file.write(json.dumps({"case": case.name}) + "\n")
            entry, lost = _run(device, case)
            file.write(json.dumps({"case": case.name, **entry}) + "\n")
            if lost:
                return 3
    return 0


def _run(device: Any, case: Any) -> tuple[dict[str, Any], bool]:
    try:
        outputs = device.run(case)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}, getattr(error, "lost", False)
    return {"outputs": [base64.b64encode(o.tobytes()).decode() for o in outputs]}, False


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
