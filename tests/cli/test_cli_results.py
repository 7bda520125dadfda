"""Commands over finished results: compare, report, plot."""

from __future__ import annotations

import json
import os

import pytest


@pytest.fixture
def measured(gpukit):
    """Measure the fake family into a file; ``slower`` multiplies the times."""

    def run(name: str, slower: float = 1.0, kernels: str = "scale,fast", **variables: str) -> None:
        gpukit("bench", "fake", "--kernel", kernels, "--no-isolate", "--out", name,
               FAKE_SLOWER=str(slower), **variables)  # fmt: skip

    return run


@pytest.mark.parametrize(
    ("slower", "options", "verdict", "code"),
    [
        (1.0, (), "SAME", 0),
        (1.03, (), "SLOWER", 1),
        (1.03, ("--fail-over", "5%"), "SLOWER", 0),
        (1.08, ("--fail-over", "0.05"), "SLOWER", 1),
        (1.03, ("--noise", "10%"), "SAME", 0),
        (1.01, (), "AMBIGUOUS", 0),
        (0.9, (), "FASTER", 0),
    ],
)
def test_verdicts_and_exit_codes(gpukit, measured, slower, options, verdict, code):
    measured("old.json")
    measured("new.json", slower)
    done = gpukit("compare", "old.json", "new.json", *options)
    assert done.code == code
    assert done.out.splitlines()[-1] == f"2 {verdict}"
    assert ("regression:" in done.out) == (code == 1)
    document = json.loads(gpukit("compare", "old.json", "new.json", *options, "--format=json").out)
    assert {change["verdict"] for change in document["changes"]} == {verdict}
    assert {change["regression"] for change in document["changes"]} == {code == 1}


def test_a_case_that_broke_fails(gpukit, measured, tmp_path):
    measured("old.json")
    measured("new.json")
    document = json.loads((tmp_path / "new.json").read_text())
    document["rows"][0].update(status="wrong", time_us=None, message="wrong result")
    (tmp_path / "new.json").write_text(json.dumps(document))
    done = gpukit("compare", "old.json", "new.json", "--fail-over", "50%")
    assert done.code == 1
    assert "BROKEN" in done.out
    assert "wrong, wrong result" in done.out


def test_unmatched_cases_and_environments_are_told(gpukit, measured):
    measured("old.json", kernels="scale,restless,wrong")
    measured("new.json", kernels="scale,noisy", FAKE_DRIVER="2.0")
    done = gpukit("compare", "old.json", "new.json", "--fail-over", "50%")
    assert done.code == 1
    lines = done.out.splitlines()
    assert any(line.startswith("MISSING") and "restless" in line for line in lines)
    assert any("restless" in line and line.endswith(": not in NEW") for line in lines)
    assert any(line.startswith("only in OLD") and "wrong" in line for line in lines)
    assert any(line.startswith("only in NEW") and "noisy" in line for line in lines)
    assert "environment: driver was 1.0, is 2.0" in done.out


@pytest.mark.parametrize("kernels", ["fast", "wrong", ""])
def test_nothing_in_common_is_said_and_fails(gpukit, measured, tmp_path, kernels):
    measured("old.json", kernels="scale")
    if kernels:
        measured("new.json", kernels=kernels)
    else:
        (tmp_path / "new.json").write_text("[]")
    done = gpukit("compare", "old.json", "new.json")
    assert done.code == 1
    assert done.out.splitlines()[-1].startswith("nothing to compare")
    document = json.loads(gpukit("compare", "old.json", "new.json", "--format", "json").out)
    assert document["failed"]


def test_a_report_goes_to_a_pipe_or_a_file(gpukit, measured, tmp_path):
    measured("r.json")
    done = gpukit("report", "r.json")
    assert done.code == 0
    for part in ("## fake", "**GB/s**", "## Environment", "driver"):
        assert part in done.out
    assert gpukit("report", "r.json", "--out", "r.md").code == 0
    assert (tmp_path / "r.md").read_text() == done.out
    done = gpukit("report", "r.json", "--out", "/proc/gpukit/r.md")
    assert done.code == 2
    assert len(done.err.splitlines()) == 1


def test_csv_reports_but_does_not_compare(gpukit, measured):
    measured("r.csv")
    assert "## fake" in gpukit("report", "r.csv").out
    done = gpukit("compare", "r.csv", "r.csv")
    assert done.code == 2
    assert "r.csv: CSV holds no samples" in done.err
    assert "give the .json" in done.err


def test_a_report_that_cannot_be_written_names_the_file_asked_for(gpukit, measured):
    measured("r.json")
    done = gpukit("report", "r.json", "--out", "r.json/x.md")
    assert done.code == 2
    assert "r.json/x.md" in done.err and "r.json is not a folder" in done.err
    assert ".tmp" not in done.err


@pytest.mark.parametrize("text", ['{"rows": null, "schema_version": 1}', "[{}]", "[1]"])
@pytest.mark.parametrize(
    "words",
    [
        ("compare", "r.json", "r.json"),
        ("report", "r.json"),
        ("plot", "r.json"),
        ("bench", "fake", "--resume", "--out", "r.json", "--device", "none"),
    ],
    ids=lambda words: words[0],
)
def test_bad_results_are_one_line_that_names_the_file(gpukit, tmp_path, words, text):
    (tmp_path / "r.json").write_text(text)
    done = gpukit(*words)
    assert done.code == 2
    (line,) = done.err.splitlines()
    assert "r.json: rows" in line
    assert (tmp_path / "r.json").read_text() == text


def test_rows_without_a_time_are_not_drawn(gpukit, tmp_path):
    gpukit("bench", "fake", "--no-isolate", "--out", "r.json")
    document = json.loads((tmp_path / "r.json").read_text())
    document["rows"][0].update(time_us=None, gbs=None, tflops=None)
    (tmp_path / "r.json").write_text(json.dumps(document))
    done = gpukit("plot", "r.json")
    assert done.code == 2
    assert "nothing to plot: no row has a time" in done.err


def test_a_plot_is_drawn(gpukit, tmp_path):
    pytest.importorskip("matplotlib")
    gpukit("bench", "fake", "--n", "1Ki:16Ki:x2", "--no-isolate", "--out", "r.json")
    done = gpukit("plot", "r.json")
    assert (done.code, done.err) == (0, "wrote r.png\n")
    assert (tmp_path / "r.png").read_bytes().startswith(b"\x89PNG")
    assert gpukit("plot", "r.json", "--x", "q").code == 2


def test_without_matplotlib_plot_says_what_to_install(gpukit, measured, tmp_path):
    measured("r.json")
    (tmp_path / "matplotlib.py").write_text("raise ImportError('hidden by a test')")
    paths = [str(tmp_path), os.environ.get("PYTHONPATH")]
    done = gpukit("plot", "r.json", PYTHONPATH=os.pathsep.join(filter(None, paths)))
    assert done.code == 2
    assert done.err.startswith("gpukit: error: gpukit plot needs Matplotlib")
    assert "pip install 'gpukit[plot]'" in done.err
