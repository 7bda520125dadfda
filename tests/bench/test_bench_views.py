"""What becomes of rows: table columns, reports, plots, published figures, families."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

from gpukit.bench.columns import LEGEND, columns_for, constants, notes, number
from gpukit.bench.families import BUILT_IN, families, load_family
from gpukit.bench.model import Case, Row
from gpukit.bench.plot import plot, series
from gpukit.bench.published import PATH, published
from gpukit.bench.report import report
from gpukit.errors import ArgumentError, MissingDependencyError


def make_row(n=1, kernel="scale", status="ok", **changes) -> Row:
    params = changes.pop("params", {"vec": 4, "block": 256})
    row = Row.of(Case("fake", kernel, "f32", {"n": n}, params), "GPU", "sm_90", "env1")
    row.status = status
    if status == "ok":
        row.time_us, row.gbs, row.pct_peak = float(n), 1000.0 + n, 50.0
    for name, value in changes.items():
        setattr(row, name, value)
    return row


def table(rows):
    return {column.header: [column.cell(row) for row in rows] for column in columns_for(rows)}


def test_columns_hold_what_differs_and_constants_the_rest():
    rows = [make_row(1, params={"vec": 1, "block": 256}), make_row(2)]
    assert list(table(rows)) == [
        "kernel",
        "dtype",
        "n",
        "vec",
        "time_us",
        "GB/s",
        "%peak",
        "status",
    ]
    assert constants(rows) == {"block": "256", "l2": "flush", "method": "events"}


def test_the_actual_launch_is_shown_and_beats_what_was_asked():
    rows = [
        make_row(1, params={"vec": 8}, launch={"vec": 4, "grid": [2, 3], "kernel": "scale"}),
        make_row(2, params={"vec": 8}, launch={"vec": 8, "grid": [4, 3]}),
        make_row(3, params={"vec": 8}, status="unsupported"),
    ]
    assert table(rows)["vec"] == ["4", "8", "8"]
    assert table(rows)["grid"] == ["2x3", "4x3", "-"]
    assert list(table(rows)).count("kernel") == 1
    assert "grid" in constants(rows[1:])  # a row that never ran does not count


def test_words_align_left_and_numbers_right():
    settings = ({"layout": "nt", "vec": 1}, {"layout": "nn", "vec": 2})
    rows = [make_row(params=params) for params in settings]
    numeric = {column.header: column.numeric for column in columns_for(rows)}
    assert (numeric["layout"], numeric["vec"], numeric["kernel"]) == (False, True, False)


def test_cells_are_complete_and_absent_ones_dashes():
    rows = [make_row(4194304, time_us=123456.789), make_row(1, status="wrong", kernel="bad")]
    cells = table(rows)
    assert cells["time_us"] == ["123456.789", "-"]
    assert cells["n"] == ["4194304", "1"]
    assert cells["status"] == ["ok", "wrong"]


def test_more_than_the_peak_carries_a_mark():
    assert table([make_row(pct_peak=112.34), make_row(2)])["%peak"] == ["112.3!", "50.0"]


def test_peers_have_a_column_each():
    rows = [make_row(peers={"twin": {"time_us": 1.0, "ratio": 1.25}}), make_row(2)]
    assert table(rows)["xtwin"] == ["1.250", "-"]


@pytest.mark.parametrize(
    ("value", "decimals", "text"),
    [(None, 1, "-"), (0.0, 1, "0.0"), (1.26, 1, "1.3"), (0.00004, 2, "4e-05"), (1e6, 0, "1000000")],
)
def test_numbers_never_round_to_nothing(value, decimals, text):
    assert number(value, decimals) == text


def test_rows_that_say_the_same_share_a_note():
    rows = [make_row(n, message="m") for n in (1, 2, 3)] + [make_row(9, message="other")]
    assert notes(rows) == [
        f"{rows[0].case_key} and 2 more: ok: m",
        f"{rows[3].case_key}: ok: other",
    ]


def test_every_column_is_explained():
    rows = [
        make_row(1, tflops=1.0, pct_ceiling=1.0, spread=0.1, error=0.1, kernel="fake.k1",
                 clocks={"sm_mhz": {"median": 1.0}, "power_w": {"median": 1.0}},
                 peers={"NAME": {"ratio": 1.0}},
                 counters={"warp_instructions": 5, "active_lanes": 1.0, "shared_conflicts": 0,
                           "global_loads": {"requests": 1, "sectors": 4},
                           "global_stores": {"requests": 1, "sectors": 4}}),
        make_row(1, kernel="fake.k2"),
        dataclasses.replace(make_row(2), l2="hot", method="cupti", load="sustained"),
    ]  # fmt: skip
    own = {"kernel", "dtype", "n", "vec"}
    assert {column.header for column in columns_for(rows)} - own == set(LEGEND)


def test_a_report_has_tables_legend_and_environment():
    document = {
        "rows": [make_row(1).to_dict(), make_row(2, message="hm").to_dict()],
        "environments": {"env1": {"gpu": "GPU", "clocks": {"sm": 1980}}},
        "runs": [{"command": ["gpukit", "bench"], "started": "2026", "complete": False,
                  "ceilings": {"f32": {"gbs": 4242.0, "what": "copy"}, "bf16": None}}],
    }  # fmt: skip
    text = report(document)
    for part in ("## fake", "| scale | f32 | 2 |", "not complete", "4242.0 GB/s (copy)",
                 "- **GB/s**", "## Environment env1", '{"sm": 1980}', "ok: hm"):  # fmt: skip
        assert part in text
    assert "**xNAME**" not in text


def test_a_report_of_no_rows_is_still_a_report():
    assert "# gpukit benchmark" in report({"rows": []})


def test_series_are_one_line_a_variant():
    rows = [make_row(n, kernel) for n in (4, 1, 2) for kernel in ("a", "b")]
    assert series(rows, "n", "gbs") == {
        "a": {1: 1001.0, 2: 1002.0, 4: 1004.0},
        "b": {1: 1001.0, 2: 1002.0, 4: 1004.0},
    }


def test_dimensions_that_move_together_do_not_split_a_line():
    rows = [make_row(n) for n in (1, 2)]
    for row in rows:
        row.shape["m"] = row.shape["n"]
    assert list(series(rows, "n", "gbs")) == ["fake"]


@pytest.mark.parametrize(
    ("tflops", "gbs", "label"),
    [
        (None, 3000.0, "GB/s"),
        (0.4, 3000.0, "GB/s"),
        (700.0, 500.0, "TFLOP/s"),
        (None, None, "micro"),
    ],
)
def test_the_height_of_a_plot_is_what_the_rows_are_about(tmp_path, tflops, gbs, label):
    pytest.importorskip("matplotlib")
    plot([make_row(n, tflops=tflops, gbs=gbs) for n in (1, 2)], tmp_path / "p.svg")
    assert f"<!-- {label}" in (tmp_path / "p.svg").read_text()


def test_plotting_refuses_what_it_cannot_draw(tmp_path):
    with pytest.raises(ArgumentError, match="no row has a time"):
        plot([make_row(status="wrong")], tmp_path / "p.png")
    with pytest.raises(ArgumentError, match="--x 'zz' is not in the rows; there is n"):
        plot([make_row()], tmp_path / "p.png", x="zz")
    with pytest.raises(ArgumentError, match="--y 'zz' is not one of gbs"):
        plot([make_row()], tmp_path / "p.png", y="zz")
    with pytest.raises(ArgumentError, match="--y 'tflops': no row has it"):
        plot([make_row()], tmp_path / "p.png", y="tflops")


def test_without_matplotlib_the_message_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'gpukit\[plot\]'"):
        plot([make_row()], tmp_path / "p.png")


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_a_picture_is_written(tmp_path, suffix):
    pytest.importorskip("matplotlib")
    path = tmp_path / f"p.{suffix}"
    plot([make_row(n, kernel) for n in (1, 2, 4) for kernel in ("a", "b")], path)
    assert path.stat().st_size > 5000
    with pytest.raises(ArgumentError, match="--out"):
        plot([make_row()], tmp_path / "p.nonsense")


def test_published_figures_are_complete():
    figures = published()
    assert len(figures) > 30
    assert all(f.family and f.row and f.gpu and f.problem and f.unit and f.source for f in figures)
    assert all(figure.value > 0 for figure in figures)
    ladder = [f.value for f in published("matmul") if f.row.startswith("kernel")]
    assert ladder == [5.6, 155.0, 295.6, 293.6, 360.2, 1429.6, 1493.0, 1772.9]
    assert published("nothing") == []


def test_without_the_repository_there_is_nothing_published(tmp_path):
    assert published(path=tmp_path / "published.csv") is None
    assert PATH.parts[-2:] == ("results", "published.csv")


def test_families_come_from_the_environment_too(monkeypatch):
    monkeypatch.setenv("GPUKIT_FAMILIES", "fake=fake_family:FAMILY; other=a.b:C")
    assert families() == {**BUILT_IN, "fake": "fake_family:FAMILY", "other": "a.b:C"}
    assert load_family("fake").name == "fake"
    with pytest.raises(ArgumentError, match=r"cannot load a\.b:C"):
        load_family("other")
    with pytest.raises(ArgumentError, match=r"unknown family 'nope'; known: .*elementwise, fake"):
        load_family("nope")


@pytest.mark.parametrize("text", ["fake", "fake=", "=a:b", "fake=module"])
def test_a_malformed_variable_is_refused(monkeypatch, text):
    monkeypatch.setenv("GPUKIT_FAMILIES", text)
    with pytest.raises(ArgumentError, match="is not name=module:attribute"):
        families()


def test_the_package_loads_no_gpu_library_and_no_pandas():
    code = (
        "import sys, gpukit.bench.runner, gpukit.bench.store, gpukit.bench.compare\n"
        "print({'cupy', 'pandas', 'rich', 'matplotlib', 'torch'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert done.stdout.strip() == "set()"
