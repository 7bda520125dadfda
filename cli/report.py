"""``gpukit report``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from .options import PATH

if TYPE_CHECKING:
    from pathlib import Path


@click.command()
@click.argument("file", type=PATH)
@click.option("--out", type=PATH, help="Write the page to this file; standard output otherwise.")
def report(file: Path, out: Path | None) -> None:
    """Turn the result FILE (.json or .csv) into a Markdown page with a legend, and from .json also
    with its environment."""
    from gpukit.bench.report import report as to_markdown
    from gpukit.bench.store import read_result, replace_text, writable

    page = to_markdown(read_result(file))
    if out is None:
        click.echo(page, nl=False)
    else:
        replace_text(writable(out), page)
