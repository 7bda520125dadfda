"""``gpukit list`` and ``gpukit show``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from gpukit.bench.axes import Shapes

from .options import Parsed, merged
from .table import Field, print_table

if TYPE_CHECKING:
    from gpukit.kernels import KernelSpec, Tunable
    from gpukit.kernels.describe import Build


@click.command("list")
@click.argument("words", nargs=-1, metavar="[WORD]...")
@click.option("--format", "how", type=click.Choice(["table", "json"]), default="table")
def list_kernels(words: tuple[str, ...], how: str) -> None:
    """List the kernels whose name or summary holds every WORD."""
    from gpukit.kernels import registry

    specs = [spec for spec in registry().values() if _matches(spec, words)]
    if how == "json":
        click.echo(json.dumps([_summary(spec) for spec in specs], indent=1))
        return
    if not specs:
        raise click.UsageError(f"no kernel matches {' '.join(words)!r}; `gpukit list` shows all")
    print_table(
        [
            Field("kernel", tuple(spec.name for spec in specs)),
            Field("archs", tuple(" ".join(spec.archs) for spec in specs), rank=2),
            Field("summary", tuple(spec.summary for spec in specs), rank=1),
        ]
    )


def _matches(spec: KernelSpec, words: tuple[str, ...]) -> bool:
    text = f"{spec.name} {spec.summary}".lower()
    return all(word.lower() in text for word in words)


def _summary(spec: KernelSpec) -> dict[str, Any]:
    return {
        "name": spec.name,
        "summary": spec.summary,
        "source": spec.source,
        "archs": list(spec.archs),
        "tunables": {t.name: list(t.choices) for t in spec.tunables},
    }


@click.command()
@click.argument("name")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="TUNABLE=VALUE",
    help="A tunable's value; the default otherwise.  [repeatable]",
)
@click.option("--arch", metavar="ARCH", help="Build for this GPU only, e.g. sm_90.")
@click.option(
    "--shape",
    "shapes",
    multiple=True,
    type=Parsed(Shapes(("M", "N", "K"), 1), "MxNxK[,...]"),
    help="With NAME matmul: say which kernel gpukit.matmul runs for such problems, and why.",
)
@click.option("--dtype", metavar="DTYPE", help="With --shape: bf16, f16, f32, tf32, e4m3, "
              "e5m2, mxfp8, nvfp4.")
@click.option("--layout", metavar="LAYOUT", help="With --shape: nt, nn, tn or tt.")
@click.option("--out-dtype", metavar="DTYPE", help="With --shape: the type of C.")
@click.option("--device", help="With --shape: cuda:0, emu:h100, ...")
def show(
    name: str,
    settings: tuple[str, ...],
    arch: str | None,
    shapes: tuple[tuple[Any, ...], ...],
    **words: Any,
) -> None:
    """Show the spec of kernel NAME, what it costs to build and run, and the idea behind it."""
    given = {word: value for word, value in words.items() if value is not None}
    if not shapes:
        if given:
            option = next(iter(given)).replace("_", "-")
            raise click.UsageError(f"--{option} goes with --shape")
        if name == "matmul":
            raise click.UsageError("matmul is a family: add --shape MxNxK to see which kernel "
                                   "gpukit.matmul runs, or name one of `gpukit list matmul`")
        _show_kernel(name, settings, arch)
        return
    if name != "matmul" or settings or arch:
        raise click.UsageError("--shape goes with `show matmul`, and without --set and --arch")
    from .choices import show_choices

    show_choices(merged(shapes), **given)


def _show_kernel(name: str, settings: tuple[str, ...], arch: str | None) -> None:
    from gpukit.kernels.describe import describe

    found = describe(name, _assignments(settings), arch)
    for label, value in _facts(found.spec):
        click.echo(f"{label:<10}  {value}")
    click.echo(f"\nvariant     {found.expression}")
    click.echo(f"shared      {found.dynamic_shared_bytes} B dynamic per CTA\n")
    print_table(_build_fields(found.builds))
    for note in dict.fromkeys(build.note for build in found.builds if build.note):
        archs = ", ".join(build.arch for build in found.builds if build.note == note)
        click.echo(f"{archs}: {note}")
    click.echo(f"\n{found.header}")


def _assignments(settings: tuple[str, ...]) -> dict[str, str]:
    """Return TUNABLE=VALUE words as a mapping."""
    for word in settings:
        if "=" not in word:
            raise click.UsageError(f"--set {word!r} is not of the form tunable=value")
    return {name: value for name, _, value in (word.partition("=") for word in settings)}


def _build_fields(builds: tuple[Build, ...]) -> list[Field]:
    columns: dict[str, list[int | str | None]] = {
        "registers": [build.registers for build in builds],
        "spills (B)": [build.spill_bytes for build in builds],
        "stack (B)": [build.stack_bytes for build in builds],
        "static shared (B)": [build.static_shared_bytes for build in builds],
        "compile (ms)": [None if b.compile_ms is None else f"{b.compile_ms:.1f}" for b in builds],
        "cached": [None if b.cached is None else "yes" if b.cached else "no" for b in builds],
    }
    return [
        Field("arch", tuple(build.arch for build in builds)),
        Field("built", tuple(build.where for build in builds)),
        *(
            Field(header, tuple("-" if cell is None else str(cell) for cell in cells), numeric=True)
            for header, cells in columns.items()
        ),
    ]


def _facts(spec: KernelSpec) -> list[tuple[str, str]]:
    params = ", ".join(f"{p.kind} {p.name}" for p in spec.params)
    return [
        ("kernel", spec.name),
        ("summary", spec.summary),
        ("source", f"cuda_src/{spec.source}"),
        ("entry", spec.entry),
        ("archs", " ".join(spec.archs)),
        ("params", params),
        *(("tunable", _tunable(t)) for t in spec.tunables),
        *(("requires", condition) for condition in spec.requires),
    ]


def _tunable(tunable: Tunable) -> str:
    choices = ", ".join(map(str, tunable.choices))
    return f"{tunable.name}={tunable.default}  ({choices}): {tunable.help}"
