"""One problem in one L2 state: every way to run it, checked, then timed in turns."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from gpukit.bench.emulated_target import UNTIMED
from gpukit.bench.execute import describe, fill_timed, one_line
from gpukit.bench.families import buffers
from gpukit.bench.families.elementwise import FAMILY
from gpukit.bench.model import Case, CheckResult, Row, Target
from gpukit.bench.session import DeviceInfo, host_side
from gpukit.errors import ArgumentError, UnsupportedError

if TYPE_CHECKING:
    from gpukit.bench.families.elementwise_case import PreparedElementwise
    from gpukit.measure import TimingOptions, Work
    from gpukit.measure.works import L2State

_NANOSECOND, _LONG_US = 3, 10.0  # digits; from so long on a hundredth of a microsecond will do


@dataclasses.dataclass(frozen=True)
class Contest:
    """The rows of a contest, and whether the device may be trusted with another."""

    rows: list[Row]
    healthy: bool = True


def run_contest(cases: Sequence[Case], target: Target, info: DeviceInfo, timing: TimingOptions,
                ceiling: Mapping[str, Any] | None) -> Contest:
    """Run cases of one problem and L2 state; whatever goes wrong is told in their rows."""
    rows = [info.row(case) for case in cases]
    try:
        prepared = cast("PreparedElementwise", FAMILY.prepare(cases[0], target.device, ()))
        try:
            _measure(rows, prepared, target, timing, ceiling)
        finally:
            prepared.close()
    except UnsupportedError as reason:
        _mark(rows, "unsupported", one_line(reason))
    except Exception as problem:
        _mark(rows, "error", describe(problem))
        return Contest(rows, host_side(problem))
    return Contest(rows)


def _mark(rows: Sequence[Row], status: str, message: str) -> None:
    for row in rows:
        row.status, row.message = status, message


def _measure(rows: Sequence[Row], prepared: PreparedElementwise, target: Target,
             timing: TimingOptions, ceiling: Mapping[str, Any] | None) -> None:
    works = _right(rows, prepared, target)
    if not works or not target.timed:
        return
    timed = [row for row in rows if row.case_key in works]
    options = dataclasses.replace(timing, l2=cast("L2State", rows[0].l2))
    timings = target.time(list(works.values()), options)
    for row, one in zip(timed, timings, strict=True):
        fill_timed(row, prepared, one, target, ceiling)
        row.samples_us = [round(sample, _NANOSECOND - (sample >= _LONG_US))
                          for sample in row.samples_us]
    _check_all(timed, prepared)


def _right(rows: Sequence[Row], prepared: PreparedElementwise, target: Target) -> dict[str, Work]:
    """The works whose results are right, by the keys of their cases; the other rows say why."""
    works, judge = {}, _Judge(prepared)
    for row in rows:
        try:
            work, launch = prepared.variant(row.case_key, row.params)
        except (UnsupportedError, ArgumentError) as reason:  # not a launch for this problem
            _mark([row], "unsupported", one_line(reason))
            continue
        row.launch, result = dict(launch), judge(work)
        row.error, row.tolerance = result.error, result.tolerance
        if result.ok:
            works[row.case_key] = work
            row.status, row.counters = "ok", target.counters()
        else:
            _mark([row], "wrong", f"wrong result: error {result.error:.3g} x tolerance "
                                  f"({result.tolerance})")
    return works


class _Judge:
    """The first result is compared with the oracle, the others with the first, bit for bit; one
    that differs has its own day before the oracle."""

    def __init__(self, prepared: PreparedElementwise) -> None:
        self._prepared = prepared
        self._accepted: tuple[Any, CheckResult] | None = None

    def __call__(self, work: Work) -> CheckResult:
        out = self._prepared.outputs[0]
        buffers.poison(out)
        work.launch(0)
        words = buffers.words(out)
        if self._accepted is not None and bool((words == self._accepted[0]).all()):
            return self._accepted[1]
        result = self._prepared.check(0)
        if result.ok and self._accepted is None:
            self._accepted = words.copy(), result
        return result


def _check_all(rows: Sequence[Row], prepared: PreparedElementwise) -> None:
    """After all launches, the first and the last buffer set must still be right."""
    for slot in sorted({0, prepared.work.slots - 1}):
        result = prepared.check(slot)
        if not result.ok:
            _mark(rows, "wrong", f"right before timing, wrong after it: error {result.error:.3g} "
                                 f"x tolerance ({result.tolerance}) in buffer set {slot}")


def timed(case: Case) -> bool:
    """Whether a case is for a device with a clock."""
    return case.l2 != UNTIMED
