"""Tables that a Markdown file embeds from result files: `python -m gpukit.bench.embed README.md`.

A table stands between two comments; the first names the file and, if not all, the columns:

    <!-- table: results/h200/memcpy.json n time_us GB/s xmemcpy -->
    <!-- end of table -->

Running this again after new measurements is the only way numbers get into such a file, and
`--check` (exit 1) says whether they still are what the results hold.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from gpukit.bench.columns import columns_for
from gpukit.bench.formats import markdown_table
from gpukit.bench.model import Row

_BLOCK = re.compile(r"(<!-- table: (\S+)([^>]*) -->\n).*?(<!-- end of table -->)", re.DOTALL)


def embedded(text: str, folder: Path) -> str:
    """The text with every embedded table made anew; paths are relative to `folder`."""
    def table(block: re.Match[str]) -> str:
        path, columns = folder / block[2], block[3].split()
        return block[1] + "\n".join(_table(path, columns)) + "\n" + block[4]

    return _BLOCK.sub(table, text)


def _table(path: Path, wanted: Sequence[str]) -> list[str]:
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
    if "family" not in rows[0]:
        return _plain(rows, wanted or list(rows[0]))
    measured = [Row.from_dict(row) for row in rows]
    columns = [c for c in columns_for(measured) if not wanted or c.header in wanted]
    return markdown_table([c.header for c in columns],
                          [[c.cell(row) for c in columns] for row in measured],
                          [c.numeric for c in columns])


def _plain(rows: Sequence[dict[str, Any]], columns: Sequence[str]) -> list[str]:
    """A table of records that are no benchmark rows; numbers with two decimals."""
    cells = [[f"{row[name]:.2f}" if isinstance(row[name], float) else str(row[name])
              for name in columns] for row in rows]
    return markdown_table(columns, cells, [isinstance(rows[0][name], float) for name in columns])


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--check", is_flag=True, help="Change nothing; exit 1 if a table is out of date.")
def main(file: Path, check: bool) -> None:
    """Make the embedded tables of a Markdown FILE anew."""
    text = file.read_text(encoding="utf-8")
    fresh = embedded(text, file.parent)
    if check and fresh != text:
        raise click.ClickException(f"{file}: its tables are not those of the results; run "
                                   f"python -m gpukit.bench.embed {file}")
    file.write_text(fresh, encoding="utf-8")


if __name__ == "__main__":
    main()
