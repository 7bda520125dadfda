"""The examples: the right kernels pass, every planted mistake is found, the matmul is exact."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from gpukit import emulator
from gpukit.bench.emulator_speed import matmul
from gpukit.emulator.errors import DeadlockError, MissingProxyFenceError
from gpukit.emulator.policies import POLICIES

EXAMPLES = Path(__file__).parents[2] / "examples" / "emulator"
RING = (EXAMPLES / "ring.cu").read_text().splitlines()


@pytest.fixture(scope="module")
def find_bugs():
    spec = importlib.util.spec_from_file_location("find_bugs", EXAMPLES / "find_bugs.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def line_of(text):
    return next(f"ring.cu:{n}" for n, line in enumerate(RING, 1) if text in line)


@pytest.mark.parametrize("policy", POLICIES)
def test_ring(find_bugs, policy):
    counters = find_bugs.run_ring(policy=policy).counters
    assert counters.extra["l2_to_shared_bytes"] == counters.extra["bulk_store_bytes"] == 12 * 4096
    with pytest.raises(MissingProxyFenceError) as fence:
        find_bugs.run_ring("MISSING_FENCE", policy=policy)
    assert line_of("tma_store(y") in str(fence.value)
    assert line_of("s.result[t + i") in str(fence.value)
    with pytest.raises(DeadlockError, match="16 bytes of tx-count") as deadlock:
        find_bugs.run_ring("TOO_MANY_BYTES", policy=policy)
    assert line_of("wait(&s.full") in str(deadlock.value)


def test_the_script_shows_three_runs(find_bugs, capsys):
    find_bugs.main()
    out = capsys.readouterr().out
    assert out.count(": right, ") == len(POLICIES)
    assert "random: MissingProxyFenceError: ring, " in out
    assert "random: DeadlockError: " in out


@pytest.mark.parametrize("policy", POLICIES)
def test_matmul(rng, policy):
    a, b = (rng.integers(-4, 5, (r, 320)).astype(ml_dtypes.bfloat16) for r in (256, 512))
    c, counters = matmul(a, b, policy=policy)
    assert (c == a.astype("f4") @ b.astype("f4").T).all()
    assert counters.extra["flops bf16"] == 2 * 256 * 512 * 320
    assert counters.extra["wgmma shared wavefronts"] == (
        counters.extra["wgmma shared wavefronts ideal"]
    )


def test_frames(find_bugs):
    counters = find_bugs.run_ring().counters
    frame = counters.frame()
    assert list(frame.columns) == ["group", "counter", "value"]
    values = frame.set_index(["group", "counter"])["value"]
    assert values["launch", "warp_instructions"] == counters.warp_instructions
    assert values["instructions"].sum() == counters.warp_instructions
    assert values["shared_loads", "conflicts"] == 0
    assert values["extra", "tma_boxes"] == 24
    lines = counters.line_frame()
    assert lines["instructions"].sum() == counters.warp_instructions
    assert lines["share"].sum() == pytest.approx(1)
    assert lines["instructions"].is_monotonic_decreasing
    compute = lines[(lines["file"] == "ring.cu") & (lines["line"] > 0)].iloc[0]
    assert "values[i] = a * s.stage" in RING[compute["line"] - 1]
    assert compute["inlined_at"].startswith("ring.cu:")


def test_frames_without_line_information():
    ptx = ".version 8.0\n.target sm_90\n.address_size 64\n.entry k() { ret; }"
    row = emulator.run(ptx, 1, 32, []).counters.line_frame().iloc[0]
    assert (row["file"], row["line"], row["instructions"]) == ("", 0, 1)


def test_the_ring_overlaps(find_bugs):
    """TMA loads are in flight while consumers compute."""
    trace = emulator.Trace(folders=[EXAMPLES])
    find_bugs.run_ring(policy="late", listeners=[trace])
    compute = [s for s in trace.spans if "values[i] = a *" in s.name and s.cta == (0, 0, 0)]
    loads = [s for s in trace.spans if s.track == "TMA loads" and s.cta == (0, 0, 0)]
    assert np.any([[a.start < b.end and b.start < a.end for a in compute] for b in loads])


def test_speed_report(monkeypatch, tmp_path):
    from functools import partial

    from click.testing import CliRunner

    from gpukit.bench import emulator_speed as speed

    slow = speed.Task("slow", 1e-9, 0, partial(speed._run_copy, 1024))
    fine = speed.Task("fine", 100, 1, partial(speed._run_naive, 16))
    monkeypatch.setattr(speed, "tasks", lambda: [slow, fine])
    words = ["--repeat", "1", "--profile", "--out", str(tmp_path / "out.json")]
    done = CliRunner().invoke(speed.main, words, catch_exceptions=False)
    lines = done.output.splitlines()
    assert lines[1].startswith("start: import")
    assert [line.endswith("MISSED") for line in lines if line.startswith(("slow ", "fine "))] == [
        True, False,
    ]  # fmt: skip
    profile = done.output.rpartition("\nfine\n")[2]  # its first lines may be of no Python function
    assert re.search(r"^ +\d\.\d{3} s +\d+  \S+ \(\w+\.py:\d+\)$", profile, re.MULTILINE)
    rows = {r["task"]: r for r in json.loads((tmp_path / "out.json").read_text())["rows"]}
    assert rows["start"]["seconds"] > rows["start: NVRTC"]["seconds"] > 0
    assert rows["fine"]["warp_instructions"] > 0
    some = CliRunner().invoke(speed.main, ["--repeat", "1", "--only", "in"], catch_exceptions=False)
    assert [line.split()[0] for line in some.output.splitlines()[1:]] == ["fine"]
    assert CliRunner().invoke(speed.main, ["--only", "nothing"]).exit_code == 2


def test_speed_of_the_blackwell_ladder():
    """Its launches check their results; here on problems of one tile."""
    from gpukit.bench import emulator_speed as speed

    assert sum("tcgen05" in task.name for task in speed.tasks()) == 4
    for rung in (7, 8):
        assert speed._run_rung(rung, 128, 64, 64).extra["tcgen05.mma"] > 0
