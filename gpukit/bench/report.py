"""A result as a Markdown page: where it was measured, the tables, and how to read them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from gpukit.bench.columns import legend
from gpukit.bench.formats import markdown_table, to_markdown
from gpukit.bench.model import Row
from gpukit.bench.summary import LEGEND as SUMMARY_LEGEND
from gpukit.bench.summary import summary_cells

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


def report(document: Mapping[str, Any]) -> str:
    """Return the Markdown report of a result document (see `gpukit.bench.store`)."""
    rows = [Row.from_dict(row) for row in document["rows"]]
    tables = [_section(group) for group in _by_family_and_device(rows)]
    runs = document.get("runs", [])
    environments = document.get("environments", {})
    parts = ["# gpukit benchmark\n", *_runs(runs), *tables, _legend(rows)]
    parts += [_environment(name, values) for name, values in environments.items()]
    return "\n".join(parts)


def _by_family_and_device(rows: Iterable[Row]) -> list[list[Row]]:
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.family, row.device), []).append(row)
    return list(groups.values())


def _section(rows: Sequence[Row]) -> str:
    return f"## {rows[0].family}\n\n{to_markdown(rows)}"


def _runs(runs: Iterable[Mapping[str, Any]]) -> list[str]:
    return [_run(run) + "\n" for run in runs]


def _run(run: Mapping[str, Any]) -> str:
    command = " ".join(run.get("command") or ["gpukit", "bench"])
    state = "" if run.get("complete") else ", not complete"
    ceilings = "; ".join(
        f"ceiling {dtype}: {_ceiling(values)}"
        for dtype, values in (run.get("ceilings") or {}).items()
        if values
    )
    return f"`{command}`, {run.get('started', '')}{state}{'. ' if ceilings else ''}{ceilings}"


def _ceiling(values: Mapping[str, Any]) -> str:
    rates = [f"{values[n]:.1f} {unit}" for n, unit in _RATES.items() if values.get(n)]
    what = f" ({values['what']})" if values.get("what") else ""
    return ", ".join(rates) + what


_RATES = {"gbs": "GB/s", "tflops": "TFLOP/s"}


def _legend(rows: Sequence[Row]) -> str:
    meanings = legend(rows) | (SUMMARY_LEGEND if summary_cells(rows) else {})
    lines = [f"- **{header}**: {meaning}" for header, meaning in meanings.items()]
    return "\n".join(["## Columns\n", *lines, ""])


def _environment(name: str, values: Mapping[str, Any]) -> str:
    body = [[key, _plain(value)] for key, value in values.items()]
    table = markdown_table(["", ""], body, [False, False])
    return "\n".join([f"## Environment {name}\n", *table, ""])


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
