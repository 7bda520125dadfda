"""Which columns a table of rows has, what their cells say, and what a reader should know of them.

Cells are plain ASCII text and complete: a table may leave a column out, never cut a number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpukit.bench.emulated_target import UNTIMED
from gpukit.bench.ladder import gains
from gpukit.bench.rows import BURST

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from gpukit.bench.model import Row

NOTHING = "-"

#: Header to meaning; reports print it under their tables.
LEGEND = {
    "time_us": "median time of one launch in microseconds, launch gaps excluded",
    "spread%": "interquartile range of the samples, in % of the median",
    "GB/s": "bytes that the problem must read and write, over the time; GB = 1e9 bytes",
    "TFLOPS": "floating-point operations of the problem over the time, in 1e12/s",
    "%peak": "of the datasheet limit that binds (memory or cores); ! marks more than 100 %",
    "%ceil": "of the ceiling measured in the same run (1 GiB memcpy, or cuBLAS on 8192^3); may pass"
    " 100",
    "xNAME": "the peer's time over ours, timed in turns on the same buffers; > 1: ours is faster",
    "gain": "time of the ladder's rung before, over this one's, for the same problem",
    "sm_MHz": "median SM clock while timing",
    "power_W": "median power draw while timing",
    "warp_inst": "warp instructions issued (emulated devices count; they have no clock)",
    "lanes%": "active lanes of all lanes of those instructions",
    "ld_sect/req": "32-byte sectors of global memory per load instruction of a warp",
    "st_sect/req": "the same for stores",
    "conflicts": "shared-memory wavefronts lost to bank conflicts",
    "error": "max |err| / (atol + rtol |ref|) against the oracle; at most 1 passes",
    "l2": "flush: emptied before each launch; rotate: other buffers each time; hot: the same",
    "method": "how the time was taken: events, graph or cupti",
    "load": "burst: timed at once, clocks as they come; sustained: after seconds of the same work",
    "status": "ok, wrong, unsupported, error, throttled, cache-resident or incomplete (timed out)",
}

# What the launch tells beyond these is shown, but gives way first.
_TOLD = ("kernel", "dtype")
_LAUNCH_RANK = 9


@dataclass(frozen=True)
class Column:
    """A table column. ``rank`` orders what goes first when room is short; 0 always stays."""

    header: str
    cell: Callable[[Row], str]
    rank: int = 0
    numeric: bool = True


def columns_for(rows: Sequence[Row]) -> list[Column]:
    """Return the columns worth showing for these rows: identity, then results.

    Parameters equal in every row, and results that no row has, are left out; `constants` names
    the former.
    """
    results = [column for column in _results(rows) if _any(column, rows)]
    return [*identity_columns(rows), *results]


def constants(rows: Sequence[Row]) -> dict[str, str]:
    """Return the parameters that are the same in every row, for the line above a table."""
    cells = {
        column.header: {column.cell(row) for row in rows} - {NOTHING}
        for column in parameter_columns(rows)
    }
    return {header: values.pop() for header, values in cells.items() if len(values) == 1}


def legend(rows: Sequence[Row]) -> dict[str, str]:
    """Return what the columns shown for these rows mean."""
    shown = {column.header for column in columns_for(rows)} | set(constants(rows))
    if any("ratio" in entry for row in rows for entry in row.peers.values()):
        shown.add("xNAME")
    return {header: meaning for header, meaning in LEGEND.items() if header in shown}


def identity_columns(rows: Sequence[Row]) -> list[Column]:
    """Return the columns that tell the rows apart."""
    families = Column("family", lambda row: row.family, numeric=False)
    several = len({row.family for row in rows}) > 1
    return [
        *([families] if several else []),
        Column("kernel", lambda row: row.kernel, numeric=False),
        Column("dtype", lambda row: row.dtype, numeric=False),
        *(Column(name, _shape(name)) for name in _names(rows, "shape")),
        *(column for column in parameter_columns(rows) if not _constant(column, rows)),
    ]


def parameter_columns(rows: Sequence[Row]) -> list[Column]:
    """Return what was asked for and what a launch told, the same in every row or not."""
    asked = _names(rows, "params")
    told = [*asked, *_names(rows, "shape"), *_TOLD]
    chosen = [name for name in _names(rows, "launch") if name not in told]
    return [
        *(_parameter(name, rows, 0) for name in asked),
        *(_parameter(name, rows, _LAUNCH_RANK) for name in chosen),
        Column("l2", lambda row: _timed(row.l2), numeric=False),
        Column("method", lambda row: _timed(row.method), numeric=False),
        *([Column("load", _load, numeric=False)] if any(r.load != BURST for r in rows) else []),
    ]


def peer_columns(rows: Sequence[Row]) -> list[Column]:
    """Return a column for each peer that was asked for."""
    return [_peer(name) for name in _names(rows, "peers")]


def _results(rows: Sequence[Row]) -> list[Column]:
    return [
        Column("time_us", lambda row: number(row.time_us, 3)),
        Column("spread%", lambda row: number(_percent(row.spread), 1), 5),
        Column("GB/s", lambda row: number(row.gbs, 1), 1),
        Column("TFLOPS", lambda row: number(row.tflops, 2), 2),
        Column("%peak", _peak, 3),
        Column("%ceil", lambda row: number(row.pct_ceiling, 1), 4),
        _gain(rows),
        *peer_columns(rows),
        Column("sm_MHz", _reading("sm_mhz"), 8),
        Column("power_W", _reading("power_w"), 8),
        Column("warp_inst", _counter("warp_instructions"), 4),
        Column("lanes%", _active_lanes, 5),
        Column("ld_sect/req", _sectors("global_loads"), 5),
        Column("st_sect/req", _sectors("global_stores"), 5),
        Column("conflicts", _counter("shared_conflicts"), 5),
        Column("error", lambda row: NOTHING if row.error is None else f"{row.error:.2g}", 7),
        Column("status", lambda row: row.status, numeric=False),
    ]


def _parameter(name: str, rows: Sequence[Row], rank: int) -> Column:
    cell = _setting(name)
    texts = {cell(row) for row in rows} - {NOTHING}
    return Column(name, cell, rank, numeric=all(text[:1].isdigit() for text in texts))


def _shape(name: str) -> Callable[[Row], str]:
    return lambda row: _text(row.shape.get(name))


def _setting(name: str) -> Callable[[Row], str]:
    """Return what a row ran with: the launch knows better than what was asked for."""
    return lambda row: _text(row.launch.get(name, row.params.get(name)))


def _timed(state: str) -> str:
    """Return how a row was timed; nothing for a row from a device without a clock."""
    return NOTHING if state == UNTIMED else state


def _load(row: Row) -> str:
    return NOTHING if row.method == UNTIMED else row.load


def _text(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return "x".join(map(str, value))
    return NOTHING if value is None else str(value)


def _peer(name: str) -> Column:
    return Column(f"x{name}", lambda row: number(row.peers.get(name, {}).get("ratio"), 3), 6)


def _peak(row: Row) -> str:
    return number(row.pct_peak, 1) + ("!" if (row.pct_peak or 0) > 100 else "")


def _counter(name: str) -> Callable[[Row], str]:
    return lambda row: _text((row.counters or {}).get(name))


def _active_lanes(row: Row) -> str:
    share = (row.counters or {}).get("active_lanes")
    return number(None if share is None else 100 * share, 1)


def _sectors(name: str) -> Callable[[Row], str]:
    """Return the 32-byte sectors that one warp-wide request touched on average."""

    def cell(row: Row) -> str:
        traffic = (row.counters or {}).get(name) or {}
        requests = traffic.get("requests")
        return number(traffic.get("sectors", 0) / requests if requests else None, 2)

    return cell


def _reading(name: str) -> Callable[[Row], str]:
    """Return the median of what was read while timing."""
    return lambda row: number(((row.clocks or {}).get(name) or {}).get("median"), 0)


def _gain(rows: Sequence[Row]) -> Column:
    found = gains(rows)
    return Column("gain", lambda row: number(found.get(row.key), 2), 2)


def _names(rows: Sequence[Row], field: str) -> list[str]:
    """Return the keys of a mapping field over all rows, in the order first seen."""
    return list(dict.fromkeys(name for row in rows for name in getattr(row, field)))


def _any(column: Column, rows: Sequence[Row]) -> bool:
    return any(column.cell(row) != NOTHING for row in rows)


def _constant(column: Column, rows: Sequence[Row]) -> bool:
    """Whether all rows that have the value have the same."""
    return len({column.cell(row) for row in rows} - {NOTHING}) <= 1


def _percent(fraction: float | None) -> float | None:
    return None if fraction is None else 100 * fraction


def number(value: float | None, decimals: int) -> str:
    """Return a number with fixed decimals, but never as zero when it is not: 4e-05."""
    if value is None:
        return NOTHING
    text = f"{value:.{decimals}f}"
    return f"{value:.1g}" if value and not float(text) else text


def notes(rows: Sequence[Row]) -> list[str]:
    """Return one line for each thing a row has to say, rows that say the same together."""
    said: dict[str, list[Row]] = {}
    for row in rows:
        for remark in _remarks(row):
            said.setdefault(remark, []).append(row)
    return [f"{_which(who)}: {what}" for what, who in said.items()]


def _remarks(row: Row) -> Iterator[str]:
    if row.message:
        yield f"{row.status}: {row.message}"
    for name, entry in row.peers.items():
        if "reason" in entry:
            yield f"peer {name} cannot run this case: {entry['reason']}"


def _which(rows: Sequence[Row]) -> str:
    first = rows[0].case_key
    return first if len(rows) == 1 else f"{first} and {len(rows) - 1} more"
