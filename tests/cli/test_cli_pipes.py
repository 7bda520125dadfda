"""Output through real pipes: complete, plain, and the same whatever the surroundings."""

from __future__ import annotations

import csv
import io
import json
import shlex
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from cli_process import COMMAND, FAKE_GPU, environment

BENCH = ("bench", "fake", "--kernel", "scale,fast,wrong", "--n", "1Mi,1234567", "--no-isolate")
SURROUNDINGS = [
    {},
    {"FORCE_COLOR": "1"},
    {"CLICOLOR_FORCE": "1", "FORCE_COLOR": "3"},
    {"NO_COLOR": "1"},
    {"TERM": "dumb"},
    {"COLUMNS": "20"},
    {"LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"},
]


@pytest.mark.parametrize("variables", SURROUNDINGS, ids=str)
def test_a_piped_table_is_whole_and_plain(gpukit, variables):
    n = "--n", "1234567"
    done = gpukit("bench", "fake", *n, "--kernel", "scale,wrong", "--no-isolate", **variables)
    assert done.code == 1
    lines = done.out.splitlines()
    header = next(line for line in lines if "time_us" in line)
    for column in ("kernel", "n", "spread%", "GB/s", "%ceil", "xslowpoke", "sm_MHz", "status"):
        assert column in header
    row = next(line for line in lines if line.startswith("scale"))
    assert "1234567" in row
    assert "4.938" in row  # 8 x 1234567 bytes at 2000 GB/s
    assert "wrong result" in done.out
    for text in (done.out, done.err):
        assert "\x1b" not in text
        assert "…" not in text
    if "PYTHONIOENCODING" in variables:
        assert (done.out + done.err).isascii()


def test_progress_stays_off_a_piped_stderr(gpukit):
    done = gpukit(*BENCH, FORCE_COLOR="1")
    assert done.err == f"{FAKE_GPU}: 6 cases, about 26 s\n"


def test_json_is_a_list_of_rows_with_every_digit(gpukit):
    rows = json.loads(gpukit(*BENCH, "--format", "json").out)
    assert [row["status"] for row in rows] == ["ok", "ok", "ok", "ok", "wrong", "wrong"]
    assert rows[1]["time_us"] == 8 * 1234567 / 2000 / 1e3
    assert len(rows[0]["samples_us"]) == 21
    assert rows[4]["time_us"] is None
    for name in ("family", "kernel", "device", "arch", "dtype", "shape", "l2", "method", "status",
                 "error", "tolerance", "time_us", "spread", "gbs", "tflops", "pct_peak",
                 "pct_ceiling", "peers", "counters", "clocks", "environment"):  # fmt: skip
        assert name in rows[0]


def test_csv_reads_with_csv_and_pandas(gpukit):
    text = gpukit(*BENCH, "--format", "csv").out
    records = list(csv.DictReader(io.StringIO(text)))
    assert [record["device"] for record in records] == [FAKE_GPU] * 6
    assert float(records[1]["time_us"]) == 8 * 1234567 / 2000 / 1e3
    frame = pd.read_csv(io.StringIO(text))
    assert list(frame["kernel"]) == ["scale", "scale", "fast", "fast", "wrong", "wrong"]
    assert frame["time_us"].isna().sum() == 2
    assert "nan" not in text.lower()


def test_markdown_is_a_table(gpukit):
    lines = gpukit(*BENCH, "--peer", "none", "--format", "markdown").out.splitlines()
    table = [line for line in lines if line.startswith("|")]
    assert len(table) == 2 + 6
    assert len({line.count("|") for line in table}) == 1
    assert "200.0!" in "".join(table)


def test_what_a_worker_prints_stays_out_of_the_results(gpukit):
    done = gpukit("bench", "fake", "--kernel", "noisy", "--format", "json")
    assert json.loads(done.out)[0]["status"] == "ok"
    assert "a print from a kernel" in done.err


def test_sorted_rows_come_best_first(gpukit):
    rows = json.loads(gpukit(*BENCH, "--format", "json", "--sort", "gbs").out)
    assert [row["kernel"] for row in rows] == ["fast", "fast", "scale", "scale", "wrong", "wrong"]


def test_a_dry_run_lists_cases_and_opens_nothing(gpukit, tmp_path):
    arguments = ("bench", "fake", "--n", "1:8:x2", "--l2", "flush,hot", "--dry-run")
    done = gpukit(*arguments, "--device", "none", "--out", "r.json")
    assert done.code == 0
    assert len(done.out.splitlines()) == 8
    assert done.err == "8 cases, about 34 s\n"
    assert not list(tmp_path.iterdir())
    cases = json.loads(gpukit(*arguments, "--format", "json").out)
    assert [case["shape"]["n"] for case in cases] == [1, 1, 2, 2, 4, 4, 8, 8]


@pytest.mark.parametrize(
    "arguments",
    [("bench", "fake", "--n", "1:5000", "--dry-run"), ("list",), ("bench", "fake", "--help")],
)
def test_a_reader_that_leaves_early_is_no_error(arguments):
    with subprocess.Popen(
        [*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
    ) as process:
        process.stdout.close()
        err = process.stderr.read().decode()
        assert process.wait(60) == 0
    assert "Traceback" not in err
    assert "Broken" not in err


@pytest.mark.parametrize("isolation", ["--isolate", "--no-isolate"])
@pytest.mark.parametrize("stream", ["stdout", "stderr", "both"])
def test_a_reader_that_leaves_costs_no_row_and_no_verdict(tmp_path, stream, isolation):
    arguments = ("bench", "fake", "--kernel", "scale,noisy,wrong", "--out", "r.json", isolation)
    with subprocess.Popen(
        [*COMMAND, *arguments], stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT if stream == "both" else subprocess.PIPE,
        env=environment(), cwd=tmp_path,
    ) as process:  # fmt: skip
        (process.stderr if stream == "stderr" else process.stdout).close()
        process.communicate(timeout=60) if stream != "both" else process.wait(60)
    rows = json.loads((tmp_path / "r.json").read_text())["rows"]
    assert [row["status"] for row in rows] == ["ok", "ok", "wrong"]
    assert process.returncode == 1


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", ">&- 2>&- <&-"])
def test_closed_streams_lead_nowhere(tmp_path, closed):
    command = shlex.join([*COMMAND, "bench", "fake", "--kernel", "noisy", "--out", "r.json"])
    done = subprocess.run(
        ["sh", "-c", f"{command} {closed}"], capture_output=True, text=True, env=environment(),
        cwd=tmp_path, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0
    assert "Traceback" not in done.stderr
    assert "a print" not in done.stdout
    (row,) = json.loads((tmp_path / "r.json").read_text())["rows"]
    assert row["status"] == "ok"
    plan = [line for line in done.stdout.splitlines() if "1 case" in line]
    assert not plan


def test_a_full_disk_is_an_error_in_one_line():
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*COMMAND, "list"], stdout=full, stderr=subprocess.PIPE, text=True, env=environment(),
            check=False,
        )  # fmt: skip
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "No space left on device: 'standard output'" in line


def test_help_loads_next_to_nothing():
    code = (
        "import sys\nfrom gpukit_cli.main import main\nmain(['--help'])\n"
        "heavy = {'numpy', 'rich', 'pandas', 'cupy', 'multiprocessing', 'gpukit.kernels'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment(), check=True
    )
    assert done.stderr == "[]\n"
    assert "Exit codes" in done.stdout


def test_published_figures_stand_beside_ours(gpukit):
    arguments = ("bench", "memcpy", "--no-isolate", "--published")
    done = gpukit(*arguments, GPUKIT_FAMILIES="memcpy=fake_family:MEMCPY")
    assert done.code == 0
    assert "published by others" in done.out
    assert "A100-40GB" in done.out
    assert "1383" in done.out
    done = gpukit("bench", "fake", "--no-isolate", "--published")
    assert "nothing published for fake" in done.err


def test_columns_are_explained_on_demand(gpukit):
    assert "GB = 1e9 bytes" not in gpukit("bench", "fake", "--no-isolate").out
    assert "GB = 1e9 bytes" in gpukit("bench", "fake", "--no-isolate", "--explain").out


@pytest.mark.parametrize("how", ["json", "csv", "markdown"])
def test_explanations_stay_out_of_data(gpukit, how):
    words = ("bench", "fake", "--no-isolate", "--format", how)
    done = gpukit(*words, "--explain")
    assert done.out == gpukit(*words).out
    assert "GB = 1e9 bytes" in done.err


def test_env_works_without_a_gpu(gpukit):
    facts = json.loads(gpukit("env", "--format", "json").out)
    assert {"id", "python", "gpukit", "driver"} <= set(facts)
    assert facts["id"] in gpukit("env").out


def test_kernels_are_listed_and_shown(gpukit):
    names = [kernel["name"] for kernel in json.loads(gpukit("list", "--format", "json").out)]
    assert "matmul.k1" in names
    table = gpukit("list").out
    assert all(name in table for name in names)
    assert "elementwise" not in gpukit("list", "matmul").out
    shown = gpukit("show", "matmul.k1")
    assert shown.code == 0
    assert "cuda_src/" in shown.out
    assert "requires" in shown.out or "tunable" in shown.out


@pytest.mark.parametrize("name", ["HOME", "CUPY_CACHE_DIR"])
def test_looking_around_needs_no_writable_home(gpukit, name):
    for arguments in (("--help",), ("list",), ("bench", "matmul", "--help")):
        assert gpukit(*arguments, **{name: "/proc/nowhere"}).code == 0


def test_sustained_rows_follow_the_bursts(gpukit):
    words = ("bench", "fake", "--n", "1Mi,2Mi", "--no-isolate", "--budget", "0.1")
    rows = json.loads(gpukit(*words, "--sustained", "2", "--format", "json").out)
    assert [row["load"] for row in rows] == ["burst", "burst", "sustained", "sustained"]
    only = json.loads(gpukit(*words, "--load", "sustained", "--format", "json").out)
    assert [row["load"] for row in only] == ["sustained", "sustained"]
    table = gpukit(*words, "--sustained", "2").out
    assert "load" in table.splitlines()[1]
    assert "load" not in gpukit(*words).out


def test_the_summary_stands_below_the_table_of_several_problems(gpukit):
    out = gpukit("bench", "fake", "--n", "1Mi,2Mi", "--no-isolate").out
    *_, header, _, twin, slowpoke = out.splitlines()
    assert header.split()[:5] == ["against", "kernel", "rows", "geomean", "below"]
    assert twin.split()[:4] == ["twin", "scale", "2", "1.000"]
    assert slowpoke.split()[:4] == ["slowpoke", "scale", "2", "2.000"]
    assert "geomean" not in gpukit("bench", "fake", "--no-isolate").out


def test_suites_are_listed_and_chosen_by_name(gpukit):
    cases = gpukit("bench", "matmul", "--suite", "quick", "--dry-run").out.splitlines()
    assert len(cases) == 8
    assert all(case.startswith("matmul/matmul.auto dtype=bf16") for case in cases)
    assert "quick (8)" in gpukit("bench", "matmul", "--help").out
    refused = gpukit("bench", "matmul", "--suite", "huge", "--dry-run")
    assert refused.code == 2 and "'huge' is not one of quick, square, llm" in refused.err
