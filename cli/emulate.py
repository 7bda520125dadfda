"""``gpukit emulate``: run any kernel of a .cu or .ptx file on the CPU, checked and counted."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpukit.errors import ArgumentError

from . import terminal
from .main import FAILED, OK
from .options import PATH, Extent, Pairs
from .outputs import check_outputs, writing

if TYPE_CHECKING:
    from gpukit.emulator import Trace
    from gpukit.emulator.trials import Trial

POLICIES = ("random", "early", "late", "starved")
_EPILOG = """
\b
Arguments (SPEC), in the kernel's order:
  f32:1024            array of random numbers; =0, =1.5 or =arange behind it fill it
  out:f32:64x64       array that nothing has written yet
  @FILE.npy           array from a file
  tma:64x32:128B:f16:512x256   tensor map: box, swizzle or none, array
  i32=5  f32=1.5      scalars
  null                null pointer
Types: f64 f32 f16 bf16 e4m3 e5m2 i8 .. i64 u8 .. u64 bool.

\b
Rules: races proxy-fences async-hazards tensor-fences tensor-hazards exits uninitialized.

Exits 1 when the kernel does something wrong or --policy all gives different results, 2 for
bad input.
"""


@click.command(epilog=_EPILOG)
@click.argument("file", type=PATH)
@click.option("--kernel", help="Name of the kernel; needed if the file has several.")
@click.option("--grid", type=Extent(), default="1", show_default=True, help="CTAs: 4 or 4x2x1.")
@click.option("--block", type=Extent(), default="32", show_default=True, help="Threads per CTA.")
@click.option("--cluster", type=Extent(), help="CTAs per cluster.  [default: the kernel's own]")
@click.option("--arch", help="What CUDA C++ is compiled for.  [default: sm_90a]")
@click.option(
    "--shared", "shared_bytes", type=click.IntRange(0), default=0, metavar="BYTES",
    help="Dynamic shared memory per CTA.",
)  # fmt: skip
@click.option("--arg", "specs", multiple=True, metavar="SPEC", help="An argument.  [repeatable]")
@click.option("--seed", type=click.IntRange(0), default=0, help="Of data and schedule.")
@click.option(
    "--policy", type=click.Choice([*POLICIES, "all"]), default="random", show_default=True,
    help="Schedule; all runs each and compares the results.",
)  # fmt: skip
@click.option("--no-checks", is_flag=True, help="Check bounds and alignment only; faster.")
@click.option("--ignore", multiple=True, metavar="RULE", help="Leave a rule out.  [repeatable]")
@click.option("--budget", type=click.IntRange(1), help="Give up after this many instructions.")
@click.option("--cooperative", is_flag=True, help="Keep the whole grid resident.")
@click.option("--nonportable-cluster", is_flag=True, help="Allow clusters of 9 to 16 CTAs.")
@click.option("--define", "defines", type=Pairs("K[=V]"), multiple=True, help="As -D of nvcc.")
@click.option("--include", "includes", multiple=True, metavar="DIR", help="As -I of nvcc.")
@click.option("--save", "saves", type=Pairs("I=FILE.npy"), multiple=True,
              help="Save array argument I (from 0) afterwards.")  # fmt: skip
@click.option("--print", "prints", type=click.IntRange(0), multiple=True, metavar="I",
              help="Print array argument I afterwards.")  # fmt: skip
@click.option("--trace", "trace_file", type=PATH, help="Write a trace for https://ui.perfetto.dev.")
@click.option("--format", "how", type=click.Choice(["table", "json"]), default="table")
def emulate(file: Path, how: str, **values: Any) -> int:
    """Run a kernel of FILE (.cu or .ptx) on the CPU: no GPU needed.

    Reports what it does wrong (races, bounds, missing fences, deadlocks, ...) with its source
    line, and counts instructions, memory traffic and bank conflicts.
    """
    from .emulate_output import print_document, print_tables

    _check_usage(file, values)
    folders = [file.parent, *map(Path, values["includes"])]
    trials, trace = _run(file, folders, values)
    wanted = {n: trials[0].arguments[n].array for _, n in _numbers(values)}
    show = print_document if how == "json" else print_tables
    failed = show(trials, {n: wanted[n] for n in values["prints"]}, folders, values["seed"])
    if trace is not None:
        _write_trace(trace, values["trace_file"])
    if not failed:
        _save(wanted, values["saves"])
    return FAILED if failed else OK


def _check_usage(file: Path, values: dict[str, Any]) -> None:
    """Refuse what would fail after the run only."""
    from gpukit.emulator.argument_text import is_array

    if not file.is_file():
        raise ArgumentError(f"{file} {'is no file' if file.exists() else 'does not exist'}")
    trace_file, saves, specs = values["trace_file"], values["saves"], values["specs"]
    if trace_file and values["policy"] == "all":
        raise click.UsageError("--trace needs one policy, not all")
    for number, _ in saves:
        if not re.fullmatch("[0-9]{1,9}", number):
            raise click.UsageError(f"--save {number!r}: not the number of an argument")
    for option, number in _numbers(values):
        if number >= len(specs):
            raise ArgumentError(f"{option} {number}: there are {len(specs)} arguments, from 0")
        if not is_array(specs[number]):
            raise ArgumentError(f"{option} {number}: --arg {specs[number]} is no array")
    outputs = [(f"--save {number}=", Path(path)) for number, path in saves]
    check_outputs([*outputs, *([("--trace ", trace_file)] if trace_file else [])], file)


def _numbers(values: dict[str, Any]) -> list[tuple[str, int]]:
    """The array arguments that --save and --print name."""
    saves = [("--save", int(number)) for number, _ in values["saves"]]
    return [*saves, *(("--print", number) for number in values["prints"])]


def _run(
    file: Path, folders: list[Path], values: dict[str, Any]
) -> tuple[list[Trial], Trace | None]:
    """Run the launch under the policies asked for. Bad input is an ``ArgumentError``."""
    from gpukit.emulator import EmulatorError, Trace
    from gpukit.emulator.argument_text import parse_argument
    from gpukit.emulator.errors import CompileError
    from gpukit.emulator.trials import run_trials

    trace = Trace(folders=folders) if values["trace_file"] else None
    policies = POLICIES if values["policy"] == "all" else (values["policy"],)
    options = {name: values[name] for name in ("kernel", "arch", "shared_bytes", "cluster", "seed",
                                               "cooperative", "nonportable_cluster")}  # fmt: skip
    if values["budget"]:
        options["budget"] = values["budget"]
    seed = values["seed"]
    try:
        trials = run_trials(
            file,
            values["grid"],
            values["block"],
            lambda: [parse_argument(t, seed + 1000 * i) for i, t in enumerate(values["specs"])],
            policies,
            checks=not values["no_checks"],
            ignore=values["ignore"],
            include_dirs=values["includes"],
            options=[f"-D{name}{value and '='}{value}" for name, value in values["defines"]],
            listeners=[trace] if trace else [],
            **options,
        )
    except EmulatorError as problem:
        summary, _, details = str(problem).partition("\n")
        log = isinstance(problem, CompileError)
        raise ArgumentError(summary if log else f"{summary} {details}") from problem
    return trials, trace


def _write_trace(trace: Trace, path: Path) -> None:
    with writing("--trace ", path):
        trace.write(path)
    if not trace.complete:
        terminal.warn(f"--trace: {path} holds only the beginning; trace a smaller grid")


def _save(arrays: dict[int, Any], saves: tuple[tuple[str, str], ...]) -> None:
    import numpy as np

    for number, path in saves:
        # np.save would append .npy to other names
        with writing(f"--save {number}=", path), Path(path).open("wb") as file:
            np.save(file, arrays[int(number)])
