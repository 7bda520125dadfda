"""Counters as flat entries and as pandas DataFrames."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from pandas import DataFrame

    from gpukit.emulator.counters import Counters


class Entry(NamedTuple):
    """One counter; ``group`` is the field of ``Counters`` it belongs to ("launch" for totals)."""

    group: str
    counter: str
    value: float


def entries(values: Mapping[str, Any]) -> list[Entry]:
    """All counters of ``dataclasses.asdict(counters)``, derived ratios included, lines left out."""
    found: list[Entry] = []
    for group, value in values.items():
        if group == "lines":
            continue
        if isinstance(value, Mapping):
            found += [Entry(group, str(name), number) for name, number in value.items()]
            found += _derived(group, value)
        else:
            found.append(Entry("launch", group, value))
    return found


def _derived(group: str, traffic: Mapping[str, Any]) -> list[Entry]:
    """What the traffic classes compute from their fields."""
    if "sectors" in traffic:
        requests = traffic["requests"]
        ratio = traffic["sectors"] / requests if requests else 0.0
        return [Entry(group, "sectors_per_request", ratio)]
    if "wavefronts" in traffic:
        return [Entry(group, "conflicts", traffic["wavefronts"] - traffic["ideal"])]
    return []


def counter_frame(counters: Counters) -> DataFrame:
    """One row per counter: ``group``, ``counter``, ``value``."""
    from pandas import DataFrame

    columns = ["group", "counter", "value"]
    frame: DataFrame = DataFrame(entries(asdict(counters)), columns=columns)
    return frame


def line_frame(counters: Counters) -> DataFrame:
    """One row per source line, most instructions first.

    Columns: ``file``, ``line``, ``inlined_at`` (the chain of callers, or ""), ``instructions``
    (warp instructions) and their ``share`` of all.
    """
    from pandas import DataFrame

    rows = [(*_split(place), count) for place, count in counters.lines.items()]
    frame = DataFrame(rows, columns=["file", "line", "inlined_at", "instructions"])
    frame["share"] = frame["instructions"] / max(1, counters.warp_instructions)
    ordered: DataFrame = frame.sort_values(
        "instructions", ascending=False, kind="stable", ignore_index=True
    )
    return ordered


def _split(place: str) -> tuple[str, int, str]:
    """Take "file:line (inlined at ...)" apart; code without line information is "", line 0."""
    here, _, outer = place.partition(" (inlined at ")
    file, _, line = here.rpartition(":")
    return (file, int(line), outer[:-1]) if line.isdigit() else ("", 0, "")
