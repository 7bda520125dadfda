"""The launch latency: how it is found, what it is subtracted from, and when it is not known."""

from __future__ import annotations

import dataclasses
import random
from typing import TYPE_CHECKING

import pytest
from simulated import (
    EMPTY_US,
    LATENCY_US,
    PAIR_US,
    SHARE_US,
    START_US,
    SimulatedDevice,
    constant_work,
)

from gpukit.measure import events, timing
from gpukit.measure.calibration import MOST_AGE_S, Calibration, calibrate_on, recent_calibration
from gpukit.measure.telemetry import Monitor
from gpukit.measure.timing import measure
from gpukit.measure.works import Timing, TimingOptions, Work

if TYPE_CHECKING:
    from collections.abc import Callable

EVENTS = TimingOptions(l2="hot", warmup_s=0.0, rel_error=0.003)
GRAPH = dataclasses.replace(EVENTS, method="graph")


def time_one(device: SimulatedDevice, work: Work, options: TimingOptions = EVENTS) -> Timing:
    (result,) = measure(device, Monitor(None), [work], options)
    return result


class Uncapturable(SimulatedDevice):
    def capture(self, enqueue: Callable[[], None]) -> Callable[[], None]:
        raise RuntimeError("capture is not permitted")


def test_calibration_tells_the_pair_the_empty_kernel_and_the_latency_apart() -> None:
    calibration = calibrate_on(SimulatedDevice())
    assert calibration.pair_us == pytest.approx(PAIR_US)
    assert calibration.empty_kernel_us == pytest.approx(EMPTY_US + LATENCY_US)
    assert calibration.empty_own_us == pytest.approx(EMPTY_US, abs=SHARE_US)
    assert calibration.launch_us == pytest.approx(LATENCY_US, abs=SHARE_US)
    assert calibration.note == ""


def test_the_latency_is_never_negative() -> None:
    assert Calibration(1.0, 2.0, 2.5).launch_us == 0.0


def test_events_are_net_of_the_pair_around_an_empty_kernel_not_around_nothing() -> None:
    device = SimulatedDevice()
    result = time_one(device, constant_work(device, "a", 3.0))
    assert START_US > 100 * SHARE_US  # what subtracting the pair around nothing would leave
    assert result.median_us == pytest.approx(3.0, abs=SHARE_US)
    assert result.overhead_us == pytest.approx(LATENCY_US, abs=SHARE_US)
    assert result.overhead_subtracted


@pytest.mark.parametrize("us", [0.8, 2.0, 20.0, 2000.0])
def test_events_and_graph_agree(us: float) -> None:
    device = SimulatedDevice()
    work = constant_work(device, "a", us)
    by_events, by_graph = (time_one(device, work, options) for options in (EVENTS, GRAPH))
    # A long replay has few launches to share its latency: 0.3 % at most.
    assert by_events.median_us == pytest.approx(by_graph.median_us, abs=SHARE_US, rel=0.003)
    assert by_events.median_us == pytest.approx(us, abs=SHARE_US)


def test_subtraction_is_one_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "SUBTRACT_EVENT_OVERHEAD", False)
    device = SimulatedDevice()
    result = time_one(device, constant_work(device, "a", 3.0))
    assert result.median_us == pytest.approx(3.0 + LATENCY_US)
    assert result.overhead_us == pytest.approx(LATENCY_US, abs=SHARE_US)
    assert not result.overhead_subtracted


def test_a_work_too_short_for_events_counts_as_zero_and_says_so() -> None:
    device = SimulatedDevice()
    result = time_one(device, Work("idle", lambda slot: None))
    assert set(result.samples_us) == {0.0} and result.median_us == 0.0
    assert not result.converged
    count = len(result.samples_us)
    expected = f"{count} of {count} samples were no longer than the launch latency"
    assert any(expected in note for note in result.notes)
    enough = time_one(device, constant_work(device, "a", 3.0))
    assert not any("launch latency" in note for note in enough.notes)


def test_the_stopping_rule_looks_at_net_samples() -> None:
    device, noise = SimulatedDevice(), random.Random(1)
    # The standard error of n samples is 0.06/sqrt(n) us: 0.3 % of the raw 3.8 us takes 28 samples,
    # of the net 1 us it takes 400.
    work = Work("a", lambda slot: device.launch("a", lambda: noise.uniform(0.94, 1.06)))
    (result,) = measure(device, Monitor(None), [work], EVENTS)
    assert result.converged
    assert 100 < len(result.samples_us) < 1000


def test_a_kernel_that_cannot_be_captured_leaves_the_samples_raw_with_a_note() -> None:
    device = Uncapturable()
    result = time_one(device, constant_work(device, "a", 3.0))
    assert result.median_us == pytest.approx(3.0 + LATENCY_US)
    assert result.overhead_us == 0.0 and not result.overhead_subtracted
    assert any("launch latency, which is unknown" in note for note in result.notes)
    assert any("capture is not permitted" in note for note in result.notes)


def test_a_calibration_serves_its_device_for_a_minute() -> None:
    device, other = SimulatedDevice(), SimulatedDevice()
    first = recent_calibration(device)
    assert recent_calibration(device) is first
    assert recent_calibration(other) is not first
    device.host_us += (MOST_AGE_S - 1) * 1e6
    assert recent_calibration(device) is first
    device.host_us += 2e6
    assert recent_calibration(device) is not first


def test_graphs_need_no_calibration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "recent_calibration", lambda backend: pytest.fail("calibrated"))
    device = SimulatedDevice()
    assert time_one(device, constant_work(device, "a", 3.0), GRAPH).overhead_us == 0.0
