"""The CUPTI sampler on a simulated device and a fake activity API with real record shapes."""

from __future__ import annotations

import enum
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from simulated import FLUSH_US, SimulatedDevice, constant_work

from gpukit.errors import MissingDependencyError
from gpukit.measure import cupti_trace
from gpukit.measure.cupti_trace import CuptiSampler, Ledger, Tracer
from gpukit.measure.errors import MeasurementError
from gpukit.measure.probes import stream_probe
from gpukit.measure.telemetry import Monitor
from gpukit.measure.timing import measure
from gpukit.measure.works import TimingOptions, Work

if TYPE_CHECKING:
    from collections.abc import Callable


class Kind(enum.IntEnum):
    MEMCPY = 1
    MEMSET = 2
    DRIVER = 4
    RUNTIME = 5
    CONCURRENT_KERNEL = 10
    EXTERNAL_CORRELATION = 39


class External(enum.IntEnum):
    CUSTOM0 = 3
    CUSTOM2 = 5


class FakeCuptiError(Exception):
    pass


class FakeCupti:
    """cupti-python's activity functions over a `SimulatedDevice`.

    Every launch makes an API record, external correlation records for the ids pushed at that
    time, and, once run, a device record of its duration.
    """

    ActivityKind = Kind
    ExternalCorrelationKind = External
    cuptiError = FakeCuptiError  # noqa: N815 - cupti-python's spelling

    def __init__(self, device: SimulatedDevice) -> None:
        self.enabled: set[int] = set()
        self.pushed: list[tuple[int, int]] = [(External.CUSTOM0, 999)]  # another tool's tag
        self.records: list[SimpleNamespace] = []
        self.deliver: Callable[[list[Any]], None] = lambda records: None
        self._correlation = 0
        self._launch = device.launch
        device.launch = self._traced  # type: ignore[method-assign]

    def _traced(self, name: str, duration_us: Callable[[], float]) -> None:
        self._correlation += 1
        correlation = self._correlation
        kind = Kind.MEMSET if "memset" in name else Kind.CONCURRENT_KERNEL
        if Kind.DRIVER in self.enabled and Kind.EXTERNAL_CORRELATION in self.enabled:
            self.records += [
                SimpleNamespace(kind=int(Kind.EXTERNAL_CORRELATION), external_kind=int(tag),
                                external_id=region, correlation_id=correlation)
                for tag, region in reversed(self.pushed)
            ]  # fmt: skip
        if kind in self.enabled:
            self.records.append(
                SimpleNamespace(kind=int(kind), correlation_id=correlation, start=1_000_000,
                                end=1_000_000 + round(duration_us() * 1e3))
            )  # fmt: skip
        self._launch(name, duration_us)

    def activity_register_callbacks(self, request: Any, complete: Any) -> None:
        assert request() == (cupti_trace.BUFFER_BYTES, 0)
        self.deliver = complete

    def activity_enable(self, kind: int) -> None:
        self.enabled.add(kind)

    def activity_disable(self, kind: int) -> None:
        self.enabled.remove(kind)

    def activity_push_external_correlation_id(self, kind: int, region: int) -> None:
        self.pushed.append((kind, region))

    def activity_pop_external_correlation_id(self, kind: int) -> int:
        tag, region = self.pushed.pop()
        assert tag == kind
        return region

    def activity_flush_all(self, flag: int) -> None:
        assert flag == 1
        records, self.records = self.records, []
        self.deliver(records)


@pytest.fixture
def device() -> SimulatedDevice:
    return SimulatedDevice()


@pytest.fixture
def cupti(device: SimulatedDevice, monkeypatch: pytest.MonkeyPatch) -> FakeCupti:
    fake = FakeCupti(device)
    tracer = Tracer(fake)
    monkeypatch.setattr("gpukit.measure.timing.tracer", lambda: tracer)
    return fake


OPTIONS = TimingOptions(method="cupti", warmup_s=0.0)


@pytest.mark.parametrize("l2", ["flush", "hot", "rotate"])
def test_only_the_works_own_activities_count(
    device: SimulatedDevice, cupti: FakeCupti, l2: Any
) -> None:
    options = TimingOptions(method="cupti", l2=l2, warmup_s=0.0)
    works = [constant_work(device, "a", 3.0, slots=2), constant_work(device, "b", 7.0, slots=2)]
    a, b = measure(device, Monitor(None), works, options)
    assert FLUSH_US > 3.0
    assert a.samples_us == pytest.approx([3.0] * len(a.samples_us))
    assert b.samples_us == pytest.approx([7.0] * len(b.samples_us))
    assert a.overhead_us == 0.0 and a.method == "cupti"


def test_kernels_and_memsets_of_one_launch_add_up(
    device: SimulatedDevice, cupti: FakeCupti
) -> None:
    def launch(slot: int) -> None:
        device.launch("memset", lambda: 2.0)
        device.launch("kernel", lambda: 5.0)
        device.launch("kernel", lambda: 1.5)

    (timing,) = measure(device, Monitor(None), [Work("a", launch)], OPTIONS)
    assert timing.median_us == pytest.approx(8.5)


def test_tracing_ends_with_the_measurement(device: SimulatedDevice, cupti: FakeCupti) -> None:
    measure(device, Monitor(None), [constant_work(device, "a", 3.0)], OPTIONS)
    assert cupti.enabled == set()
    assert cupti.pushed == [(External.CUSTOM0, 999)]


def test_a_failing_launch_pops_its_region(device: SimulatedDevice, cupti: FakeCupti) -> None:
    def launch(slot: int) -> None:
        raise KeyboardInterrupt

    probe = stream_probe(Work("a", launch), "hot", device, contenders=1)
    tracer = Tracer(cupti)
    with pytest.raises(KeyboardInterrupt), tracer.tracing():
        CuptiSampler(device, tracer)([(probe, 0)])
    assert cupti.enabled == set()
    assert cupti.pushed == [(External.CUSTOM0, 999)]


def test_a_work_without_activity_is_an_error(
    device: SimulatedDevice, cupti: FakeCupti, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cupti_trace, "DELIVERY_S", 0.02)
    with pytest.raises(MeasurementError, match="no GPU activity for work 'idle'"):
        measure(device, Monitor(None), [Work("idle", lambda slot: None)], OPTIONS)


def test_a_second_profiler_is_explained(device: SimulatedDevice, cupti: FakeCupti) -> None:
    def refuse(kind: int) -> None:
        raise FakeCuptiError("CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED")

    cupti.activity_enable = refuse  # type: ignore[method-assign]
    with pytest.raises(MeasurementError, match=r"MULTIPLE_SUBSCRIBERS.*another profiler"):
        measure(device, Monitor(None), [constant_work(device, "a", 3.0)], OPTIONS)


def test_an_absent_package_names_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupti", None)
    with pytest.raises(
        MissingDependencyError, match=r"cupti-python.* pip install 'gpukit\[cupti\]'"
    ):
        cupti_trace.tracer()


def test_the_ledger_ignores_calls_of_nobody() -> None:
    ledger = Ledger()
    ledger.span((1, 0, 2000))
    ledger.span((2, 0, 3000))
    ledger.span((2, 5000, 5500))
    ledger.call(2, 41)
    assert ledger.durations_us() == {41: pytest.approx(3.5)}
