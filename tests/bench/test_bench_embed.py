"""Numbers in documents and kernels' headers come from result files and are up to date."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from gpukit.bench.embed import embedded, main
from gpukit.bench.model import Case, Row

ROOT = Path(__file__).resolve().parents[2]


def write_results(folder: Path, time_us: float) -> None:
    row = Row.of(Case("memcpy", "copy", "f32", {"n": 8}), "GPU", "sm_90", "env")
    row.status, row.time_us, row.gbs = "ok", time_us, 4000.0
    (folder / "r.json").write_text(json.dumps({"rows": [row.to_dict()]}))


def test_a_table_is_made_from_the_results_and_checked(tmp_path: Path) -> None:
    write_results(tmp_path, 2.5)
    page = tmp_path / "page.md"
    page.write_text("Before\n<!-- table: r.json n time_us -->\nold\n<!-- end of table -->\nAfter\n")
    runner = CliRunner()
    assert runner.invoke(main, [str(page), "--check"]).exit_code == 1
    assert runner.invoke(main, [str(page)]).exit_code == 0
    assert "2.500" in page.read_text()
    assert "4000" not in page.read_text()
    assert page.read_text().startswith("Before\n")
    assert page.read_text().endswith("After\n")
    assert runner.invoke(main, [str(page), "--check"]).exit_code == 0
    write_results(tmp_path, 3.5)
    assert runner.invoke(main, [str(page), "--check"]).exit_code == 1


def test_records_that_are_no_rows_make_a_table_too(tmp_path: Path) -> None:
    (tmp_path / "h.json").write_text(json.dumps({"rows": [{"call": "f(x)", "median_us": 1.234}]}))
    text = embedded("<!-- table: h.json -->\n<!-- end of table -->", tmp_path / "page.md")
    assert re.search(r"\| f\(x\) +\| +1\.234 \|", text)


def write_ladder(folder: Path) -> None:
    """Rungs 2 and 3 on two sizes, of which only 64^3 has a gain of 1.6."""
    rows = []
    for number, times in ((2, {64: 8.0, 128: 9.0}), (3, {64: 5.0, 128: 8.5})):
        for size, time_us in times.items():
            case = Case("matmul", f"matmul.k{number}", "bf16", dict.fromkeys("mnk", size))
            row = Row.of(case, "GPU", "sm_90", "env")
            row.status, row.time_us, row.tflops = "ok", time_us, 100.0 * number
            row.launch = {"kernel": f"matmul.sm90.k{number}"}
            row.peers = {"cublas": {"ratio": 0.75}} if number == 3 else {}
            rows.append(row.to_dict())
    summary = [{"peer": "cublas", "rows": 4, "geomean": 0.987}]
    (folder / "ladder.json").write_text(json.dumps({"rows": rows, "summary": summary}))


def table(words: str, page: Path) -> list[str]:
    return embedded(f"<!-- table: {words} -->\n<!-- end of table -->", page).splitlines()[1:-1]


def test_rows_and_columns_are_chosen_in_the_order_of_the_marker(tmp_path: Path) -> None:
    write_ladder(tmp_path)
    got = table("ladder.json m=64 gain kernel idea", tmp_path / "page.md")
    assert got[0] == "| gain | kernel | idea |"
    assert got[2].startswith("| - | matmul.k2 | TMA, mbarrier and wgmma")
    assert got[3].startswith("| 1.60 | matmul.k3 | 128-byte swizzle")
    assert len(got) == 4


def test_a_column_asked_for_is_shown_though_all_rows_agree(tmp_path: Path) -> None:
    write_ladder(tmp_path)
    content = json.loads((tmp_path / "ladder.json").read_text())
    for row in content["rows"]:
        row["launch"]["clk/mma"] = 128.01
    (tmp_path / "ladder.json").write_text(json.dumps(content))
    got = table("ladder.json m=64 kernel clk/mma MHz?", tmp_path / "page.md")
    assert got[0] == "| kernel | clk/mma |" and got[2] == "| matmul.k2 | 128.01 |"


@pytest.mark.parametrize("words", ["ladder.json MHz", "ladder.json kernel MHz m",
                                   "ladder.json#summary geomean MHz"])
def test_a_column_that_no_row_has_is_an_error(tmp_path: Path, words: str) -> None:
    write_ladder(tmp_path)
    page = tmp_path / "page.md"
    page.write_text(f"<!-- table: {words} -->\n<!-- end of table -->\n")
    for check in ([], ["--check"]):
        told = CliRunner().invoke(main, [str(page), *check])
        assert told.exit_code == 1
        assert "page.md: ladder.json has nothing for the column MHz; MHz? would" in told.output


def test_a_peer_that_cannot_run_has_a_column(tmp_path: Path) -> None:
    write_ladder(tmp_path)
    content = json.loads((tmp_path / "ladder.json").read_text())
    for row in content["rows"]:
        row["peers"]["fa3"] = {"reason": "not installed"}
    (tmp_path / "ladder.json").write_text(json.dumps(content))
    got = table("ladder.json m=64 xfa3", tmp_path / "page.md")
    assert got == ["| xfa3 |", "| ---: |", "| - |", "| - |"]


def test_the_idea_of_a_row_of_gpukit_matmul_is_its_configuration(tmp_path: Path) -> None:
    row = Row.of(Case("matmul", "matmul.auto", "bf16", {"m": 8}), "GPU", "sm_90", "env")
    row.launch = {"config": "gemm:bm=128,bn=256"}
    (tmp_path / "auto.json").write_text(json.dumps({"rows": [row.to_dict()]}))
    got = table("auto.json idea", tmp_path / "page.md")
    assert got[2:] == ["| gemm:bm=128,bn=256 |"]


def test_figures_of_others_stand_beside_a_rung(tmp_path: Path) -> None:
    write_ladder(tmp_path)
    got = table("ladder.json m=64 kernel published", tmp_path / "page.md")
    assert got[0] == "| kernel | published |"
    assert got[2:] == ["| matmul.k2 | 155 TFLOP/s on B200 |",
                       "| matmul.k3 | 295.6 TFLOP/s on B200 |"]


def test_a_summary_makes_a_table_too(tmp_path: Path) -> None:
    write_ladder(tmp_path)
    got = table("ladder.json#summary peer geomean", tmp_path / "page.md")
    assert got == ["| peer | geomean |", "| --- | ---: |", "| cublas | 0.987 |"]


@pytest.mark.parametrize(("stem", "size", "said"), [
    ("k3_swizzle", 64, "300.0 TFLOPS, 1.60 times the rung before, 0.75 of cuBLAS."),
    ("k2_tma", 64, "200.0 TFLOPS."),  # no rung before it was measured
    ("k3_swizzle", 128, "300.0 TFLOPS, 1.06 times the rung before, 0.75 of cuBLAS."),
    ("k4_tma_store", 64, "not yet."),
    ("k3_swizzle", 256, "not yet."),
])
def test_a_header_says_what_was_measured_of_its_rung(
        tmp_path: Path, stem: str, size: int, said: str) -> None:
    write_ladder(tmp_path)
    source = tmp_path / "src" / "sm90" / f"{stem}.cu"
    source.parent.mkdir(parents=True)
    marker = f"// Measured at {size}^3 (ladder.json):\n// "
    source.write_text(f"// Napkin\n{marker}not yet.\n//\nint x;\n")
    assert CliRunner().invoke(main, [str(source)]).exit_code == 0
    assert source.read_text() == f"// Napkin\n{marker}{said}\n//\nint x;\n"


@pytest.mark.parametrize(("stem", "size", "said"), [
    ("k7_pieces", 64, "1400.5 TFLOP/s on B200, 700 TFLOP/s on H200."),
    ("k7_pieces", 128, "nothing."),
    ("k70_pieces", 64, "nothing."),
])
def test_a_header_says_what_others_published_of_its_rung(
        tmp_path: Path, stem: str, size: int, said: str) -> None:
    (tmp_path / "published.csv").write_text(
        "family,row,gpu,problem,value,unit,source\n"
        'matmul,kernel 7 pieces,B200,"64x64x64 bf16",1400.5,TFLOP/s,here\n'
        'matmul,kernel 7 pieces,H200,"64x64x64 bf16",700,TFLOP/s,there\n'
        'matmul,kernel 6 ring,B200,"64x64x64 bf16",1,TFLOP/s,here\n')
    source = tmp_path / f"{stem}.cu"
    marker = f"// Published for {size}^3 (published.csv):\n// "
    source.write_text(f"{marker}?\n//\nint x;\n")
    assert CliRunner().invoke(main, [str(source)]).exit_code == 0
    assert source.read_text() == f"{marker}{said}\n//\nint x;\n"


def test_results_that_are_not_there_are_said_to_be_missing(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- table: r.json n -->\n| 1 |\n<!-- end of table -->\n")
    told = CliRunner().invoke(main, [str(page)])
    assert "there is no r.json" in told.output
    assert "\nNot measured yet.\n" in page.read_text()


def test_every_document_and_header_shows_what_the_results_hold() -> None:
    files = [ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("cuda_src/matmul/*/*.cu")]
    texts = {file: file.read_text(encoding="utf-8") for file in files}
    assert "<!-- table: results/" in texts[ROOT / "README.md"]
    rungs = [file for file in files if re.match(r"k\d", file.name)]
    assert rungs and all(re.search("// (Measured at|Published for) ", texts[file])
                         for file in rungs)
    stale = [file for file, text in texts.items() if embedded(text, file) != text]
    assert not stale, f"run python -m gpukit.bench.embed {' '.join(map(str, stale))}"
