"""The sweep: case after case, each row stored the moment it exists."""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import TYPE_CHECKING, Any, Protocol, cast, runtime_checkable

from gpukit.bench import interrupts
from gpukit.bench.emulated_target import UNTIMED
from gpukit.bench.model import FINAL_STATUSES
from gpukit.bench.rows import BURST, SUSTAINED, row_key
from gpukit.bench.session import LocalSession, Setup
from gpukit.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpukit.bench.execute import CaseOptions
    from gpukit.bench.model import Case, Family, Row
    from gpukit.bench.session import DeviceInfo, Session
    from gpukit.bench.store import Store
    from gpukit.measure.works import L2State, Method

#: Rough seconds that a case costs besides its timing: compile, fill, check.
SETUP_S = 1.0
#: More combinations than this are a typing error, not a sweep.
MAX_CASES = 100_000


@dataclasses.dataclass(frozen=True)
class SweepOptions:
    """How a sweep runs.

    ``isolate`` runs the cases in a worker process; ``timeout_s`` bounds one case there.
    ``command`` is noted in the results.
    """

    case: CaseOptions
    device: str = "0"
    isolate: bool = True
    timeout_s: float | None = None
    command: tuple[str, ...] = ()


@runtime_checkable
class Counts(Protocol):
    """A family whose axes are not all crossed with each other."""

    def count(self, selection: Mapping[str, tuple[Any, ...]]) -> int:
        """Return how many cases a selection makes at most, without making them."""


class Observer(Protocol):
    """Told how a sweep goes; what a progress display implements."""

    def planned(
        self, todo: int, kept: Sequence[Row], seconds: float | None, info: DeviceInfo
    ) -> None:
        """``todo`` cases will run for about ``seconds``, where that is known; ``kept`` rows were
        there already."""

    def running(self, case: Case) -> None: ...

    def finished(self, row: Row) -> None: ...


def select_cases(
    family: Family,
    selection: Mapping[str, tuple[Any, ...]],
    l2: Sequence[str] = ("flush",),
    methods: Sequence[str] = ("events",),
    loads: Sequence[str] = (BURST,),
    *,
    emulated: bool = False,
) -> list[Case]:
    """Return the cases of a selection, crossed with L2 states, timing methods and loads.

    Axes that ``selection`` leaves out take their defaults, those for an ``emulated`` device if it
    is one; then nothing is timed and there are no states, methods and loads. Pairs that cannot be
    timed (a flush within a graph) are left out, unless there is nothing else. Runs without a GPU.

    Raises:
        ArgumentError: nothing is left to run, far too much is, or a value that the family refuses.
    """
    full = _complete(family, selection, emulated)
    pairs = [(UNTIMED, UNTIMED)] if emulated else _pairs(l2, methods)
    loads = (BURST,) if emulated else loads
    count = _combinations(family, full) * len(pairs) * len(loads)
    if count > MAX_CASES:
        raise ArgumentError(
            f"{family.name}: these options make {count} combinations; "
            f"at most {MAX_CASES} are accepted"
        )
    crossed = (
        dataclasses.replace(case, l2=state, method=method, load=load)
        for load, case, (state, method) in itertools.product(loads, family.cases(full), pairs)
    )
    cases = {case.key: case for case in crossed}
    if not cases:
        raise ArgumentError(f"{family.name}: no case fits this combination of options")
    return list(cases.values())


def _combinations(family: Family, full: Mapping[str, tuple[Any, ...]]) -> int:
    if isinstance(family, Counts):
        return family.count(full)
    return math.prod(max(1, len(values)) for values in full.values())


def _complete(
    family: Family, selection: Mapping[str, tuple[Any, ...]], emulated: bool
) -> dict[str, tuple[Any, ...]]:
    """Return the values of every axis: those chosen, else its defaults, but none where an axis
    that was chosen stands instead of it."""
    settled = {axis.instead_of for axis in family.axes if selection.get(axis.name)}
    defaults = {
        axis.name: (axis.emulated if emulated else ()) or axis.default
        for axis in family.axes
        if axis.name not in settled
    }
    names = (axis.name for axis in family.axes)
    return {name: selection.get(name, defaults.get(name, ())) for name in names}


def _pairs(l2: Sequence[str], methods: Sequence[str]) -> list[tuple[str, str]]:
    """Return the pairs of L2 state and method that can be timed."""
    from gpukit.measure import TimingOptions

    pairs, refusal = [], None
    for state, method in itertools.product(l2, methods):
        try:
            TimingOptions(l2=cast("L2State", state), method=cast("Method", method))
            pairs.append((state, method))
        except ArgumentError as problem:
            refusal = problem
    if not pairs and refusal is not None:
        raise refusal
    return pairs


def estimate_seconds(cases: Sequence[Case], options: CaseOptions) -> float | None:
    """Return roughly how long these cases take at most; None for those of emulated devices,
    which depend on the problem alone."""
    if any(case.method == UNTIMED for case in cases):
        return None
    timing = options.timing
    each = timing.warmup_s + timing.budget_s * (1 + len(options.peers)) + SETUP_S
    sustained = sum(case.load == SUSTAINED for case in cases)
    return len(cases) * each + sustained * timing.sustain_s


def run_sweep(
    family: Family,
    cases: Sequence[Case],
    options: SweepOptions,
    store: Store,
    observer: Observer,
) -> None:
    """Run the cases that ``store`` does not hold a final row of.

    An interrupt (KeyboardInterrupt) passes through after the worker is gone; every row finished
    before it is in the store, which notes that the run was not complete.

    Raises:
        NoDeviceError: the device cannot be opened.
    """
    with open_session(Setup(family, options.device, options.case), options) as session:
        info = session.info
        keys = {row_key(info.name, case.key): case for case in cases}
        kept = [r for r in store.rows if r.status in FINAL_STATUSES and r.key in keys]
        done = {row.key for row in kept}
        todo = {key: case for key, case in keys.items() if key not in done}
        seconds = estimate_seconds([*todo.values()], options.case)
        observer.planned(len(todo), kept, seconds, info)
        store.begin(info, options.command, todo)
        complete = False
        try:
            session.compile([*todo.values()])
            for case in todo.values():
                _run_one(case, session, store, observer)
            complete = True
        finally:
            with interrupts.held():
                store.finish(session.ceilings, complete=complete)


def _run_one(case: Case, session: Session, store: Store, observer: Observer) -> None:
    observer.running(case)
    row = session.run(case)
    with interrupts.held():  # what is shown and what is stored stay the same rows
        store.append(row)
        observer.finished(row)


def open_session(setup: Setup, options: SweepOptions) -> Session:
    """Open the device, in a worker process unless told otherwise."""
    if options.isolate:
        from gpukit.bench.worker import IsolatedSession

        return IsolatedSession(setup, options.timeout_s)
    if options.timeout_s is not None:
        raise ArgumentError("--timeout needs a worker process; leave out --no-isolate")
    return LocalSession(setup)
