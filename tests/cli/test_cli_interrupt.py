"""Ctrl-C in the middle of a sweep, and resuming it."""

from __future__ import annotations

import csv
import fcntl
import json
import os
import pty
import signal
import subprocess
import termios
import time
from pathlib import Path

import pytest
from cli_process import COMMAND, environment, read_all

SWEEP = ("bench", "fake", "--n", "1:20", "--sleep-ms", "150")


def start(out: Path, *more: str) -> subprocess.Popen:
    """Start the sweep as a shell does: in a process group of its own."""
    return subprocess.Popen(
        [*COMMAND, *SWEEP, "--out", str(out), *more], stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, env=environment(), start_new_session=True,
    )  # fmt: skip


def rows_in(out: Path) -> list[int]:
    """Return the sizes of the rows on disk; an unwritten or torn file would fail here."""
    if not out.exists():
        return []
    if out.suffix == ".csv":
        with out.open(newline="") as file:
            return [json.loads(row["shape"])["n"] for row in csv.DictReader(file)]
    return [row["shape"]["n"] for row in json.loads(out.read_text())["rows"]]


def wait_for_rows(process: subprocess.Popen, out: Path, count: int) -> None:
    deadline = time.monotonic() + 60
    while len(rows_in(out)) < count:
        assert process.poll() is None, process.stderr.read().decode()
        assert time.monotonic() < deadline, "the sweep does not get on"
        time.sleep(0.02)


@pytest.mark.parametrize("suffix", [".json", ".csv"])
@pytest.mark.parametrize("isolation", ["--isolate", "--no-isolate"])
def test_one_ctrl_c_keeps_the_rows_and_resume_runs_the_rest(tmp_path, suffix, isolation):
    out = tmp_path / f"r{suffix}"
    process = start(out, isolation, "--format", "json")
    wait_for_rows(process, out, 4)
    os.killpg(process.pid, signal.SIGINT)  # what the terminal does: parent and worker get it
    sent = time.monotonic()
    printed, err = process.communicate(timeout=30)
    assert time.monotonic() - sent < 5
    assert process.returncode == 130
    kept = rows_in(out)
    assert 4 <= len(kept) < 20
    assert kept == list(range(1, len(kept) + 1))
    assert [row["shape"]["n"] for row in json.loads(printed)] == kept
    assert b"Traceback" not in err
    last = err.decode().splitlines()[-1]
    assert last == f"gpukit: interrupted, {len(kept)} of 20 cases done; --resume runs the rest"

    process = start(out, isolation, "--resume", "--format", "json")
    printed, err = process.communicate(timeout=60)
    assert process.returncode == 0
    assert f"{20 - len(kept)} cases" in err.decode()
    assert f"{len(kept)} kept from before" in err.decode()
    assert rows_in(out) == list(range(1, 21))
    assert [row["shape"]["n"] for row in json.loads(printed)] == list(range(1, 21))


@pytest.mark.parametrize("isolation", ["--isolate", "--no-isolate"])
def test_a_burst_of_ctrl_c_counts_as_one(tmp_path, isolation):
    out = tmp_path / "r.json"
    process = start(out, isolation)
    wait_for_rows(process, out, 2)
    for _ in range(12):
        os.killpg(process.pid, signal.SIGINT)
        time.sleep(0.01)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert b"Traceback" not in err
    assert json.loads(out.read_text())["runs"][0]["complete"] is False


def test_without_a_file_there_is_nothing_to_resume():
    with subprocess.Popen(
        [*COMMAND, *SWEEP], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
    ) as process:
        process.stderr.readline()  # the plan: the sweep has begun
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        err = process.communicate(timeout=30)[1].decode()
    assert process.returncode == 130
    assert "interrupted" in err
    assert "--resume" not in err


def test_a_signal_to_the_parent_alone_ends_the_worker_too(tmp_path):
    out = tmp_path / "r.json"
    process = start(out)
    wait_for_rows(process, out, 1)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == 130
    wait_until_gone(process.pid)
    assert json.loads(out.read_text())["runs"][0]["complete"] is False


def test_the_key_itself_on_a_terminal(tmp_path):
    out = tmp_path / "r.json"
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*COMMAND, *SWEEP, "--out", str(out)], stdin=theirs, stdout=theirs, stderr=theirs,
        env=environment(), start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    ) as process:  # fmt: skip
        os.close(theirs)
        wait_for_rows(process, out, 3)
        os.write(ours, b"\x03")
        shown = read_all(ours)
        assert process.wait(30) == 130
    os.close(ours)
    assert "gpukit: interrupted, " in shown
    assert "Traceback" not in shown
    assert shown.rindex("\x1b[?25h") > shown.rindex("\x1b[?25l")  # the cursor is back
    wait_until_gone(process.pid)


@pytest.mark.parametrize("delay_s", [0.05, 0.15, 0.3, 0.5])
def test_an_early_ctrl_c_never_hangs_and_prints_no_worker_traceback(tmp_path, delay_s):
    process = start(tmp_path / "r.json")
    time.sleep(delay_s)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=30)
    wait_until_gone(process.pid)
    assert b"fake_family" not in err
    assert b"_serve" not in err
    assert b"spawn_main" not in err


def test_a_killed_sweep_leaves_whole_rows_and_no_worker(tmp_path):
    out = tmp_path / "r.json"
    process = start(out)
    wait_for_rows(process, out, 3)
    process.kill()
    process.communicate(timeout=30)
    kept = rows_in(out)
    assert len(kept) >= 3
    wait_until_gone(process.pid)  # the worker notices that nobody listens
    process = start(out, "--resume")
    process.communicate(timeout=60)
    assert rows_in(out) == list(range(1, 21))


def test_a_worker_killed_from_outside_costs_one_row(tmp_path):
    out = tmp_path / "r.json"
    process = start(out)
    wait_for_rows(process, out, 2)
    (worker,) = workers_of(process.pid)
    os.kill(worker, signal.SIGKILL)
    process.communicate(timeout=60)
    assert process.returncode == 1
    rows = json.loads(out.read_text())["rows"]
    assert [row["status"] for row in rows].count("error") == 1
    assert [row["status"] for row in rows].count("ok") == 19
    (message,) = {row["message"] for row in rows if row["status"] == "error"}
    assert message == "the process running this case was killed by SIGKILL"


def wait_until_gone(group: int) -> None:
    """Wait until no process of a group lives; multiprocessing's own tracker ends last."""
    deadline = time.monotonic() + 20
    while left := group_members(group):
        assert time.monotonic() < deadline, f"still there: {left}"
        time.sleep(0.05)


def group_members(group: int) -> list[int]:
    """Return the living processes of a process group."""
    stats = {pid: _stat(pid) for pid in _processes()}
    return [pid for pid, stat in stats.items() if stat[2:] == [str(group)] and stat[0] != "Z"]


def workers_of(parent: int) -> list[int]:
    """Return the worker processes of a sweep (not multiprocessing's resource tracker)."""
    return [
        pid
        for pid in _processes()
        if _stat(pid)[1:2] == [str(parent)]
        and b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]


def _processes() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _stat(pid: int) -> list[str]:
    """Return state, parent and group; empty when the process has gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:3]
    except OSError:
        return []
