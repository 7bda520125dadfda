"""One case, from its description to its row: poison, launch, check, time, check again."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, cast

from gpukit.bench.peers import Absent, PeerWork
from gpukit.bench.rates import Rates
from gpukit.bench.rows import SUSTAINED, Row
from gpukit.errors import GpukitError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpukit.bench.model import Case, CheckResult, Family, Prepared, Target
    from gpukit.measure import Timing, TimingOptions, Work
    from gpukit.measure.works import L2State, Method


@dataclasses.dataclass(frozen=True)
class CaseOptions:
    """What every case of a sweep shares.

    ``timing`` is used with each case's own ``l2`` and ``method``, and with ``sustain_s`` seconds
    of load for sustained cases only; ``peers`` names the peers to time beside ours; ``debug``
    prints the traceback of a case that fails to standard error.
    """

    timing: TimingOptions
    peers: tuple[str, ...] = ()
    debug: bool = False


def run_case(
    family: Family,
    case: Case,
    target: Target,
    options: CaseOptions,
    ceiling: Mapping[str, Any] | None = None,
    environment: str = "",
) -> Row:
    """Run one case and return its row: ``ok``, ``wrong``, ``unsupported``, ``throttled`` or
    ``cache-resident``. Whatever else goes wrong is raised; the caller knows what it ends."""
    row = Row.of(case, target.name, target.arch, environment)
    try:
        prepared = family.prepare(case, target.device, options.peers if target.timed else ())
        try:
            _measure(row, prepared, target, options, ceiling)
        finally:
            prepared.close()
    except UnsupportedError as reason:
        row.status, row.message = "unsupported", one_line(reason)
    return row


def _measure(
    row: Row,
    prepared: Prepared,
    target: Target,
    options: CaseOptions,
    ceiling: Mapping[str, Any] | None,
) -> None:
    row.launch = dict(prepared.launch)
    if not _passes(row, prepared, (0,), "wrong result"):
        return
    row.counters = target.counters()
    if not target.timed:
        row.status = "ok"
        return
    timings, absent = _time(prepared, target, _timing(row, options))
    slots = range(prepared.work.slots)
    if not _passes(row, prepared, slots, "right before timing, wrong after it"):
        return
    row.launch = dict(prepared.launch)  # again: some kernels count their own clocks
    _fill_peers(row, prepared.peers, timings, (*prepared.notes, *absent))
    fill_timed(row, prepared, timings[0], target, ceiling)


def _timing(row: Row, options: CaseOptions) -> TimingOptions:
    """How this row is timed."""
    return dataclasses.replace(
        options.timing,
        l2=cast("L2State", row.l2),
        method=cast("Method", row.method),
        sustain_s=options.timing.sustain_s if row.load == SUSTAINED else 0.0,
    )


def _time(
    prepared: Prepared, target: Target, timing: TimingOptions
) -> tuple[Sequence[Timing], list[Absent]]:
    """Time ours and its peers; a peer that this method cannot time is left out, ours is not."""
    from gpukit.measure import CaptureError

    works: list[Work] = [prepared.work, *prepared.peers]
    absent: list[Absent] = []
    while True:
        try:
            return target.time(works, timing), absent
        except CaptureError as problem:
            if problem.work == prepared.work.name:
                raise
            works = [work for work in works if work.name != problem.work]
            absent.append(Absent(problem.work, one_line(problem)))


def _passes(row: Row, prepared: Prepared, slots: Sequence[int], complaint: str) -> bool:
    """Poison, launch every slot once, check the first and the last; write it into the row."""
    prepared.poison()
    for slot in slots:
        prepared.work.launch(slot)
    for slot in sorted({slots[0], slots[-1]}):
        result = prepared.check(slot)
        _note_check(row, result)
        if not result.ok:
            row.message = (
                f"{complaint}: error {result.error:.3g} x tolerance ({result.tolerance})"
                f"{f' in buffer set {slot}' if slot else ''}"
            )
            return False
    return True


def _note_check(row: Row, result: CheckResult) -> None:
    """The row shows the worst of its checks."""
    if not result.ok:
        row.status, row.error = "wrong", result.error
    else:
        row.error = max(result.error, row.error or 0.0)
    row.tolerance = result.tolerance


def fill_timed(
    row: Row,
    prepared: Prepared,
    timing: Timing,
    target: Target,
    ceiling: Mapping[str, Any] | None,
) -> None:
    """Write into the row of a checked case what its samples say, and its status."""
    _fill_speed(row, prepared, timing, target, ceiling)
    _judge(row, prepared, timing, target, ceiling)


def _fill_speed(
    row: Row,
    prepared: Prepared,
    timing: Timing,
    target: Target,
    ceiling: Mapping[str, Any] | None,
) -> None:
    rates = Rates.of(prepared.bytes_moved, prepared.flops, timing.median_us)
    row.time_us, row.spread = timing.median_us, timing.spread
    row.gbs, row.tflops = rates.gbs, rates.tflops
    row.pct_peak = rates.percent_of(target.peaks(row.dtype))
    row.pct_ceiling = rates.percent_of(ceiling)
    row.clocks = timing.clocks.as_dict() if timing.clocks else None
    row.samples_us = [float(sample) for sample in timing.samples_us]


def _fill_peers(
    row: Row, works: Sequence[Work], timings: Sequence[Timing], absent: Sequence[Absent]
) -> None:
    ours, *theirs = timings
    facts = {work.name: work.facts for work in works if isinstance(work, PeerWork)}
    row.peers = {
        peer.name: {**_peer(peer.median_us, ours.median_us), **facts.get(peer.name, {})}
        for peer in theirs
    }
    row.peers |= {one.peer: {"reason": one.reason} for one in absent}


def _peer(time_us: float, ours_us: float) -> dict[str, float]:
    return {"time_us": time_us, "ratio": time_us / ours_us} if ours_us > 0 else {"time_us": time_us}


def _judge(
    row: Row,
    prepared: Prepared,
    timing: Timing,
    target: Target,
    ceiling: Mapping[str, Any] | None,
) -> None:
    """Set the status and say in the message all that makes the speed less than plain."""
    notes = []
    row.status = "ok"
    used = prepared.footprint * prepared.work.slots
    if used and fits_cache(row.l2, used, target.l2_bytes):
        row.status = "cache-resident"
        notes.append(f"all buffers fit the {target.l2_bytes / 2**20:.0f} MiB L2")
    if timing.clocks is not None and timing.clocks.throttled:
        row.status = "throttled"  # before all else: such a speed is not even the cache's
        notes.append(f"clocks held back: {', '.join(timing.clocks.reasons)}")
    if row.pct_peak is not None and row.pct_peak > 100:
        notes.append("above 100 % of the datasheet peak: not the memory's or the cores' own speed")
    if not timing.converged:
        notes.append("the median had not settled when the time was up")
    notes += timing.notes
    if ceiling and "failed" in ceiling:
        notes.append(f"the ceiling could not be measured: {ceiling['failed']}")
    row.message = "; ".join(notes)


def fits_cache(l2: str, used_bytes: int, l2_bytes: int) -> bool:
    """Whether the timed launches found their data in L2: never after a flush, otherwise when
    all buffers they touched fit."""
    return l2 != "flush" and used_bytes <= l2_bytes


def one_line(problem: BaseException | str) -> str:
    """Return a message without line breaks, for a row or a terminal line."""
    return " ".join(str(problem).split())


def describe(problem: BaseException) -> str:
    """Return an error in one line, in its own words; unexpected kinds say which they are."""
    text = one_line(problem)
    return text if isinstance(problem, GpukitError) else f"{type(problem).__name__}: {text}"
