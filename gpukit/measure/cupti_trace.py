"""Kernel durations from CUPTI's activity records (optional package cupti-python, CUDA 13).

Which records belong to a sample is told by external correlation ids: CUPTI tags every API call
made between push and pop with our id, and gives each kernel, copy and memset the correlation id
of the call that launched it. The L2 flush runs outside push/pop and so can never be counted;
no kernel is recognised by its name or by when it ran.
"""

from __future__ import annotations

import functools
import itertools
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from gpukit.errors import missing
from gpukit.measure.errors import MeasurementError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpukit.measure.backend import Backend
    from gpukit.measure.events import Group

BUFFER_BYTES = 8 * 1024 * 1024
DELIVERY_S = 2.0

Span = tuple[int, int, int]  # correlation id, start ns, end ns

# Regions are never reused, so a record that arrives late can not land in another sample.
_regions = itertools.count(1)


class Ledger:
    """What CUPTI has delivered: which call belongs to which region, and the device spans."""

    def __init__(self) -> None:
        self._region_of: dict[int, int] = {}
        self._spans: list[Span] = []

    def call(self, correlation: int, region: int) -> None:
        self._region_of[correlation] = region

    def span(self, span: Span) -> None:
        self._spans.append(span)

    def durations_us(self) -> dict[int, float]:
        """Summed device time of each region's own activities, in microseconds."""
        totals: dict[int, float] = {}
        for correlation, start, end in self._spans:
            region = self._region_of.get(correlation)
            if region is not None:
                totals[region] = totals.get(region, 0.0) + (end - start) / 1e3
        return totals

    def clear(self) -> None:
        self._region_of.clear()
        self._spans.clear()


class Tracer:
    """CUPTI's activity API, reduced to tagged regions and their device time.

    One process has one CUPTI client, hence one `tracer()`.
    """

    def __init__(self, cupti: Any) -> None:
        self._cupti = cupti
        kinds = cupti.ActivityKind
        self._spans = (kinds.CONCURRENT_KERNEL, kinds.MEMCPY, kinds.MEMSET)
        # Without the API kinds CUPTI emits no external correlation records.
        self._kinds = (*self._spans, kinds.EXTERNAL_CORRELATION, kinds.RUNTIME, kinds.DRIVER)
        self._tag = cupti.ExternalCorrelationKind.CUSTOM2  # PyTorch's profiler takes 0 and 1
        self.ledger = Ledger()
        self._registered = False

    @contextmanager
    def tracing(self) -> Iterator[None]:
        """Record activities inside the block."""
        enabled: list[Any] = []
        try:
            self._enable(enabled)
            yield
        finally:
            for kind in enabled:
                self._cupti.activity_disable(kind)
            self.ledger.clear()

    @contextmanager
    def region(self, region: int) -> Iterator[None]:
        """Tag the API calls of this thread inside the block."""
        self._cupti.activity_push_external_correlation_id(self._tag, region)
        try:
            yield
        finally:
            self._cupti.activity_pop_external_correlation_id(self._tag)

    def flush(self) -> None:
        """Have CUPTI deliver what it holds; the device must be idle."""
        self._cupti.activity_flush_all(1)

    def _enable(self, enabled: list[Any]) -> None:
        try:
            if not self._registered:
                self._cupti.activity_register_callbacks(_buffer_request, self._receive)
                self._registered = True
            for kind in self._kinds:
                self._cupti.activity_enable(kind)
                enabled.append(kind)
        except (self._cupti.cuptiError, RuntimeError) as error:
            raise MeasurementError(
                f"CUPTI cannot trace here ({error}); is another profiler attached? "
                "method='events' works without CUPTI"
            ) from error

    def _receive(self, activities: Sequence[Any]) -> None:
        # The records live in CUPTI's buffer and are gone after this call: copy the numbers out.
        external = self._cupti.ActivityKind.EXTERNAL_CORRELATION
        for record in activities:
            if record.kind in self._spans:
                self.ledger.span((record.correlation_id, record.start, record.end))
            elif record.kind == external and record.external_kind == self._tag:
                self.ledger.call(record.correlation_id, record.external_id)


def _buffer_request() -> tuple[int, int]:
    return BUFFER_BYTES, 0  # 0: as many records as fit


class CuptiSampler:
    """Times a batch of groups by the summed device time of what each group's run launched."""

    def __init__(self, backend: Backend, tracer: Tracer) -> None:
        self._backend = backend
        self._tracer = tracer

    def __call__(self, groups: Sequence[Group]) -> list[float]:
        """Microseconds per group; gaps between the kernels of one group do not count."""
        regions = list(itertools.islice(_regions, len(groups)))
        for region, (probe, slot) in zip(regions, groups, strict=True):
            probe.prepare(slot)
            with self._tracer.region(region):
                probe.run(slot)
        self._backend.synchronize()
        durations = self._delivered(regions)
        names = [probe.name for (probe, _) in groups]
        return [_found(durations, *pair) for pair in zip(regions, names, strict=True)]

    def _delivered(self, regions: Sequence[int]) -> dict[int, float]:
        """Durations by region, once every region has records and a further flush adds none."""
        ledger, deadline = self._tracer.ledger, time.monotonic() + DELIVERY_S
        seen: dict[int, float] = {}
        while time.monotonic() < deadline:
            self._tracer.flush()
            before, seen = seen, ledger.durations_us()
            if seen == before and all(region in seen for region in regions):
                break
            time.sleep(0.001)
        ledger.clear()
        return seen


def _found(durations: dict[int, float], region: int, name: str) -> float:
    if region not in durations:
        raise MeasurementError(f"CUPTI recorded no GPU activity for work {name!r}")
    return durations[region]


@functools.cache
def tracer() -> Tracer:
    """The process's tracer; needs cupti-python."""
    try:
        from cupti import cupti
    except ImportError as error:
        raise missing("cupti-python (CUDA 13)", "cupti", "method='cupti'") from error
    return Tracer(cupti)
