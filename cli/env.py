"""``gpukit env``."""

from __future__ import annotations

import json
from typing import Any

import click

from . import terminal


@click.command()
@click.option("--device", default=0, type=click.IntRange(min=0), help="CUDA index.")
@click.option("--format", "how", type=click.Choice(["table", "json"]), default="table")
def env(device: int, how: str) -> None:
    """Show the device and versions that results depend on; works without a GPU.

    Where the sources are no git checkout, GPUKIT_SOURCE_REVISION in the environment gives git_sha.
    """
    from gpukit.measure import environment, environment_id

    facts = environment(device)
    if how == "json":
        click.echo(json.dumps({"id": environment_id(facts), **facts}, indent=1))
    else:
        _print({"id": environment_id(facts), **facts})
    if facts.get("gpu") is None:
        terminal.warn("no usable CUDA device: only the software is known")


def _print(facts: dict[str, Any]) -> None:
    names = max(map(len, facts))
    for name, value in facts.items():
        click.echo(f"{name:<{names}}  {_plain(value)}")


def _plain(value: Any) -> str:
    if value is None:
        return "-"
    return value if isinstance(value, str) else json.dumps(value)
