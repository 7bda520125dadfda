"""A result file has one writer at a time, and one that was killed keeps nobody out."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpukit.bench.store import open_store
from gpukit.errors import ArgumentError

HOLD = """import sys, pathlib
from gpukit.bench.store import open_store
open_store(pathlib.Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()"""


@pytest.mark.parametrize("suffix", [".json", ".csv", ".md"])
def test_two_runs_do_not_write_one_file(tmp_path: Path, suffix: str) -> None:
    pytest.importorskip("fcntl")
    path = tmp_path / f"rows{suffix}"
    other = subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE)
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(ArgumentError, match="is being written by another run"):
            open_store(path)
        open_store(tmp_path / f"others{suffix}")
    finally:
        other.kill()
        other.communicate()
    open_store(path)
    open_store(path)  # the same process may


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    locks = {"TMPDIR": str(tmp_path / "locks")}
    (tmp_path / "locks").mkdir()
    subprocess.run([sys.executable, "-c", HOLD, str(tmp_path / "rows.json")], check=True,
                   stdin=subprocess.DEVNULL, env=os.environ | locks)
    assert list(tmp_path.rglob("*")) == [tmp_path / "locks"]
