"""CUDA-event timing without launch gaps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpukit.measure.probes import Probe

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpukit.measure.backend import Backend

# Whether reported samples are net of the cost of an event pair around nothing. Off: how much of
# that cost also lies inside a pair around a kernel differs between devices, so the samples stay
# as the events gave them and the cost is reported beside them.
SUBTRACT_EVENT_OVERHEAD = False

Group = tuple[Probe, int]


class EventSampler:
    """Times a batch of groups (preparation, start event, run, stop event) behind a blocker.

    The blocker holds the stream until the whole batch is enqueued, so the device goes from one
    operation to the next and no sample contains host time.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._pairs: list[tuple[Any, Any]] = []

    def __call__(self, groups: Sequence[Group]) -> list[float] | None:
        """Microseconds per launch of each group; None when the blocker gave up meanwhile."""
        pairs = self._pairs_for(len(groups))
        try:
            self._backend.block()
            for group, pair in zip(groups, pairs, strict=True):
                self._enqueue(group, pair)
        finally:  # also on Ctrl-C: a held stream would hang the next synchronisation
            self._backend.release()
        self._backend.synchronize()
        if self._backend.gave_up():
            return None
        return [
            self._backend.elapsed_us(*pair) / probe.launches
            for (probe, _), pair in zip(groups, pairs, strict=True)
        ]

    def _enqueue(self, group: Group, pair: tuple[Any, Any]) -> None:
        (probe, slot), (start, stop) = group, pair
        probe.prepare(slot)
        self._backend.record(start)
        probe.run(slot)
        self._backend.record(stop)

    def _pairs_for(self, count: int) -> list[tuple[Any, Any]]:
        while len(self._pairs) < count:
            self._pairs.append((self._backend.event(), self._backend.event()))
        return self._pairs[:count]


def subtract_event_overhead(sample_us: float, overhead_us: float) -> float:
    """A sample net of the event pair's own cost, if `SUBTRACT_EVENT_OVERHEAD` says so."""
    return max(sample_us - overhead_us, 0.0) if SUBTRACT_EVENT_OVERHEAD else sample_us
