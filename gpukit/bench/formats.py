"""Rows as CSV and Markdown text. JSON is `Row.to_dict` as it is.

The CSV has one column for each field of `Row` except the samples, then ``key``. Mappings (shape,
params, launch, peers, counters, clocks) are JSON text in their cell, so that every family has
the same columns; an empty cell is None. Numbers keep every digit.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from typing import TYPE_CHECKING, Any

from gpukit.bench.columns import columns_for, constants, notes
from gpukit.bench.rows import BURST, Row
from gpukit.bench.summary import HEADER as SUMMARY_HEADER
from gpukit.bench.summary import summary_cells
from gpukit.bench.validate import check_row

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_MAPPINGS = ("shape", "params", "launch", "peers", "counters", "clocks")
_NUMBERS = ("error", "time_us", "spread", "gbs", "tflops", "pct_peak", "pct_ceiling")
_FIELDS = [f.name for f in dataclasses.fields(Row) if f.name != "samples_us"]
#: What stands for NUL in text.
_NO_NUL = "\N{REPLACEMENT CHARACTER}"
CSV_COLUMNS = [*_FIELDS, "key"]
#: Columns that files of older versions lack, and what their rows were.
LATER_COLUMNS = {"load": BURST}


def to_csv(rows: Iterable[Row]) -> str:
    """Return the header and one line a row, lines ending in a newline alone."""
    return _csv_text(CSV_COLUMNS) + "".join(map(csv_line, rows))


def csv_line(row: Row) -> str:
    """Return one CSV line."""
    values = row.to_dict()
    return _csv_text([_to_cell(name, values[name]) for name in CSV_COLUMNS])


def from_csv(records: Iterable[Mapping[str, str | None]]) -> list[Row]:
    """Rebuild rows (without samples) from the records of a `csv.DictReader`.

    A record cut short, whose key is therefore not what its cells say, is passed over.
    Raises KeyError or ValueError when the columns are not ours.
    """
    return [row for record in records if (row := _from_record(record)) is not None]


def _from_record(record: Mapping[str, str | None]) -> Row | None:
    given = {**LATER_COLUMNS, **record}
    cells = {name: given[name] for name in CSV_COLUMNS}
    if any(cell is None for cell in cells.values()):
        return None
    values = {name: _from_cell(name, cells[name] or "") for name in _FIELDS}
    check_row(values)
    row = Row.from_dict(values)
    return row if row.key == cells["key"] else None


def _to_cell(name: str, value: Any) -> str:
    if value is None:
        return ""
    # CSV readers (Python 3.10's own, pandas) stop at NUL, which no name or message means.
    return json.dumps(value) if name in _MAPPINGS else str(value).replace("\0", _NO_NUL)


def _from_cell(name: str, text: str) -> Any:
    if name in _MAPPINGS:
        return json.loads(text) if text else None
    if name in _NUMBERS:
        return float(text) if text else None
    return text or (None if name == "tolerance" else "")


def _csv_text(cells: Sequence[str]) -> str:
    text = io.StringIO()
    csv.writer(text).writerow(cells)  # quotes a lone \r only while lines end in \r\n
    return text.getvalue().removesuffix("\r\n") + "\n"


def to_markdown(rows: Sequence[Row]) -> str:
    """Return a Markdown table of the rows with what is common to all above and notes below."""
    if not rows:
        return "No rows.\n"
    common = ", ".join(f"{name} {value}" for name, value in constants(rows).items())
    devices = ", ".join(dict.fromkeys(f"{row.device} ({row.arch})" for row in rows))
    lines = [f"{devices}; {common}", "", *markdown_table(*_cells(rows))]
    remarks = [f"- {note}" for note in notes(rows)]
    lines += [*([""] if remarks else []), *map(_escape, remarks), *_summary(rows)]
    return "\n".join(lines) + "\n"


def _summary(rows: Sequence[Row]) -> list[str]:
    """Return the lines of the summary against the peers, if there is one."""
    body = summary_cells(rows)
    right = [False, False, True, True, True, False]
    return ["", *markdown_table(SUMMARY_HEADER, body, right)] if body else []


def _cells(rows: Sequence[Row]) -> tuple[list[str], list[list[str]], list[bool]]:
    columns = columns_for(rows)
    body = [[column.cell(row) for column in columns] for row in rows]
    return [c.header for c in columns], body, [c.numeric for c in columns]


def markdown_table(
    header: Sequence[str], body: Sequence[Sequence[str]], right: Sequence[bool]
) -> list[str]:
    """Return the lines of a Markdown table; ``right`` says which columns align right."""
    rule = ["---:" if numeric else "---" for numeric in right]
    return [_markdown_line(cells) for cells in (header, rule, *body)]


def _markdown_line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(map(_escape, cells)) + " |"


def _escape(text: str) -> str:
    return text.replace("|", "\\|")
