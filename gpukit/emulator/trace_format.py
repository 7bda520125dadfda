"""Spans as Chrome trace events: a process per CTA, a thread per track.

A track whose spans overlap takes more rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpukit.emulator.trace import Position, Span

Event = dict[str, Any]


def chrome_events(spans: Sequence[Span]) -> list[Event]:
    """Complete ("X") events, with the names and order of processes and threads before them."""
    tracks: dict[tuple[Position, str], list[Span]] = {}
    for span in spans:
        tracks.setdefault((span.cta, span.track), []).append(span)
    processes = {cta: n for n, cta in enumerate(sorted({cta for cta, _ in tracks}, key=_linear))}
    events = [_named("process", pid, 0, f"CTA {cta}") for cta, pid in processes.items()]
    threads = dict.fromkeys(processes, 0)
    for cta, track in sorted(tracks, key=lambda key: (_linear(key[0]), _order(key[1]))):
        for number, row in enumerate(_rows(tracks[cta, track])):
            tid = threads[cta] = threads[cta] + 1
            name = track if number == 0 else f"{track} ({number + 1})"
            events.append(_named("thread", processes[cta], tid, name))
            events.append(_sorted(processes[cta], tid))
            events += [_event(span, processes[cta], tid) for span in row]
    return events


def _linear(cta: Position) -> Position:
    """CTAs in the order of the grid: x runs fastest."""
    return cta[::-1]


def _order(track: str) -> tuple[bool, int, str]:
    """Warps by number, then engines by name."""
    word, _, number = track.partition(" ")
    if word == "warp" and number.isdigit():
        return False, int(number), ""
    return True, 0, track


def _rows(spans: Iterable[Span]) -> list[list[Span]]:
    """Spread spans over as few rows as it takes for none to overlap within a row."""
    rows: list[list[Span]] = []
    for span in sorted(spans, key=lambda span: (span.start, span.end)):
        row = next((row for row in rows if row[-1].end <= span.start), None)
        if row is None:
            row = []
            rows.append(row)
        row.append(span)
    return rows


def _event(span: Span, pid: int, tid: int) -> Event:
    return {"ph": "X", "pid": pid, "tid": tid, "cat": span.category, "name": span.name,
            "ts": span.start, "dur": span.end - span.start, "args": span.details}  # fmt: skip


def _named(what: str, pid: int, tid: int, name: str) -> Event:
    return {"ph": "M", "pid": pid, "tid": tid, "name": f"{what}_name", "args": {"name": name}}


def _sorted(pid: int, tid: int) -> Event:
    return {"ph": "M", "pid": pid, "tid": tid, "name": "thread_sort_index",
            "args": {"sort_index": tid}}  # fmt: skip
