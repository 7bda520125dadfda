"""CUDA-event timing without launch gaps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpukit.measure.probes import Probe

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpukit.measure.backend import Backend

# Whether reported samples are net of the launch latency that a pair around a kernel contains: the
# pair around one empty kernel, less what an empty kernel takes per node of a graph. Medians on an
# H200, in us: pair around nothing 1.28, around an empty kernel 3.3, empty kernel per node 0.54,
# hence 2.76 to subtract (the 1.28 would leave half of the latency in). Kernels of known length:
#   pair     net    graph   CUPTI
#   4.19     1.43   1.344   1.41
#   5.25     2.49   2.353   2.336
#   22.66   19.90   19.78   19.84
#   503.3   500.5   501.9   500.5   (a copy)
#   1973.4  1970.6  1971.6  1971.0
# So net samples are good to about 0.2 us or 0.3 %, raw ones would treble the shortest kernel.
SUBTRACT_EVENT_OVERHEAD = True

Group = tuple[Probe, int]


class EventSampler:
    """Times a batch of groups (preparation, start event, run, stop event) behind a blocker.

    The blocker holds the stream until the whole batch is enqueued, so the device goes from one
    operation to the next and no sample contains host time. Samples are raw: they contain the
    device's own launch latency.
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
