"""The table of methods, on a simulated device and a fake CUPTI, and without CUPTI."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
from simulated import SHARE_US, SimulatedDevice, constant_work
from test_cuda import to_ptx
from test_cupti_trace import FakeCupti

from gpukit.measure import cupti_trace
from gpukit.measure.agreement import CYCLES, SOURCE, compare
from gpukit.measure.cupti_trace import Tracer
from gpukit.measure.telemetry import Monitor
from gpukit.measure.timing import measure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpukit.measure.works import Timing, TimingOptions, Work


def table(device: SimulatedDevice, methods: list[str]) -> list[dict[str, float | None]]:
    """`compare` on works of known length; the order of the methods is appended to ``methods``."""

    def timer(works: Sequence[Work], options: TimingOptions) -> list[Timing]:
        methods.append(options.method)
        return measure(device, Monitor(None), works, options)

    return compare({us: constant_work(device, f"{us:g}", us) for us in CYCLES}, timer)


def test_every_method_tells_the_length_of_a_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    device = SimulatedDevice()
    tracer = Tracer(FakeCupti(device))
    monkeypatch.setattr("gpukit.measure.timing.tracer", lambda: tracer)
    methods: list[str] = []
    rows = table(device, methods)
    assert [row["target_us"] for row in rows] == [2.0, 20.0, 2000.0]
    for us, row in zip(CYCLES, rows, strict=True):
        assert list(row) == ["target_us", "events_us", "graph_us", "cupti_us"]
        assert row["events_us"] == pytest.approx(us, abs=SHARE_US)
        assert row["graph_us"] == pytest.approx(us, rel=0.003, abs=SHARE_US)
        assert row["cupti_us"] == pytest.approx(us)
    assert methods == ["events", "graph", "cupti"]  # the tracer comes last


def test_without_cupti_its_column_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupti", None)
    cupti_trace.tracer.cache_clear()
    rows = table(SimulatedDevice(), [])
    assert [row["cupti_us"] for row in rows] == [None] * 3
    assert all(row["events_us"] and row["graph_us"] for row in rows)


def test_the_spin_kernel_reads_the_clock_until_it_is_time() -> None:
    _, _, body = to_ptx("compute_90a", SOURCE).partition(".entry spin")
    assert body.count("%clock64") >= 2 and "bra" in body
