"""Runs ``gpukit`` as users do: in a process of its own, on real pipes and pseudo-terminals."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import termios
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_process import COMMAND, Done, environment, read_all


@pytest.fixture
def gpukit(tmp_path: Path) -> Callable[..., Done]:
    """Run ``gpukit`` with its streams on pipes, in an empty folder."""

    def run(*arguments: str, **variables: str) -> Done:
        done = subprocess.run(
            [*COMMAND, *arguments], capture_output=True, text=True, encoding="utf-8",
            env=environment(**variables), cwd=tmp_path, timeout=60, check=False,
        )  # fmt: skip
        return Done(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture
def terminal(tmp_path: Path) -> Callable[..., Done]:
    """Run ``gpukit`` on a pseudo-terminal of some width; ``pipe`` names a stream kept off it."""

    def run(*arguments: str, width: int = 80, pipe: str = "", **variables: str) -> Done:
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
        streams = {"stdout": theirs, "stderr": theirs}
        if pipe:
            streams[pipe] = subprocess.PIPE
        with subprocess.Popen(
            [*COMMAND, *arguments], stdin=theirs, env=environment(**variables), cwd=tmp_path,
            **streams,
        ) as process:  # fmt: skip
            os.close(theirs)
            shown = read_all(ours)
            piped = (process.stdout or process.stderr).read().decode() if pipe else ""
            code = process.wait(60)
        os.close(ours)
        out, err = (piped, shown) if pipe == "stdout" else (shown, piped)
        return Done(code, out, err)

    return run
