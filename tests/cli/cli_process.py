"""What the command-line tests share: the command, its surroundings, what it left."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
#: The fake family's device; see tests/bench/fake_family.py.
FAKE_GPU = 'Fake GPU, 16" wide'
COMMAND = [sys.executable, "-m", "gpukit_cli"]
#: Variables of whoever runs the tests that would change what the command prints.
MUTED = ("NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE", "COLUMNS", "LINES", "TERM", "LC_ALL")


def environment(**variables: str) -> dict[str, str]:
    """Return the surroundings of a command: the fake family is known, the rest is neutral."""
    kept = {name: value for name, value in os.environ.items() if name not in MUTED}
    paths = [str(REPOSITORY / "tests" / "bench"), os.environ.get("PYTHONPATH", "")]
    return {
        **kept,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "GPUKIT_FAMILIES": "fake=fake_family:FAMILY",
        "TERM": "xterm-256color",
        **variables,
    }


@dataclass(frozen=True)
class Done:
    """What a command left."""

    code: int
    out: str
    err: str


def read_all(descriptor: int) -> str:
    """Read a pseudo-terminal until the last writer is gone."""
    parts = []
    while True:
        try:
            part = os.read(descriptor, 65536)
        except OSError:  # EIO: how Linux says that nobody holds the other end
            break
        if not part:
            break
        parts.append(part)
    return b"".join(parts).decode("utf-8", "replace").replace("\r\n", "\n")
