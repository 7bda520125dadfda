"""Numbers in Markdown files come from result files, and the README's are up to date."""

from __future__ import annotations

import json
import re
from pathlib import Path

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
    text = embedded("<!-- table: h.json -->\n<!-- end of table -->", tmp_path)
    assert re.search(r"\| f\(x\) +\| +1\.23 \|", text)


def test_the_readme_shows_what_the_results_hold() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "<!-- table: results/" in text
    assert embedded(text, ROOT) == text
