"""``gpukit list`` and ``gpukit show``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from .table import Field, print_table

if TYPE_CHECKING:
    from gpukit.kernels import KernelSpec, Tunable


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
def show(name: str) -> None:
    """Show the spec of kernel NAME and the idea behind it."""
    from gpukit import sources
    from gpukit.kernels import get

    spec = get(name)
    for label, value in _facts(spec):
        click.echo(f"{label:<10}  {value}")
    click.echo(f"\n{sources.header_comment(spec.source)}")


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
