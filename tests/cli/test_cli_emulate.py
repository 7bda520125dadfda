"""``gpukit emulate``: arguments, counters, reports and exit codes, as a user sees them."""

from __future__ import annotations

import json

import numpy as np
import pytest

from gpukit.emulator import RULES

SAXPY = r"""
extern "C" __global__ void saxpy(float a, const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i] + y[i];
}
extern "C" __global__ void stride(int* y) {
  __shared__ volatile int s[1024];
  s[threadIdx.x * STRIDE] = 7;
  y[threadIdx.x] = s[threadIdx.x * STRIDE];
}
extern "C" __global__ void race(int* y) {
  __shared__ int s[64];
  s[threadIdx.x] = 1;
  y[threadIdx.x] = s[63 - threadIdx.x];
}
extern "C" __global__ void who(int* y) {
  int before = atomicAdd(y, 1);
  if (threadIdx.x % 32 == 0) y[1 + threadIdx.x / 32] = before;
}
extern "C" __global__ void hello() { printf("hello from %d\n", (int)blockIdx.x); }
"""
SMALL = ["k.cu", "--define", "STRIDE=4"]


@pytest.fixture
def emulate(gpukit, tmp_path):
    (tmp_path / "k.cu").write_text(SAXPY)
    return lambda *words, **variables: gpukit("emulate", *SMALL, *words, **variables)


def saxpy(*more):
    return ["--kernel", "saxpy", "--grid", "4", "--block", "256", *more]


ARGS = ["--arg", "f32=2", "--arg", "f32:1000=arange", "--arg", "f32:1000=1", "--arg", "i32=1000"]


def test_runs_saves_and_counts(emulate, tmp_path):
    done = emulate(*saxpy(*ARGS), "--save", "2=y.npy", "--print", "2")
    assert done.code == 0, done.err
    assert (np.load(tmp_path / "y.npy") == 2 * np.arange(1000) + 1).all()
    assert "args[2], float32 [1000]:\n[1.000e+00 3.000e+00" in done.out
    loads, stores = (next(line for line in done.out.splitlines() if line.startswith(word))
                     for word in ("loads", "stores"))  # fmt: skip
    assert loads.split() == ["loads", "64", "250", "64", "8000", "3.91"]
    assert stores.split()[:3] == ["stores", "32", "125"]
    assert "k.cu:4" in done.out
    assert "if (i < n) y[i] = a * x[i] + y[i];" in done.out


def test_json(emulate):
    done = emulate(*saxpy(*ARGS), "--format", "json", "--print", "2", "--policy", "early")
    document = json.loads(done.out)
    (trial,) = document["trials"]
    assert trial["policy"] == "early"
    assert trial["fault"] is None
    assert trial["counters"]["global_loads"]["bytes"] == 8000
    assert document["arrays"]["2"][:3] == [1, 3, 5]


def test_bank_conflicts(emulate):
    done = emulate("--kernel", "stride", "--arg", "out:i32:32")
    row = next(line.split() for line in done.out.splitlines() if line.startswith("loads"))
    assert row == ["loads", "1", "4", "1", "128", "3"]


def test_a_fault_is_reported_with_its_lines(emulate, tmp_path):
    words = ["--kernel", "race", "--block", "64", "--arg", "out:i32:64", "--save", "0=y.npy"]
    done = emulate(*words)
    assert done.code == 1
    assert done.out.startswith("DataRaceError (policy random, seed 0)\nrace, k.cu:14")
    assert "CTA (0, 0, 0), warp" in done.out
    assert "address 0x" in done.out
    assert "  k.cu:14                   y[threadIdx.x] = s[63 - threadIdx.x];" in done.out
    assert not (tmp_path / "y.npy").exists()
    fault = json.loads(emulate(*words, "--format", "json").out)["trials"][0]["fault"]
    assert fault["kind"] == "DataRaceError"
    assert "k.cu:14" in fault["where"]
    assert emulate(*words, "--no-checks").code == 0


def test_rules_may_be_ignored_one_by_one(emulate):
    """Of the kernel's faults the race is one; which other comes first is up to the schedule."""
    words = ["--kernel", "race", "--block", "64", "--arg", "out:i32:64"]
    assert emulate(*words, "--ignore", "proxy-fences").code == 1
    assert emulate(*words, "--ignore", "races", "--ignore", "uninitialized").code == 0


def test_help_names_all_rules(gpukit):
    (line,) = (x for x in gpukit("emulate", "--help").out.splitlines() if "Rules: " in x)
    assert line.split()[1:] == [*list(RULES)[:-1], f"{list(RULES)[-1]}."]


def test_budget(emulate):
    done = emulate(*saxpy(*ARGS), "--budget", "10")
    assert done.code == 1
    assert done.out.startswith("BudgetExceededError")


def test_all_policies_and_what_differs_between_them(emulate):
    done = emulate(*saxpy(*ARGS), "--policy", "all")
    assert done.code == 0
    assert [line for line in done.out.splitlines() if line.endswith(": ok")] == [
        f"policy {name}, seed 0: ok" for name in ("random", "early", "late", "starved")
    ]
    done = emulate("--kernel", "who", "--block", "256", "--arg", "i32:9=0", "--policy", "all")
    assert done.code == 1
    assert "args[0] under policy starved differs from that under random" in done.out


def test_printf(emulate):
    assert emulate("--kernel", "hello", "--grid", "2", "--block", "1").out.startswith(
        "hello from 0\nhello from 1\npolicy random"
    )


def test_trace(emulate, tmp_path):
    assert emulate(*saxpy(*ARGS), "--trace", "t.json").code == 0
    names = {e["name"] for e in json.loads((tmp_path / "t.json").read_text())["traceEvents"]}
    assert "k.cu:4 if (i < n) y[i] = a * x[i] + y[i];" in names


def test_ptx_and_other_files(gpukit, tmp_path):
    ptx = ".version 8.0\n.target sm_90a\n.address_size 64\n.entry k() { ret; }"
    (tmp_path / "k.ptx").write_text(ptx)
    assert gpukit("emulate", "k.ptx").code == 0
    wrong = gpukit("emulate", "k.ptx", "--arch", "sm_100a")
    assert one_line(wrong) == "arch: the PTX is for sm_90a and does not run on sm_100a"
    assert one_line(gpukit("emulate", "no.cu")) == "no.cu does not exist"
    assert one_line(gpukit("emulate", ".")) == ". is no file"
    assert "options: ('-DN=4',) are for NVRTC" in one_line(
        gpukit("emulate", "k.ptx", "--define", "N=4")
    )
    (tmp_path / "b.ptx").write_bytes(b"\x7fELF\xff")
    assert "b.ptx is no UTF-8 text (a binary?)" in one_line(gpukit("emulate", "b.ptx"))
    (tmp_path / "bad.cu").write_text("__global__ void k() { x = 1; }")
    assert 'error: identifier "x" is undefined' in one_line(gpukit("emulate", "bad.cu"))


def one_line(done, code=2):
    """The message of a command that failed as it should."""
    assert done.code == code
    assert done.out == ""
    (line,) = done.err.splitlines()
    return line.removeprefix("gpukit: error: ")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (saxpy(*ARGS[:-2]), "args: saxpy takes 4 arguments, 3 were given"),
        (saxpy("--arg", "f32:8", *ARGS[2:]), "the parameter is no pointer (float, .f32)"),
        (saxpy("--arg", "f33:8"), "'f33:8': dtype 'f33' is unknown; accepted: f64"),
        (["--kernel", "nope"], "'nope' does not name one kernel; the module has"),
        (saxpy(*ARGS, "--ignore", "fences"), "ignore: no rule is called 'fences'; known: races, "),
        (["--grid", "0"], "'0' is not one to three positive numbers"),
        (saxpy(*ARGS, "--save", "0=a.npy"), "--save 0: --arg f32=2 is no array"),
        (saxpy(*ARGS, "--save", "a.npy"), "'a.npy' is not of the form I=FILE.npy"),
        (saxpy(*ARGS, "--policy", "all", "--trace", "t"), "--trace needs one policy"),
        (saxpy(*ARGS, "--policy", "chaos"), "not one of 'random', 'early', 'late', 'starved', 'al"),
        (saxpy(*ARGS, "--save", "9=y.npy"), "--save 9: there are 4 arguments, from 0"),
        (saxpy(*ARGS, "--print", "0"), "--print 0: --arg f32=2 is no array"),
        (saxpy(*ARGS, "--save", "2=y.npy", "--save", "1=./y.npy"), "overwrite what --save 2 writ"),
        (saxpy(*ARGS, "--save", "1=k.cu"), "--save 1=k.cu would overwrite the file to run"),
        (saxpy(*ARGS, "--grid", "1x65536"), "grid: (1, 65536, 1) is too large; accepted: up to 21"),
        (saxpy(*ARGS, "--grid", "9" * 5000), "is not one to three positive numbers"),
        (saxpy(*ARGS, "--block", "1x1x65"), "block: (1, 1, 65) is too large; accepted: up to 1024"),
        (saxpy(*ARGS, "--grid", "16", "--cluster", "16"), "with nonportable_cluster=True (--nonp"),
        (saxpy(*ARGS, "--arch", "sm_12"), "does not compile for sm_12; accepted: sm_75, "),
        (saxpy(*ARGS, "--include", "/nowhere"), "include_dirs: /nowhere is no folder"),
        (saxpy(*ARGS, "--define", "A B"), "options: ['-DSTRIDE=4', '-DA B'] is refused by NVRTC"),
        (saxpy("--arg", "f64=2", *ARGS[2:]), "float64 has 8 bytes, the parameter 4 (float, .f32)"),
        (saxpy("--arg", "f32=1e99", *ARGS[2:]), "'f32=1e99': 1e+99 does not fit into float32"),
        (saxpy(*ARGS[:2], "--arg", "f64:1000", *ARGS[4:]), "the parameter is float*, accepted: fl"),
        (saxpy(*ARGS[:2], "--arg", "f32:" + "9" * 15, *ARGS[4:]), "GB of memory, there are"),
        (saxpy(*ARGS[:2], "--arg", "f32:" + "9" * 50, *ARGS[4:]), "is no shape; write 1024 or"),
        (saxpy(*ARGS[:2], "--arg", "i8:1000=arange", *ARGS[4:]), "999 does not fit into int8"),
        (saxpy(*ARGS[:2], "--arg", "@k.cu", *ARGS[4:]), "k.cu is no .npy file"),
        (saxpy(*ARGS[:2], "--arg", "@", *ARGS[4:]), "cannot be read: Is a directory"),
        (saxpy(*ARGS, "--cluster", "3"), "grid: (4, 1, 1) is not a multiple of the cluster"),
        (saxpy(*ARGS, "--shared", "999999"), "999999 bytes of shared memory"),
    ],
)
def test_bad_input_is_one_line(emulate, words, message):
    assert message in one_line(emulate(*words))


@pytest.mark.parametrize("path", ["/proc/gpukit/x", "none/x", "", "."])
@pytest.mark.parametrize("option", ["--save", "--trace"])
def test_outputs_are_tried_before_the_run(emulate, option, path):
    value = f"1={path}" if option == "--save" else path
    words = saxpy("--budget", "1", option, value, *ARGS)  # the run itself would fail otherwise
    assert "cannot be written: " in one_line(emulate(*words))


@pytest.mark.parametrize("words", [["--save", "2=/dev/full"], ["--trace", "/dev/full"]])
def test_what_fails_while_it_is_written(emulate, words):
    done = emulate(*saxpy(*ARGS), *words)
    assert done.code == 1
    assert "policy random, seed 0: ok" in done.out
    option = words[0] + (" 2=" if words[0] == "--save" else " ")
    message = f"{option}/dev/full cannot be written: No space left on device"
    assert done.err == f"gpukit: error: {message}\n"


def test_nothing_is_left_of_outputs_when_the_run_fails(emulate, tmp_path):
    (tmp_path / "old.npy").write_text("kept")
    words = saxpy("--budget", "1", "--save", "1=new.npy", "--save", "2=old.npy", *ARGS)
    assert emulate(*words).code == 1
    assert (tmp_path / "old.npy").read_text() == "kept"
    assert not (tmp_path / "new.npy").exists()


def test_missing_nvrtc_names_the_extra(emulate, tmp_path):
    (tmp_path / "cuda").mkdir()
    (tmp_path / "cuda" / "__init__.py").touch()  # hides the package that has the bindings
    message = one_line(emulate(*saxpy(*ARGS), PYTHONPATH=str(tmp_path)))
    assert 'pip install "gpukit[emulator]"' in message


def test_bench_shows_every_counter_on_request(gpukit):
    words = ("bench", "matmul", "--device", "emu:h100", "--no-isolate", "--shape", "32x32x32")
    done = gpukit(*words, "--counters")
    assert done.code == 0, done.err
    header, _, row = done.out.split("\n\n")[1].splitlines()
    cells = dict(zip(header.split(), row.split(), strict=True))
    assert cells["global_stores.sectors_per_request"] == "2"
    assert cells["warp_instructions"].isdecimal()
    assert "instructions.float" in cells
    assert "instructions.float" not in gpukit(*words).out


@pytest.mark.parametrize("device", ["cuda:0", "auto"])
def test_bench_counts_on_emulated_devices_only(gpukit, device):
    done = gpukit("bench", "fake", "--device", device, "--counters")
    assert "emu:h100 or emu:b200" in one_line(done)
