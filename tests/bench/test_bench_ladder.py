"""Rungs among rows: gains over the one before, figures of others, the summary against peers."""

from __future__ import annotations

import json
import math

import pytest
from test_bench_views import make_row

from gpukit.bench.columns import columns_for
from gpukit.bench.formats import to_markdown
from gpukit.bench.ladder import gains, rung
from gpukit.bench.published import Published, published, published_column
from gpukit.bench.report import report
from gpukit.bench.rows import Row
from gpukit.bench.summary import standings, summary_cells


@pytest.mark.parametrize(("kernel", "place"), [
    ("matmul.k7", ("matmul.k", 7)),
    ("matmul.sm90.k7", ("matmul.k", 7)),
    ("matmul.sm80.a2", ("matmul.a", 2)),
    ("matmul.auto", None),
    ("elementwise.copy", None),
    ("matmul.sm80.a2_reduce", None),
])  # fmt: skip
def test_a_rung_is_a_ladder_and_a_number(kernel, place):
    assert rung(kernel) == place


def test_gain_is_over_the_next_lower_rung_that_has_a_time():
    rows = [
        make_row(1, "matmul.k4", time_us=10.0), make_row(1, "matmul.k1", time_us=100.0),
        make_row(1, "matmul.k2", status="unsupported"), make_row(1, "matmul.k3", time_us=40.0),
        make_row(1, "matmul.auto", time_us=1.0), make_row(2, "matmul.k4", time_us=5.0),
        make_row(1, "matmul.k5", time_us=2.0, load="sustained"),
    ]  # fmt: skip
    found = gains(rows)
    assert found == {rows[0].key: pytest.approx(4), rows[3].key: pytest.approx(2.5)}
    column = next(column for column in columns_for(rows) if column.header == "gain")
    assert [column.cell(row) for row in rows[:4]] == ["4.00", "-", "-", "2.50"]


def ladder_row(kernel, shape=(4096, 4096, 4096), dtype="bf16", layout="nt") -> Row:
    row = make_row(1, kernel, params={"layout": layout, "out": dtype}, family="matmul")
    row.shape, row.dtype = dict(zip("mnk", shape, strict=True)), dtype
    return row


def test_published_rungs_stand_beside_ours():
    rows = [ladder_row("matmul.k7"), ladder_row("matmul.sm100.k8"), ladder_row("matmul.k9"),
            ladder_row("matmul.k7", (8192, 8192, 8192)), ladder_row("matmul.k7", dtype="f16"),
            ladder_row("matmul.k7", layout="nn"), ladder_row("matmul.sm80.a1")]
    figures = published()
    column = published_column(rows, figures)
    assert [column.cell(row) for row in rows] == ["1493 on B200", "1772.9 on B200", *["-"] * 5]
    assert published_column(rows[2:], figures) is None


def test_every_published_rung_is_found():
    figures = [figure for figure in published("matmul") if figure.row.startswith("kernel ")]
    rows = [ladder_row(f"matmul.k{number}") for number in range(1, 9)]
    column = published_column(rows, figures)
    assert [column.cell(row) for row in rows] == [f"{f.value:g} on {f.gpu}" for f in figures]


def test_several_gpus_are_told_apart():
    def figure(gpu, value):
        return Published("matmul", "kernel 7 x", gpu, "4096x4096x4096 bf16, B transposed", value,
                         "TFLOP/s", "")

    row = ladder_row("matmul.k7")
    column = published_column([row], [figure("B200", 2.5), figure("H200", 700.0)])
    assert column.cell(row) == "2.5 on B200 700 on H200"


def met(n, ratio, kernel="scale", peer="twin", **changes):
    return make_row(n, kernel, peers={peer: {"time_us": 1.0, "ratio": ratio}}, **changes)


def test_the_summary_is_mean_losses_and_worst_row():
    (one,) = standings([met(1, 2.0), met(2, 0.5), met(3, 0.949), met(4, 0.95)])
    assert one.rows == 4
    assert one.geomean == pytest.approx(math.prod([2.0, 0.5, 0.949, 0.95]) ** 0.25)
    assert (one.below, one.worst, one.problem) == (2, 0.5, "2 f32")


def test_only_rows_with_both_times_count():
    rows = [met(1, 2.0), make_row(2, peers={"twin": {"reason": "no"}}),
            met(3, 0.1, status="wrong"), make_row(4)]
    (one,) = standings(rows)
    assert (one.rows, one.geomean) == (1, pytest.approx(2.0))
    assert summary_cells(rows) == []  # a mean of one says nothing


def test_kernels_loads_and_peers_are_summed_up_apart():
    rows = [met(1, 1.5), met(2, 1.5), met(1, 3.0, load="sustained"), met(1, 0.9, "fast"),
            met(1, 0.5, peer="other", load="sustained")]
    lines = summary_cells(rows)
    assert [line[:2] for line in lines] == [
        ["twin", "scale burst"], ["twin", "scale sustained"], ["twin", "fast burst"],
        ["other", "scale sustained"],
    ]  # fmt: skip
    assert lines[0][2:] == ["2", "1.500", "0", "1.500 at 1 f32"]


def test_markdown_and_reports_hold_the_summary():
    rows = [met(1, 2.0), met(2, 0.5)]
    assert "| twin | scale | 2 | 1.000 | 1 | 0.500 at 2 f32 |" in to_markdown(rows)
    page = report({"rows": [json.loads(json.dumps(row.to_dict())) for row in rows]})
    assert "| twin | scale | 2 | 1.000 | 1 | 0.500 at 2 f32 |" in page
    assert "- **geomean**" in page
    assert "geomean" not in report({"rows": [rows[0].to_dict()]})
