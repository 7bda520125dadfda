"""Errors are one line that says what to do, with the right exit code."""

from __future__ import annotations

import pytest

GONE = "/proc/gpukit/r.json"

ERRORS = [
    (("bogus",), 2, "unknown command 'bogus'; known: bench, list"),
    (("--bogus",), 2, "No such option"),
    (("bench", "bogus"), 2, "unknown family 'bogus'; known: attention, attention-decode"),
    (("bench", "fake", "--bogus"), 2, "No such option"),
    (("bench", "fake", "--kernel", "cube"), 2, "--kernel': 'cube' is not one of scale, fast"),
    (("bench", "fake", "--n", "12q"), 2, "--n': '12q' is not an integer"),
    (("bench", "fake", "--n", "666"), 2, "fake: no case fits"),
    (("bench", "fake", "--dtype", "f64"), 2, "'f64' is not one of f32, bf16, all"),
    (("bench", "fake", "--peer", "cublas"), 2, "'cublas' is not one of twin, slowpoke, none"),
    (("bench", "fake", "--l2", "cold"), 2, "'cold' is not one of flush, rotate, hot"),
    (("bench", "fake", "--method", "graph", "--l2", "flush"), 2, "flush"),
    (("bench", "fake", "--budget", "0"), 2, "--budget"),
    (("bench", "fake", "--budget", "x"), 2, "'x' is not a number above 0"),
    (("bench", "fake", "--budget", "inf"), 2, "'inf' is not a number above 0 and at most"),
    (("bench", "fake", "--timeout", "nan"), 2, "'nan' is not a number above 0"),
    (("bench", "fake", "--timeout", "1e20"), 2, "'1e20' is not a number above 0"),
    (("bench", "timer", "--device", "²"), 2, "device '²'"),
    (("bench", "elementwise", "--grid", "3000000000"), 2, "at most 2147483647"),
    (("bench", "elementwise", "--waves", "99999999999"), 2, "at most 2147483647"),
    (("bench", "matmul", "--shape", "1:9999x1:9999x1:9999", "--dry-run"), 2, "999700029999 shapes"),
    (("bench", "elementwise", "--grid", "1:9999", "--waves", "1:9999"), 2, "combinations; at most"),
    (("bench", "elementwise", "--size", "64M"), 2, "64MiB = 64 x 2^20, 64MB = 64 x 10^6"),
    (("bench", "fake", "--format", "xml"), 2, "'xml' is not one of"),
    (("bench", "fake", "--sort", "price"), 2, "'price' is not one of"),
    (("bench", "fake", "--resume"), 2, "--resume needs --out"),
    (("bench", "fake", "--out", "a.json", "--resume", "--force"), 2,
     "--resume and --force exclude each other"),
    (("bench", "fake", "--out", "r.txt"), 2, "must end in .json, .csv or .md"),
    (("bench", "fake", "--out", GONE), 2, f"--out {GONE} cannot be written"),
    (("bench", "fake", "--out", GONE, "--device", "none"), 2, "cannot be written"),
    (("bench", "fake", "--timeout", "5", "--no-isolate"), 2, "--timeout needs a worker"),
    (("bench", "fake", "--device", "none"), 3, "no fake device here"),
    (("bench", "fake", "--device", "none", "--no-isolate"), 3, "--dry-run"),
    (("bench", "fake", "--device", "crash"), 1, "ended with exit code 7"),
    (("model", "matmul", "--ladder", "a.json"), 2, "--ladder: there is no a.json"),
    (("model", "matmul", "--ladder", __file__), 2, "is not JSON: "),
    (("model", "matmul", "--out", GONE), 2, f"--out {GONE} cannot be written: No such file"),
    (("show", "nope"), 2, "unknown kernel 'nope'; known kernels: attention."),
    (("show", "matmul", "--shape", "3000000000x8x8"), 2, "shape is 3000000000x8x8; accepted: si"),
    (("show",), 2, "Missing argument 'NAME'"),
    (("list", "zzz"), 2, "no kernel matches 'zzz'"),
    (("compare", "a.json"), 2, "Missing argument 'NEW'"),
    (("compare", "a.json", "b.json"), 2, "a.json cannot be read: No such file"),
    (("compare", "a", "b", "--noise", "5"), 2, "'5' is not a share; write 5% or 0.05"),
    (("report", "a.json"), 2, "a.json cannot be read"),
    (("plot", "a.json"), 2, "a.json cannot be read"),
]


@pytest.mark.parametrize(("arguments", "code", "words"), ERRORS, ids=lambda value: str(value)[:60])
def test_an_error_is_one_line_with_its_exit_code(gpukit, arguments, code, words):
    done = gpukit(*arguments)
    assert done.code == code
    assert done.out == ""
    (line,) = done.err.splitlines()
    assert line.startswith("gpukit: error: ")
    assert words in line


def test_debug_adds_the_traceback_wherever_it_stands(gpukit):
    for arguments in (("--debug", "show", "nope"), ("show", "nope", "--debug")):
        done = gpukit(*arguments)
        assert done.code == 2
        assert "Traceback" in done.err
        assert done.err.splitlines()[-1].startswith("gpukit: error: unknown kernel")


def test_debug_shows_where_a_case_failed(gpukit):
    arguments = ("bench", "fake", "--kernel", "raises")
    assert "Traceback" not in gpukit(*arguments).err
    assert "fake_family.py" in gpukit(*arguments, "--debug").err


@pytest.mark.parametrize(
    ("kernels", "code"),
    [
        ("scale", 0),
        ("scale,unsupported", 0),
        ("fast", 0),
        ("unsupported", 2),
        ("scale,wrong", 1),
        ("raises", 1),
        ("dies,scale", 1),
    ],
)
def test_what_a_sweep_exits_with(gpukit, kernels, code):
    done = gpukit("bench", "fake", "--kernel", kernels)
    assert done.code == code
    assert "Traceback" not in done.err
    if kernels == "unsupported":
        assert done.err.splitlines()[-1] == "gpukit: error: needs sm_100a, this GPU is sm_99"


def test_a_timeout_costs_one_row(gpukit):
    done = gpukit("bench", "fake", "--kernel", "hangs,scale", "--timeout", "1")
    assert done.code == 1
    assert "incomplete" in done.out
    assert "no answer after 1 s" in done.out


def test_no_arguments_show_the_help(gpukit):
    for arguments in ((), ("bench",)):
        done = gpukit(*arguments)
        assert done.code == 2
        assert done.err.startswith("Usage: gpukit")
        assert len(done.err.splitlines()) > 5


def test_a_cache_that_cannot_be_created_names_the_variable(gpukit):
    pytest.importorskip("cupy")
    done = gpukit("bench", "memcpy", CUPY_CACHE_DIR="/proc/gpukit")
    assert done.code == 3
    assert "set CUPY_CACHE_DIR" in done.err
    assert len(done.err.splitlines()) == 1


def test_results_are_not_overwritten_unasked(gpukit, tmp_path):
    arguments = ("bench", "fake", "--no-isolate", "--out", "new/dir/r.json")
    assert gpukit(*arguments).code == 0
    done = gpukit(*arguments)
    assert done.code == 2
    assert "exists; add --resume to continue it or --force" in done.err
    assert gpukit(*arguments, "--force").code == 0
    assert gpukit(*arguments, "--resume").code == 0


def test_a_family_that_does_not_load_hides_no_other(gpukit):
    both = {"GPUKIT_FAMILIES": "fake=fake_family:FAMILY;broken=nowhere:FAMILY"}
    done = gpukit("bench", "--help", **both)
    assert done.code == 0
    assert "cannot load nowhere:FAMILY" in " ".join(done.out.split())
    assert gpukit("bench", "fake", "--dry-run", **both).code == 0
    assert gpukit("bench", "broken", **both).code == 2


def test_a_malformed_family_variable_is_named(gpukit):
    done = gpukit("bench", "fake", GPUKIT_FAMILIES="fake")
    assert done.code == 2
    assert "GPUKIT_FAMILIES: 'fake' is not name=module:attribute" in done.err
