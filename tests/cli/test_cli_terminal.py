"""Output on a pseudo-terminal: colours, a progress bar, and numbers that are never cut."""

from __future__ import annotations

import re

import pytest

# 8 x 1234567 bytes at 2000 GB/s, and at 8000 GB/s
TIMES = ("4.938", "1.235")
BENCH = ("bench", "fake", "--n", "1234567", "--kernel", "scale,fast,wrong", "--no-isolate")
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


def plain(text: str) -> str:
    return ESCAPE.sub("", text)


@pytest.mark.parametrize("width", [250, 150, 120, 100, 80, 70])
def test_columns_give_way_but_numbers_stay_whole(terminal, width):
    done = terminal(*BENCH, width=width, pipe="stderr")
    assert done.code == 1
    text = plain(done.out)
    assert "…" not in text
    rows = [line for line in text.splitlines() if line.startswith(("kernel", "scale", "fast"))]
    assert len(rows) == 3
    assert all(len(row) <= width for row in rows)
    for row, time_us in zip(rows[1:], TIMES, strict=True):
        assert "1234567" in row
        assert time_us in row
        assert row.rstrip().endswith("ok")
    assert ("sm_MHz" in rows[0]) == (width >= 150)


def test_a_wider_terminal_never_shows_less(terminal):
    shown = [
        len(next(line for line in plain(terminal(*BENCH, width=w, pipe="stderr").out).splitlines()
                 if line.startswith("kernel")).split())
        for w in (70, 90, 110, 250)
    ]  # fmt: skip
    assert shown == sorted(shown)
    assert shown[0] < shown[-1]


@pytest.mark.parametrize("width", [40, 20, 5])
def test_very_little_room_stacks_the_columns(terminal, width):
    done = terminal(*BENCH, width=width, pipe="stderr")
    lines = plain(done.out).splitlines()
    for time_us in TIMES:
        assert any(re.fullmatch(rf"time_us +{time_us}", line) for line in lines)
    assert sum(line.startswith("sm_MHz") for line in lines) == 3  # nothing is left out


def test_colours_on_a_terminal_only_where_wanted(terminal):
    assert "\x1b[32m" in terminal(*BENCH, width=200, pipe="stderr").out
    for variables in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        assert "\x1b" not in terminal(*BENCH, width=200, pipe="stderr", **variables).out


def test_the_bar_shows_on_a_terminal_and_leaves_no_trace_in_the_results(terminal):
    done = terminal(*BENCH, width=100, pipe="stdout")
    assert "/3" in plain(done.err)
    assert "\x1b" in done.err
    assert "\x1b" not in done.out
    assert done.out.splitlines()[0].startswith("fake on Fake GPU")


@pytest.mark.parametrize("variables", [{"TERM": "dumb"}, {"TERM": ""}])
def test_no_bar_where_the_cursor_cannot_move(terminal, variables):
    done = terminal(*BENCH, pipe="stdout", **variables)
    assert "\x1b" not in done.err
    assert len(done.err.splitlines()) == 1


def test_no_bar_without_colour_is_still_a_bar(terminal):
    done = terminal(*BENCH, pipe="stdout", NO_COLOR="1")
    assert "/3" in plain(done.err)
    assert not re.search(r"\x1b\[[0-9;]*m", done.err)


@pytest.mark.parametrize("width", [30, 80, 300])
def test_ascii_terminals_get_ascii(terminal, width):
    done = terminal(*BENCH, width=width, LC_ALL="C", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert done.code == 1
    assert plain(done.out).isascii()
    assert TIMES[0] in plain(done.out)


def test_help_fits_the_terminal(terminal):
    for arguments in (("--help",), ("bench", "elementwise", "--help")):
        lines = plain(terminal(*arguments, width=60).out).splitlines()
        assert max(map(len, lines)) <= 60


def test_kernels_fit_the_terminal(terminal):
    lines = plain(terminal("list", width=60).out).splitlines()
    assert max(map(len, lines)) <= 60
    assert any(line.startswith("matmul.k1") for line in lines)
