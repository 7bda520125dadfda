"""Every counter of rows from emulated devices as table columns: ``gpukit bench ... --counters``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpukit.bench.columns import NOTHING, Column, identity_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpukit.bench.model import Row


def counter_columns(rows: Sequence[Row]) -> list[Column]:
    """Return what identifies each row, then every counter that is not zero in all rows."""
    values = [_values(row) for row in rows]
    names = dict.fromkeys(name for counters in values for name in counters)
    shown = [name for name in names if any(counters.get(name) for counters in values)]
    return [*identity_columns(rows), *(Column(name, _cell(name)) for name in shown)]


def _values(row: Row) -> dict[str, float]:
    """Return counter name to value; the group stands before it unless it is a total."""
    from gpukit.emulator.frame import entries

    return {
        entry.counter if entry.group == "launch" else f"{entry.group}.{entry.counter}": entry.value
        for entry in entries(row.counters or {})
    }


def _cell(name: str) -> Callable[[Row], str]:
    def cell(row: Row) -> str:
        value = _values(row).get(name)
        if value is None:
            return NOTHING
        return str(value) if isinstance(value, int) else f"{value:.4g}"

    return cell
