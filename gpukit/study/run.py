"""The run of a study: contest after contest, each one's rows stored the moment it is over."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gpukit.bench import interrupts
from gpukit.bench.families.elementwise import FAMILY
from gpukit.bench.model import FINAL_STATUSES, Case
from gpukit.bench.rows import row_key
from gpukit.bench.session import DeviceInfo
from gpukit.errors import LaunchError
from gpukit.measure import TimingOptions
from gpukit.study.contest import run_contest
from gpukit.study.design import contests
from gpukit.study.prebuild import prebuild, variants

if TYPE_CHECKING:
    from gpukit.bench.model import Target
    from gpukit.bench.runner import Observer
    from gpukit.bench.store import Store

#: Seconds that a contest takes besides its samples: buffers, oracle, checks, warm-up.
_SETUP_S = 0.15
#: Bounds on the time for the samples of one case.
_LEAST_S, _MOST_S = 0.004, 0.05
_TIMING = TimingOptions(min_samples=12, max_samples=128, rel_error=0.001, warmup_s=0.04,
                        shuffle=True)


@dataclass
class Budget:
    """Shares what is left of the time among the cases that are left.

    ``seconds`` bound the measuring; contests that need less leave more for the others.
    """

    seconds: float
    begun: float = field(default_factory=time.monotonic)

    def options(self, cases_left: int, contests_left: int) -> TimingOptions:
        """How to time the next contest."""
        left = self.begun + self.seconds - time.monotonic() - _SETUP_S * contests_left
        share = min(max(left / max(1, cases_left), _LEAST_S), _MOST_S)
        return TimingOptions(**{**vars(_TIMING), "budget_s": share})


def run_study(cases: Sequence[Case], target: Target, store: Store, observer: Observer,
              seconds: float, command: tuple[str, ...] = ()) -> None:
    """Run the contests of which ``store`` lacks a final row, each as a whole.

    An interrupt passes through; the rows of every contest that finished before it are stored.

    Raises:
        LaunchError: the device takes no more work; a later run may go on from the rows.
    """
    info = DeviceInfo.of(target)
    todo = _todo(cases, store, info)
    again = {row_key(info.name, case.key) for group in todo for case in group}
    kept = [row for row in store.rows if row.key not in again]
    waiting = [case for group in todo for case in group]
    observer.planned(len(waiting), kept, seconds if target.timed else None, info)
    if target.timed:
        prebuild(variants(waiting, target.device.properties), target.device)
    store.begin(info, command, again)
    ceilings: dict[str, Any] = {}
    complete = False
    try:
        ceilings["f32"] = FAMILY.ceiling(target.device, "f32") if todo else None
        for group, options in _scheduled(todo, Budget(seconds)):
            _run_one(group, target, info, options, ceilings["f32"], store, observer)
        complete = True
    finally:
        with interrupts.held():
            store.finish(ceilings, complete=complete)


def _todo(cases: Sequence[Case], store: Store, info: DeviceInfo) -> list[list[Case]]:
    """The contests that are not all there: cases are comparable within one contest only."""
    done = {row.key for row in store.rows if row.status in FINAL_STATUSES}
    return [group for group in contests(cases)
            if any(row_key(info.name, case.key) not in done for case in group)]


def _scheduled(todo: Sequence[list[Case]],
               budget: Budget) -> Iterator[tuple[list[Case], TimingOptions]]:
    left = sum(map(len, todo))
    for done, group in enumerate(todo):
        yield group, budget.options(left, len(todo) - done)
        left -= len(group)


def _run_one(group: list[Case], target: Target, info: DeviceInfo, options: TimingOptions,
             ceiling: dict[str, Any] | None, store: Store, observer: Observer) -> None:
    observer.running(group[0])
    contest = run_contest(group, target, info, options, ceiling)
    with interrupts.held():  # what is shown and what is stored stay the same rows
        store.extend(contest.rows)
        for row in contest.rows:
            observer.finished(row)
    if not contest.healthy:
        raise LaunchError(f"the device may not be usable any more after {group[0].key}: "
                          f"{contest.rows[0].message}; --resume goes on in a fresh process")
