"""What a device without a clock can tell: instructions, sectors and bytes of each launch."""

from __future__ import annotations

from gpukit.bench.model import Row
from gpukit.study import words
from gpukit.study.evidence import Evidence
from gpukit.study.table import op_of, traffic

TITLE = "What was counted"
SECTOR = 32


def counted(evidence: Evidence) -> list[Row]:
    """Rows with counters."""
    return [row for row in evidence.rows if row.counters and row.status == "ok"]


def answer(evidence: Evidence) -> list[str]:
    """See the module."""
    rows = counted(evidence)
    if not rows:
        return []
    return [_bytes(rows), "", *_widths(rows), "", *_indices(rows), "", *_table(rows)]


def _bytes(rows: list[Row]) -> str:
    """Whether the launches moved what the problem says."""
    right = sum(_moved(row) == traffic(row) == SECTOR * _sectors(row) for row in rows)
    return (f"**Bytes:** {right} of {len(rows)} launches moved exactly the bytes that the problem "
            "must read and write, in sectors used to the full.")


def _moved(row: Row) -> int:
    return _counter(row, "bytes")


def _sectors(row: Row) -> int:
    return _counter(row, "sectors")


def _counter(row: Row, name: str) -> int:
    counters = row.counters or {}
    return int(counters["global_loads"][name] + counters["global_stores"][name])


def _widths(rows: list[Row]) -> list[str]:
    """What wide accesses save in instructions, without a loop."""
    lines = []
    for dtype in dict.fromkeys(row.dtype for row in rows):
        once = {int(row.params["vec"]): row for row in rows
                if row.dtype == dtype and row.params["grid"] == "gs1"}
        if len(once) > 1:
            few, many = (_instructions(once[pick(once)]) for pick in (max, min))
            lines.append(f"- {dtype}: {max(once)} elements per access issue {few} warp "
                         f"instructions of the emulated PTX, {words.times(min(once), 'element')} "
                         f"{many}: {many / few:.1f} times as many.")
    return ["**Widths:**", "", *lines]


def _indices(rows: list[Row]) -> list[str]:
    """What 32-bit counters save, in loops."""
    lines = []
    for dtype in dict.fromkeys(row.dtype for row in rows):
        looping = {str(row.params["index"]): _instructions(row) for row in rows
                   if row.dtype == dtype and row.params["grid"] != "gs1"}
        if len(looping) == 2:
            lines.append(f"- {dtype}: {looping['u32']} warp instructions of PTX with 32 bits, "
                         f"{looping['u64']} with 64. PTX adds 64-bit numbers in one instruction, "
                         "machine code in two: question 5 is about that.")
    return ["**Counters:**", "", *lines]


def _instructions(row: Row) -> int:
    return int((row.counters or {})["warp_instructions"])


def _table(rows: list[Row]) -> list[str]:
    body = [(op_of(row), row.dtype, row.params["index"], row.params["grid"], row.params["vec"],
             _instructions(row), _sectors(row), _moved(row), traffic(row)) for row in rows]
    head = ("op", "dtype", "counter", "grid", "elements per access", "warp instructions",
            "sectors", "bytes moved", "bytes of the problem")
    return words.table(head, body, left=4)
