"""The figures: one for each question with something to show, the same for the same rows."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from clocked import GPU, facts, rows

pytest.importorskip("matplotlib")

from gpukit.study import design, figures
from gpukit.study.report import QUESTIONS, report

CASES = design.cases(GPU, design.QUICK)


def test_every_figure_is_drawn_and_shown_by_its_question(tmp_path: Path) -> None:
    measured = rows(CASES)
    drawn = figures.draw(measured, facts(), tmp_path)
    assert set(drawn) == {"l2", "grids", "widths", "indices", "sms", "defaults", "others"}
    assert set(drawn) <= set(QUESTIONS)
    text = report(measured, facts(), drawn)
    for name in drawn.values():
        assert (tmp_path / name).read_text().lstrip().startswith("<?xml")
        assert f"]({name})" in text


@pytest.fixture
def one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first figure stands for all."""
    monkeypatch.setattr(figures, "_FIGURES", {"l2": figures._FIGURES["l2"]})


@pytest.mark.usefixtures("one")
def test_equal_rows_give_equal_files(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        figures.draw(rows(CASES), facts(), tmp_path / folder)
    for file in (tmp_path / "a").iterdir():
        assert file.read_bytes() == (tmp_path / "b" / file.name).read_bytes()


@pytest.mark.usefixtures("one")
def test_rounded_samples_beside_an_exact_median_are_drawn(tmp_path: Path) -> None:
    """The interval of samples that are all alike may miss the median by the rounding."""
    alike = [dataclasses.replace(row, samples_us=[round(row.time_us or 0, 1)] * 20)
             for row in rows(CASES)]
    assert "l2" in figures.draw(alike, facts(), tmp_path)


def test_no_rows_no_figures(tmp_path: Path) -> None:
    assert figures.draw([], facts(), tmp_path) == {}
    assert not list(tmp_path.iterdir())
