"""``gpukit study`` as users run it, without a GPU: counted, reported, resumed, refused."""

from __future__ import annotations

import json
import subprocess

import pytest
from cli_process import COMMAND, environment

pytest.importorskip("cuda.bindings.nvrtc")

STUDY = ("study", "elementwise")


def test_a_study_writes_its_folder_and_goes_on_from_it(gpukit, tmp_path):
    done = gpukit(*STUDY, "--device", "emu:h100", "--out", "a/b")
    assert (done.code, done.out) == (0, "")
    assert "emulated GPU: instructions, sectors and bytes are counted" in done.err
    folder = tmp_path / "a" / "b"
    assert {"rows.json", "facts.json", "report.md"} <= {p.name for p in folder.iterdir()}
    written = (folder / "report.md").read_text()
    refused = gpukit(*STUDY, "--device", "emu:h100", "--out", "a/b")
    assert refused.code == 2 and "exists; add --resume to continue it or --force" in refused.err
    document = json.loads((folder / "rows.json").read_text())
    document["rows"] = document["rows"][:6]  # a contest, and the first row of another
    (folder / "rows.json").write_text(json.dumps(document))
    resumed = gpukit(*STUDY, "--device", "emu:h100", "--out", "a/b", "--resume")
    assert resumed.code == 0 and "13 cases, 5 kept from before" in resumed.err
    assert (folder / "report.md").read_text() == written


def test_a_report_is_made_again_from_what_lies_there(gpukit, tmp_path):
    (tmp_path / "rows.json").write_text("[]")
    assert "facts.json cannot be read" in gpukit(*STUDY, "--out", ".", "--report-only").err
    device = {"timed": True, "name": "Some GPU", "arch": "sm_90", "sm_count": 10,
              "threads_per_sm": 2048, "l2_bytes": 1 << 20, "memory_bytes": 1 << 30}
    (tmp_path / "facts.json").write_text(json.dumps({"device": device, "memory": {}, "turns": []}))
    done = gpukit(*STUDY, "--out", ".", "--report-only")
    assert done.code == 0
    text = (tmp_path / "report.md").read_text()
    assert text.startswith("# Elementwise bandwidth: a study on Some GPU\n")
    assert "Not answered: the rows for it were not measured." in text


def test_a_folder_of_another_device_is_not_continued(gpukit, tmp_path):
    assert gpukit(*STUDY, "--device", "emu:h100", "--out", "a").code == 0
    rows, facts = tmp_path / "a" / "rows.json", tmp_path / "a" / "facts.json"
    rows.write_text(rows.read_text().replace('"device": "emu:h100"', '"device": "Some GPU"'))
    before = facts.read_text()
    done = gpukit(*STUDY, "--device", "emu:h100", "--out", "a", "--resume")
    assert done.code == 2 and "rows of Some GPU, facts of emulated H100" in done.err
    assert facts.read_text() == before


def test_instructions_are_counted_for_any_target(gpukit):
    pytest.importorskip("gpukit.study.sass").disassembler()
    done = gpukit(*STUDY, "--sass-only", "--arch", "sm_80", "--listing")
    assert done.code == 0 and done.err == ""
    line = next(line for line in done.out.splitlines() if "stride_copy" in line and "u64" in line)
    assert line.split() == ["elementwise.stride_copy", "sm_80", "1", "u64", "14", "14", "8"]
    assert "LDG.E.128" in done.out


def test_a_closed_pipe_ends_it_quietly(tmp_path):
    with subprocess.Popen([*COMMAND, *STUDY, "--device", "emu:h100", "--dry-run"],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(),
                          cwd=tmp_path) as process:
        process.stdout.close()
        err = process.stderr.read().decode()
        process.wait(60)
    assert "Traceback" not in err and "Error" not in err


@pytest.mark.parametrize(("arguments", "message"), [
    (("--resume",), "--resume needs --out FOLDER"),
    (("--resume", "--force", "--out", "a"), "--resume and --force exclude each other"),
    (("--report-only",), "--report-only needs --out FOLDER"),
    (("--arch", "sm_80"), "--arch and --listing go with --sass-only"),
    (("--sass-only", "--arch", "h100"), "arch='h100'"),
    (("--sass-only", "--arch", "sm_70"), "sm_75 or newer"),
    (("--budget", "-1"), "not a number above 0"),
    (("--device", "gpu9"), "gpu9"),
])
def test_errors_name_the_argument(gpukit, arguments, message):
    done = gpukit(*STUDY, *arguments)
    assert done.code == 2
    assert done.err.count("\n") == 1 and message in done.err


def test_a_file_is_no_folder(gpukit, tmp_path):
    (tmp_path / "out").write_text("")
    done = gpukit(*STUDY, "--device", "emu:h100", "--out", "out")
    assert done.code == 2 and "--out out is a file; the study needs a folder" in done.err


def test_an_unknown_study_lists_the_known(gpukit):
    done = gpukit("study", "matmul")
    assert done.code == 2 and "unknown command 'matmul'; known: elementwise" in done.err
