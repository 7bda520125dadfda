"""Entry point: the root command, and how errors become one line and an exit code.

Exit codes: 0 fine, 1 a check or gate failed, 2 bad usage, 3 no usable device, 130 interrupted.
"""

from __future__ import annotations

import os
import sys
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from gpukit import __version__
from gpukit.bench import streams
from gpukit.errors import ArgumentError, GpukitError, NoDeviceError, UnknownKernelError

from . import signals
from .lazy import LazyGroup

if TYPE_CHECKING:
    from collections.abc import Sequence

OK, FAILED, USAGE, NO_DEVICE, INTERRUPTED = 0, 1, 2, 3, 130


@dataclass(frozen=True)
class Settings:
    """What holds for every command."""

    debug: bool = False


COMMANDS = {
    "bench": ("gpukit_cli.bench:bench", "Measure a family of kernels, check them, and compare."),
    "list": ("gpukit_cli.kernels:list_kernels", "List the kernels."),
    "show": ("gpukit_cli.kernels:show", "Show what is known about one kernel."),
    "study": ("gpukit_cli.study:study", "Answer questions about this GPU, each from rows."),
    "tune": ("gpukit_cli.tune:tune", "Measure what gpukit may choose from; keep the fastest."),
    "emulate": ("gpukit_cli.emulate:emulate", "Run any kernel without a GPU: checked, counted."),
    "env": ("gpukit_cli.env:env", "Show the device and versions that results depend on."),
    "compare": ("gpukit_cli.compare:compare", "Compare two results; fail on a regression."),
    "report": ("gpukit_cli.report:report", "Turn a result into a Markdown page."),
    "plot": ("gpukit_cli.plot:plot", "Draw a result."),
    "layout": ("gpukit_cli.layout:layout", "Draw where the elements of matrices lie."),
    "demo": ("gpukit_cli.demo:demo", "See what the hardware does, beside what it should do."),
    "model": ("gpukit_cli.model:model", "Model the time of ladders on a GPU that is not there."),
}


@click.group(
    cls=LazyGroup,
    commands=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 fine, 1 a check or gate failed, 2 bad usage, 3 no usable device, "
    "130 interrupted. --debug anywhere shows the traceback of an error.",
)
@click.version_option(__version__, prog_name="gpukit")
def cli() -> None:
    """Readable CUDA kernels for CuPy, and honest benchmarks of them."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; the process's own arguments by default."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    settings = Settings(debug="--debug" in words)
    words = [word for word in words if word != "--debug"]
    streams.protect()
    signals.ignore_bursts()
    code = _guarded(words, settings)
    if code == INTERRUPTED:
        signals.ignore()
    return code


def _guarded(words: list[str], settings: Settings) -> int:
    """Run a command; whatever it raises becomes one line and an exit code."""
    try:
        code = _run(words, settings)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return _complain("interrupted", INTERRUPTED)
    except Exception as problem:
        if settings.debug:
            traceback.print_exc()
        return _complain(*_verdict(problem))


def _run(words: list[str], settings: Settings) -> int:
    """Run a command; click's own `main` would catch interrupts and broken pipes itself."""
    if completion := os.environ.get("_GPUKIT_COMPLETE"):
        from click.shell_completion import shell_complete

        return shell_complete(cli, {}, "gpukit", "_GPUKIT_COMPLETE", completion)
    try:
        with cli.make_context("gpukit", words, obj=settings) as context:
            return int(cli.invoke(context) or OK)
    except click.exceptions.Exit as leaving:
        return leaving.exit_code


def _verdict(problem: Exception) -> tuple[str, int]:
    """Return what to say about an error, and the exit code."""
    if isinstance(problem, click.UsageError):
        return f"{problem.format_message()}{_hint(problem)}", USAGE
    if isinstance(problem, click.ClickException):
        return problem.format_message(), FAILED
    if isinstance(problem, NoDeviceError):
        return (f"{problem}; `gpukit list`, `gpukit show` and `gpukit bench --dry-run` need none",
                NO_DEVICE)
    if isinstance(problem, (ArgumentError, UnknownKernelError, ImportError)):
        return str(problem), USAGE
    if isinstance(problem, (GpukitError, OSError)):
        return str(problem), FAILED
    return f"{type(problem).__name__}: {problem} (--debug shows the traceback)", FAILED


def _hint(problem: click.UsageError) -> str:
    if problem.ctx is None or _is_help(problem.format_message()):
        return ""
    return f" (see {problem.ctx.command_path} --help)"


def _is_help(message: str) -> bool:
    """Whether a message is a help page: what click raises for a group without a command."""
    return message.startswith("Usage:")


def _complain(message: str, code: int) -> int:
    """Say what is wrong, in one line unless it is a help page."""
    line = f"gpukit: {'' if code == INTERRUPTED else 'error: '}{' '.join(message.split())}"
    click.echo(message if _is_help(message) else line, err=True)
    return code
