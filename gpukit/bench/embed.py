"""Numbers that files embed from results: `python -m gpukit.bench.embed README.md docs/matmul.md`.

A table of a Markdown file stands between two comments. The first names the results (which may lie
beside the file or beside any folder above it), then which rows and columns, if not all:

    <!-- table: results/h200/memcpy.json dtype=bf16 n time_us GB/s xmemcpy -->
    <!-- end of table -->

Columns are those of the benchmark's table, of `--counters`, `idea`: a kernel's summary, or the
configuration that `gpukit.matmul` chose, and `published`: what others reached with that rung or
in that case, on their GPU and problem. One that no row has is an error; `name?` is left out then.
With `results.json#summary` the records are those of the file's summary.

A kernel's source, a rung of a ladder whose number begins the file's name, says in its header what
was measured of it:

    // Measured at 4096^3 (results/h200/matmul_ladder.json):
    // ...

or, of a rung that we have no GPU for, what others published:

    // Published for 4096^3 (results/published.csv):
    // ...

Running this again after new measurements is the only way numbers get into such files, and
`--check` (exit 1) says whether they still are what the results hold.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container, Sequence
from pathlib import Path
from typing import Any

import click

from gpukit import kernels
from gpukit.bench.columns import (
    NOTHING,
    Column,
    columns_for,
    parameter_columns,
    peer_columns,
)
from gpukit.bench.counters import counter_columns
from gpukit.bench.formats import markdown_table
from gpukit.bench.ladder import gains, rung
from gpukit.bench.model import TIMED_STATUSES, Row
from gpukit.bench.published import PATH, of_rung, published, published_column
from gpukit.errors import ArgumentError

_TABLE = re.compile(r"(<!-- table: ([^\s#]+)(?:#(\w+))?([^>]*) -->\n).*?(<!-- end of table -->)",
                    re.DOTALL)
_LINE = re.compile(r"^(// Measured at (\d+)\^3 \((\S+)\):\n// ).*$", re.MULTILINE)
_OTHERS = re.compile(r"^(// Published for (\d+)\^3 \((\S+)\):\n// ).*$", re.MULTILINE)


def embedded(text: str, file: Path) -> str:
    """The text of a file with every embedded table and line made anew.

    Raises:
        ArgumentError: a marker asks for a column that no row has.
    """
    def rows(found: re.Match[str]) -> str:
        try:
            lines = table(_records(file, found[2], found[3] or "rows"), found[4].split())
        except ArgumentError as problem:
            raise ArgumentError(f"{file}: {found[2]} {problem}") from problem
        return found[1] + "\n".join(lines) + "\n" + found[5]

    def line(found: re.Match[str]) -> str:
        return found[1] + _measured(_records(file, found[3]), file, int(found[2]))

    def others(found: re.Match[str]) -> str:
        return found[1] + _published(_found(file, found[3]), file, int(found[2])) + "."

    return _OTHERS.sub(others, _LINE.sub(line, _TABLE.sub(rows, text)))


def _found(file: Path, results: str) -> Path | None:
    """The results that lie beside the file or above."""
    found = next((p / results for p in file.resolve().parents if (p / results).exists()), None)
    if found is None:
        click.echo(f"{file}: there is no {results}", err=True)
    return found


def _records(file: Path, results: str, name: str = "rows") -> list[dict[str, Any]]:
    """The records of results; none without such results."""
    found = _found(file, results)
    if found is None:
        return []
    records: list[dict[str, Any]] = json.loads(found.read_text(encoding="utf-8"))[name]
    return records


def table(records: Sequence[dict[str, Any]], words: Sequence[str]) -> list[str]:
    """Records as the lines of a Markdown table; `words` as between the brackets of a comment.

    Raises:
        ArgumentError: a column that no row has.
    """
    wanted = [word for word in words if "=" not in word]
    conditions = [word.split("=", 1) for word in words if "=" in word]
    chosen = [r for r in records if all(_value(r, name) == value for name, value in conditions)]
    if not chosen:
        return ["Not measured yet."]
    if "family" not in chosen[0]:
        return _plain(chosen, _known(wanted, chosen[0]) or list(chosen[0]))
    rows = [Row.from_dict(record) for record in chosen]
    columns = _columns(rows, wanted)
    return markdown_table([c.header for c in columns],
                          [[c.cell(row) for c in columns] for row in rows],
                          [c.numeric for c in columns])


def _known(wanted: Sequence[str], known: Container[str]) -> list[str]:
    """The columns wanted, of those that there are.

    Raises:
        ArgumentError: one that does not end in ? is missing.
    """
    for name in wanted:
        if name not in known and not name.endswith("?"):
            raise ArgumentError(f"has nothing for the column {name}; {name}? would leave it out")
    return [name.removesuffix("?") for name in wanted if name.removesuffix("?") in known]


def _value(record: dict[str, Any], name: str) -> str:
    """A field of a record, or of its shape or parameters, as text."""
    return str({**record.get("shape", {}), **record.get("params", {}), **record}.get(name))


def _columns(rows: Sequence[Row], wanted: Sequence[str]) -> list[Column]:
    """The columns wanted, or the usual ones. Peers that could not run have a column too."""
    usual = columns_for(rows)
    known = {c.header: c for c in (*parameter_columns(rows), *counter_columns(rows), *usual,
                                   *peer_columns(rows), Column("idea", _idea, numeric=False),
                                   Column("published", _others))}
    return [known[name] for name in _known(wanted, known)] or usual


def _idea(row: Row) -> str:
    kernel = row.launch.get("kernel")
    return kernels.get(kernel).summary if kernel else str(row.launch.get("config", "-"))


def _others(row: Row) -> str:
    place = rung(row.kernel)
    if place:
        return _figures(PATH, place[1])
    column = published_column([row], published(row.family) or [])
    return column.cell(row) if column else NOTHING


def _figures(file: Path | None, number: int, size: int | None = None) -> str:
    """What others reached with a rung, on a cube of this size if one is given."""
    found = of_rung(published("matmul", file) or [] if file else [], number)
    return ", ".join(f"{figure.value:g} {figure.unit} on {figure.gpu}" for figure in found
                     if size is None or figure.problem.startswith(f"{size}x{size}x{size} "))


def _plain(rows: Sequence[dict[str, Any]], columns: Sequence[str]) -> list[str]:
    """A table of records that are no benchmark rows; broken numbers with four digits."""
    cells = [[f"{row[name]:.4g}" if isinstance(row[name], float) else str(row[name])
              for name in columns] for row in rows]
    return markdown_table(columns, cells,
                          [isinstance(rows[0][name], float | int) for name in columns])


def _measured(records: Sequence[dict[str, Any]], file: Path, size: int) -> str:
    """How fast the rung in a file is on a cube of this size, and against what came before."""
    place = rung(f"matmul.{file.stem.partition('_')[0]}")
    rows = [Row.from_dict(record) for record in records]
    row = next((r for r in rows if rung(r.kernel) == place and r.status in TIMED_STATUSES
                and set(r.shape.values()) == {size}), None)
    if row is None:
        return "not yet."
    said = [f"{row.tflops:.1f} TFLOPS"]
    if gain := gains(rows).get(row.key):
        said.append(f"{gain:.2f} times the rung before")
    if share := row.peers.get("cublas", {}).get("ratio"):
        said.append(f"{share:.2f} of cuBLAS")
    return ", ".join(said) + "."


def _published(figures: Path | None, file: Path, size: int) -> str:
    """What others reached with the rung in a file on a cube of this size."""
    number = re.match(r"k(\d+)_", file.name)
    return (_figures(figures, int(number[1]), size) if number else "") or "nothing"


@click.command()
@click.argument("files", nargs=-1, required=True,
                type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--check", is_flag=True, help="Change nothing; exit 1 if a number is out of date.")
def main(files: tuple[Path, ...], check: bool) -> None:
    """Make the embedded tables and lines of FILES anew."""
    for file in files:
        text = file.read_text(encoding="utf-8")
        try:
            fresh = embedded(text, file)
        except ArgumentError as problem:
            raise click.ClickException(str(problem)) from problem
        if check and fresh != text:
            raise click.ClickException(f"{file}: its numbers are not those of the results; run "
                                       f"python -m gpukit.bench.embed {file}")
        file.write_text(fresh, encoding="utf-8")


if __name__ == "__main__":
    main()
