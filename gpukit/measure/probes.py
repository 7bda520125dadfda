"""From works to probes: what runs untimed before each sample, and what the sample spans."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpukit.measure.errors import CaptureError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpukit.measure.backend import Backend
    from gpukit.measure.works import L2State, TimingOptions, Work

# A replay this long makes its one launch latency (a few microseconds) negligible.
REPLAY_US = 1000.0
MOST_LAUNCHES = 512


@dataclass(frozen=True)
class Probe:
    """One timed interval.

    ``prepare(slot)`` brings the L2 into its state, untimed; ``run(slot)`` is timed and makes
    ``launches`` launches of the work; each sample takes one of the slots 0 to ``slots - 1``, and
    the first ``discard`` samples do not count.
    """

    name: str
    prepare: Callable[[int], None]
    run: Callable[[int], None]
    launches: int = 1
    slots: int = 1
    discard: int = 0


def stream_probe(work: Work, l2: L2State, backend: Backend, contenders: int) -> Probe:
    """One launch per sample; rotation takes the next buffer set each time.

    The first turn of the rotation does not count; all ``contenders`` together make it.
    """
    slots = work.slots if l2 == "rotate" else 1
    discard = math.ceil(slots / contenders) if l2 == "rotate" else 0
    return Probe(work.name, preparation(work, l2, backend), work.launch, 1, slots, discard)


def preparation(work: Work, l2: L2State, backend: Backend) -> Callable[[int], None]:
    """The untimed step that precedes a sample.

    Hot means a run of the same work on the same buffers just before: other works are timed in
    between and would otherwise leave their own lines in the L2.
    """
    if l2 == "flush":
        return lambda slot: backend.flush_l2()
    return work.launch if l2 == "hot" else nothing


def nothing(slot: int) -> None:
    """Prepare or run nothing."""


def graph_probe(work: Work, options: TimingOptions, backend: Backend, own_us: float) -> Probe:
    """One replay of a graph of many launches per sample; ``own_us`` is about what
    one launch takes by itself. A replay goes round the sets in whole turns from the first on, so
    replays of works with as many sets follow each other without breaking the turn."""
    slots = work.slots if options.l2 == "rotate" else 1
    launches = launches_per_replay(own_us, slots)
    replay = captured(work, launches, slots, backend)
    prepare = preparation(work, options.l2, backend)
    return Probe(work.name, prepare, lambda slot: replay(), launches, discard=1)


def launches_per_replay(own_us: float, slots: int) -> int:
    """Enough launches for a replay of about a millisecond, in whole turns of the rotation."""
    wanted = min(max(math.ceil(REPLAY_US / max(own_us, 1e-3)), 1), MOST_LAUNCHES)
    return slots * math.ceil(wanted / slots)


def captured(work: Work, launches: int, slots: int, backend: Backend) -> Callable[[], None]:
    """The replay of a graph of that many launches; CaptureError when that fails."""

    def enqueue() -> None:
        for step in range(launches):
            work.launch(step % slots)

    try:
        return backend.capture(enqueue)
    except Exception as error:
        raise CaptureError(work.name, str(error)) from error


def prime(works: Sequence[Work], backend: Backend) -> None:
    """Run every buffer set of every work once: modules load and plans are made here."""
    for work in works:
        for slot in range(work.slots):
            work.launch(slot)
    backend.synchronize()
