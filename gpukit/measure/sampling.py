"""From probes to samples: interleaving, batch size, warm-up and the stopping rule."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from gpukit.measure.errors import MeasurementError
from gpukit.measure.events import Group
from gpukit.measure.statistics import median, standard_error

if TYPE_CHECKING:
    from gpukit.measure.backend import Backend
    from gpukit.measure.probes import Probe
    from gpukit.measure.works import TimingOptions

# Bounds on what is queued behind one blocker. The driver's launch queue holds about a thousand
# entries, a group takes a handful and each launch of a graph may take one; a full queue would have
# the host wait for the device and the device for the host.
MOST_GROUPS = 64
MOST_LAUNCHES_QUEUED = 512
# Aimed-at length of a batch: short enough for a prompt Ctrl-C, long against its fixed costs.
BATCH_S = 0.02
# Consecutive time-outs after which the work itself must be what waits.
STRIKES = 3
CLOCK_TOLERANCE = 0.01

Sampler = Callable[[Sequence[Group]], "list[float] | None"]


def interleave(works: int, slots: int) -> Iterator[tuple[int, int]]:
    """Endless (work index, slot): A B A B ..., the next slot for whichever work comes next.

    One counter serves all works: they may share their buffer sets, and a set that one of them
    has just used would be hot for the next. So ``slots - 1`` other sets lie between two uses of
    a set by anyone. Where works and slots have a common divisor, each work would stay with its
    own share of the sets; there the works change places (A B, then B A) after each such period.
    """
    period = math.lcm(works, slots)
    places = 1 if period < works * slots else 0
    for step in itertools.count():
        yield (step + step // period * places) % works, step % slots


def shuffled(works: int, slots: int) -> Iterator[tuple[int, int]]:
    """`interleave` with the works of each turn in an order of its own, the same in every run.

    What a launch leaves behind (dirty lines in L2, banks busy with writing them back) is part of
    the next one's time, several percent of it when rotating; in turns of one order, the next one
    would be the same work every time.
    """
    rng, steps = random.Random(0), itertools.count()
    while True:
        for work in rng.sample(range(works), works):
            yield work, next(steps) % slots


class BatchSize:
    """How many groups to enqueue at once: doubles while batches are short, halves on trouble."""

    def __init__(self, most: int = MOST_GROUPS) -> None:
        self.groups = 1
        self._most = most
        self._strikes = 0

    def went_well(self, seconds: float) -> None:
        """Adapt to a batch that took ``seconds``."""
        self._strikes = 0
        fitting = int(BATCH_S * self.groups / max(seconds, 1e-9))
        self.groups = max(1, min(2 * self.groups, fitting, self._most))

    def timed_out(self, names: Sequence[str]) -> None:
        """Halve for good; give up when even single groups keep timing out."""
        self._strikes += 1
        if self.groups == 1 and self._strikes >= STRIKES:
            raise MeasurementError(
                f"the device waited for the host in every attempt while timing {', '.join(names)}:"
                " a launch that synchronises or allocates, or CUDA_LAUNCH_BLOCKING=1, cannot be"
                " timed by events; use method='cupti'"
            )
        self._most = self.groups = max(1, self.groups // 2)


class Collector:
    """Draws interleaved batches of samples from a set of probes, all with as many slots."""

    def __init__(self, backend: Backend, probes: Sequence[Probe], sampler: Sampler,
                 *, shuffle: bool = False) -> None:
        self._backend = backend
        self._probes = probes
        self._sampler = sampler
        self._order = (shuffled if shuffle else interleave)(len(probes), probes[0].slots)
        launches = max(probe.launches for probe in probes)
        self._size = BatchSize(max(1, min(MOST_GROUPS, MOST_LAUNCHES_QUEUED // launches)))

    def batch(self) -> list[tuple[int, float]]:
        """One batch of (probe index, microseconds per launch), in the order they ran."""
        while True:
            turns = list(itertools.islice(self._order, self._size.groups))
            start = self._backend.seconds()
            values = self._sampler([(self._probes[index], slot) for index, slot in turns])
            if values is not None:
                self._size.went_well(self._backend.seconds() - start)
                return [(index, value) for (index, _), value in zip(turns, values, strict=True)]
            self._size.timed_out(sorted({self._probes[index].name for index, _ in turns}))

    def warm_up(self, sm_clock: Callable[[], float | None], limit_s: float) -> None:
        """Run the load until two SM clock readings in a row agree, or ``limit_s`` is over."""
        deadline = self._backend.seconds() + limit_s
        before: float | None = None
        while self._backend.seconds() < deadline:
            self.load_for(BATCH_S)
            now = sm_clock()
            if settled(before, now):
                return
            before = now

    def collect(self, options: TimingOptions, less_us: float = 0.0) -> list[list[float]]:
        """Samples by probe, in microseconds per launch, until the stopping rule is met.

        Each is taken less ``less_us``, but not below 0: no kernel takes negative time.
        """
        start = self._backend.seconds()
        # The order goes on where the warm-up left it; a whole turn of slots is discarded anyway.
        left = [probe.discard for probe in self._probes]
        samples: list[list[float]] = [[] for _ in self._probes]
        while not finished(samples, self._backend.seconds() - start, options):
            for index, value in self.batch():
                if left[index] > 0:
                    left[index] -= 1
                elif len(samples[index]) < options.max_samples:
                    samples[index].append(max(value - less_us, 0.0))
        return samples

    def load_for(self, seconds: float) -> None:
        """Run the works in turns, as when sampling, for so long; whatever is measured is lost."""
        stop = self._backend.seconds() + seconds
        while self._backend.seconds() < stop:
            self.batch()


def settled(before: float | None, now: float | None) -> bool:
    """Whether two clock readings agree within `CLOCK_TOLERANCE`; an absent one never does."""
    if before is None or now is None:
        return False
    return abs(now - before) <= CLOCK_TOLERANCE * max(before, now)


def converged(samples: Sequence[float], options: TimingOptions) -> bool:
    """Enough samples, and a median known to ``rel_error``."""
    if len(samples) < options.min_samples:
        return False
    return standard_error(samples) < options.rel_error * median(samples)


def finished(samples: Sequence[Sequence[float]], elapsed_s: float, options: TimingOptions) -> bool:
    """The stopping rule; never before every work has a sample."""
    fewest = min(len(one) for one in samples)
    if fewest == 0:
        return False
    if fewest >= options.max_samples or elapsed_s >= options.budget_s * len(samples):
        return True
    return all(converged(one, options) for one in samples)
