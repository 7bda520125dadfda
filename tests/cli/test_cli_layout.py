"""``gpukit layout`` and ``gpukit demo``: pictures in pipes and terminals, files, refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from gpukit_cli import terminal
from gpukit_cli.layout import _KINDS
from gpukit_cli.main import main


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(words)
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.parametrize("kind", list(_KINDS))
def test_every_layout_draws_itself(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "layout", kind)
    assert (code, err) == (0, "")
    assert "colour: " in out and "\x1b" not in out


def test_a_narrow_terminal_leaves_columns_out(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal, "width", lambda stream: 50)
    code, out, err = run(capsys, "layout", "wgmma-d", "--n", "16", "--rows", "0:2")
    assert code == 0
    assert max(map(len, out.splitlines())) <= 50
    assert "of 16" in err and "--out draws all" in err


@pytest.mark.parametrize(("variables", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_colours_are_for_terminals_that_want_them(
    variables: dict[str, str], coloured: bool, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(terminal, "interactive", lambda stream: True)
    _, out, _ = run(capsys, "layout", "ldmatrix")
    assert ("\x1b[" in out) == coloured
    assert "0x80 x8" in out


@pytest.mark.parametrize(("words", "idle"), [
    ("wgmma-a --place registers --major mn", "--major"),
    ("ldmatrix --show registers --row-bytes 64", "--row-bytes"), ("ldmatrix --trans", "--trans"),
    ("tcgen05-ld --split 4", "--split")])
def test_an_option_that_would_change_nothing_is_refused(
        words: str, idle: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "layout", *words.split())
    assert (code, out) == (2, "") and f"{idle} means nothing with --" in err


def test_a_file_holds_the_window(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "d.json"
    code, out, err = run(capsys, "layout", "wgmma-d", "--rows", "8", "--columns", "6:", "--out",
                         str(file))
    assert (code, out, err) == (0, "", f"wrote {file}\n")
    cells = json.loads(file.read_text())["cells"]
    assert [(cell["m"], cell["n"], cell["thread"], cell["register"]) for cell in cells] == [
        (8, 6, 3, 2), (8, 7, 3, 3)]


@pytest.mark.parametrize(("words", "complaint"), [
    (("wgmma-c",), "unknown layout 'wgmma-c'; known: wgmma-a"),
    (("wgmma-b", "--n", "12"), "'12' is not a multiple of 8"),
    (("wgmma-b", "--dtype", "tf32", "--major", "mn"), "only 16-bit types"),
    (("wgmma-d", "--rows", "64:"), "nothing is there; the picture has 64 rows"),
    (("wgmma-d", "--rows", "a"), "'a' is not of the form FIRST:END"),
    (("swizzle", "--out", "x.pdf"), "the name must end in .svg"),
    (("tmem", "--m", "32"), "cta_group::1 has 64, 128"),
])
def test_a_refusal_is_one_line(words: tuple[str, ...], complaint: str,
                               capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "layout", *words)
    assert code == 2 and not out
    assert complaint in err and len(err.splitlines()) == 1


def test_a_demo_prints_what_it_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    file = tmp_path / "found.json"
    code, out, _ = run(capsys, "demo", "wgmma", "--case", "plain", "--device", "emu:h100",
                       "--out", str(file))
    assert code == 0
    assert out.count("as predicted") == 3
    assert "m64n8k16 on emu:h100: A in shared memory" in out
    [found] = json.loads(file.read_text())
    assert found["ok"] and found["a"]["found"][1][8] == 1024 + 16


def test_a_demo_needs_a_known_case(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "demo", "wgmma", "--case", "nope", "--device", "emu:h100")
    assert code == 2 and "case 'nope' is unknown" in err
