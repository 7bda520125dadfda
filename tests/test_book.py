"""The book builds without a warning, and does not build where a number is missing."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("sphinx")
pytest.importorskip("myst_parser")

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of what the book is made from, to write into."""
    ignored = shutil.ignore_patterns("generated", "_build", "__pycache__")
    for name in ("docs", "results", "cuda_src"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=ignored)
    shutil.copy(ROOT / "README.md", tmp_path)
    (tmp_path / "gpukit").symlink_to(ROOT / "gpukit")
    return tmp_path


def build(checkout: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html",
               str(checkout / "docs"), str(checkout / "html")]
    return subprocess.run(command, capture_output=True, text=True)


def without_rows_of(kernel: str, results: Path) -> None:
    content = json.loads(results.read_text(encoding="utf-8"))
    content["rows"] = [row for row in content["rows"] if row["kernel"] != kernel]
    results.write_text(json.dumps(content), encoding="utf-8")


def test_the_book_builds_without_a_warning(checkout: Path) -> None:
    built = build(checkout)
    assert built.returncode == 0, built.stderr
    page = checkout / "html" / "generated" / "kernels" / "matmul-sm90" / "k3_swizzle.html"
    row = next(row for row in json.loads(
        (checkout / "results" / "h200" / "matmul_ladder.json").read_text(encoding="utf-8"))["rows"]
        if row["kernel"] == "matmul.k3")
    assert f"{row['tflops']:.2f}" in page.read_text(encoding="utf-8")


def test_a_kernel_that_was_not_measured_stops_the_build(
        checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    from book.ladders import write
    from book.numbers import MissingNumberError

    write(checkout, checkout / "kernels")
    without_rows_of("matmul.k7", checkout / "results" / "emulated" / "matmul_ladder_b200.json")
    with pytest.raises(MissingNumberError, match=r"b200\.json: no row of matmul\.sm100\.k7"):
        write(checkout, checkout / "kernels")


def test_an_edited_number_stops_the_build(checkout: Path) -> None:
    document = checkout / "docs" / "matmul.md"
    text = document.read_text(encoding="utf-8")
    assert "| matmul.k3 |" in text
    document.write_text(text.replace("| matmul.k3 |", "| matmul.k33 |", 1), encoding="utf-8")
    built = build(checkout)
    assert built.returncode != 0
    assert "its numbers are not those of the results" in built.stderr
